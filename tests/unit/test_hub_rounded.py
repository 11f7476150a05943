"""Numbers on the hub's pages are rounded for people."""

from __future__ import annotations

import pytest

from nodevitals_hub.web.rendering import rounded, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (2e-06, "< 0.01"), (0.0123, "0.01"), (0.25, "0.25"), (1.284, "1.28")),
        *((99.96, "100"), (12345.6, "12346")),
    ],
)
def test_a_number_has_no_exponent(value: float, text: str) -> None:
    assert rounded(value) == text


def test_a_short_time_is_not_measured_in_hundred_thousandths() -> None:
    assert span(0.00892) == "< 0.01 s"
    assert span(12.34) == "12.3 s"
