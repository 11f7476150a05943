"""Durations, rates and addresses: finite numbers within stated bounds, or an error of one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.quantities import parse_bit_rate, parse_duration, parse_listen_address

DIGITS = st.text("0123456789", min_size=1, max_size=500)


def read(parse: Callable[[object], float], text: str) -> float | str:
    """Return the number, or the error."""
    try:
        return parse(text)
    except ValueError as error:
        return str(error)


@given(st.builds("{}.{}{}".format, DIGITS, DIGITS, st.sampled_from(["ms", "s", "m", "h", "d"])))
def test_duration_lies_between_10_ms_and_a_year(text: str) -> None:
    found = read(parse_duration, text)
    if isinstance(found, str):
        assert "is outside 10ms to 365d" in found
        assert len(found) < 120
    else:
        assert 0.01 <= found <= 365 * 86400


@pytest.mark.parametrize("text", ["9" * 400 + "s", f"0.{'0' * 400}1ms", "9.999ms", "366d", "0s"])
def test_duration_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is outside 10ms to 365d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["10ms", "365d", "8760h", "0.01s"])
def test_bounds_are_within(text: str) -> None:
    assert parse_duration(text) > 0


@given(st.builds("{}{}b/s".format, DIGITS, st.sampled_from("MGT")))
def test_rate_lies_between_1_megabit_and_1000_terabits(text: str) -> None:
    found = read(parse_bit_rate, text)
    if isinstance(found, str):
        assert "is outside 1Mb/s to 1000Tb/s" in found
        assert len(found) < 120
    else:
        assert 1e6 <= found * 8 <= 1e15


@pytest.mark.parametrize("text", ["\u0661\u0660s", "\uff11\uff10s"])
def test_digits_of_other_scripts_are_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", [":\u00b2", ":" + "9" * 5000, ":65536", ":-1"])
def test_port_of_an_address_is_a_number_in_bounds(text: str) -> None:
    with pytest.raises(ValueError, match="is not a listen address"):
        parse_listen_address(text)
