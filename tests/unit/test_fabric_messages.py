"""What a peer sends is a message or a ValueError, whichever version of msgspec is installed."""

from __future__ import annotations

import msgspec
import pytest

from nodevitals.probes.fabric.protocol import OpenRequest, parse


@pytest.mark.parametrize("data", [b"", b"{}", b"{", b"\xff", b'{"id": 1}', b"[" * 5000])
def test_any_other_text_is_a_plain_value_error(data: bytes) -> None:
    """The errors of msgspec 0.20, the last for Python 3.9, are no value errors."""
    with pytest.raises(ValueError, match=r".") as raised:
        parse(data, OpenRequest)
    assert not isinstance(raised.value, msgspec.MsgspecError)
    assert "\n" not in str(raised.value)
