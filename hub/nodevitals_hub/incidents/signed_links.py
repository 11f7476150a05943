"""Links with which a person acknowledges an incident without a login.

In: the hub's key, the id of an incident, the time. Out: texts with links; whether the fields of a
request are valid. Pure. Stored and shown texts have the address of the incident without a
signature; it is added when the text is sent, so that only readers of the message can acknowledge.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

LINK_SECONDS = 86400.0
"""Validity of a link, from the time at which the text is sent."""
FIELDS = ("until", "s")
"""Fields of the address and of the form: the end in seconds since the epoch, the signature."""
GROWTH_BYTES = len("20260101-000000-abcdef?until=1000086400&s=") + 32 - len("of/0")
"""By how many bytes a link is longer than the shortest address that it replaces."""
Worth = Literal["none", "valid", "expired", "invalid"]
"""none: there is no signature."""
_ADDRESS = re.compile(r"(?<=/incidents/)of/[0-9a-zA-Z]{1,64}\Z")
_UNTIL = re.compile(r"[0-9]{1,12}")


def unsigned(fingerprint: str) -> str:
    """The path after /incidents/ in the address of an alert's incident."""
    return f"of/{fingerprint}"


def signed(text: str, key: bytes, identity: str, now: float) -> str:
    """The text with the address at its end replaced by the signed link of an incident."""
    until = str(int(now + LINK_SECONDS))
    link = f"{identity}?until={until}&s={_signature(key, identity, until)}"
    return _ADDRESS.sub(link, text)


def longest(text: str) -> str:
    """The text with a link of the maximum length instead of the address at its end."""
    return signed(text, b"-", "20260101-000000-abcdef", 1e9)


def worth(key: bytes, identity: str, fields: Mapping[str, str], now: float) -> Worth:
    """Whether the fields of a request are valid for an incident."""
    until, signature = (fields.get(name, "") for name in FIELDS)
    if not until and not signature:
        return "none"
    if not key or not _UNTIL.fullmatch(until):
        return "invalid"
    expected, given = _signature(key, identity, until), signature.encode("utf-8", "replace")
    if not hmac.compare_digest(expected.encode(), given):
        return "invalid"
    return "valid" if now <= int(until) else "expired"


def _signature(key: bytes, identity: str, until: str) -> str:
    """A signature over everything that the link permits: the act, the incident and the end."""
    content = msgspec.json.encode(("acknowledge", identity, int(until)))
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:32]
