"""Values as the configuration spells them: durations, rates and addresses."""

from __future__ import annotations

import re
import socket
import types
import typing
from typing import Annotated

import msgspec

from nodevitals.errors import Wording

# Only the digits 0 to 9: \d also matches those of other scripts.
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MIN_SECONDS = 0.01
MAX_SECONDS = 365 * 86400.0
_BIT_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([MGT])b(?:/s|it/s|ps)")
_UNIT_BITS = {"M": 1e6, "G": 1e9, "T": 1e12}
MIN_BITS = 1e6
MAX_BITS = 1e15
_PORT = re.compile(r"[0-9]{1,5}")
_SHOWN_CHARACTERS = 60
# What get_origin() returns for Union[X, Y], and from Python 3.10 on for X | Y.
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))


def shown(value: object) -> str:
    """A value for an error message; of a long one only the beginning."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def parse_duration(text: object) -> float:
    """Seconds from `500ms`, `30s`, `5m`, `1h`, `1d`. Raises ValueError with the format or the
    bounds.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            Wording(
                "{value} is not a duration: write it like 500ms, 30s, 5m or 1h", value=shown(text)
            )
        )
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise ValueError(
            Wording(
                "{value} is outside {low} to {high}: choose a duration within",
                value=shown(text),
                low="10ms",
                high="365d",
            )
        )
    return seconds


def parse_bit_rate(text: object) -> float:
    """Bytes per second from `400Gb/s`, as links are sold. Raises ValueError with the format or the
    bounds.
    """
    match = _BIT_RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            Wording("{value} is not a rate: write it like 400Gb/s or 100Mb/s", value=shown(text))
        )
    bits = float(match[1]) * _UNIT_BITS[match[2]]
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ValueError(
            Wording(
                "{value} is outside {low} to {high}: choose a rate within",
                value=shown(text),
                low="1Mb/s",
                high="1000Tb/s",
            )
        )
    return bits / 8


class Spelling(msgspec.Struct, frozen=True):
    """Marks a number that is written with a unit; `parse` reads it."""

    parse: typing.Callable[[object], float]


Seconds = Annotated[float, Spelling(parse_duration)]
"""Seconds, 10 ms to 365 days; written as `500ms`, `30s`, `5m` or `1h`."""

BytesPerSecond = Annotated[float, Spelling(parse_bit_rate)]
"""Bytes per second; written in bits, `400Gb/s`, 1 Mb/s to 1000 Tb/s."""


def parse_listen_address(text: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """`:9855`, `127.0.0.1:9855`, `[::1]:9855` as a family and an address. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(
            f"{shown(text)} is not a listen address: write it like :9855 or 127.0.0.1:9855"
        )
    host = host.removeprefix("[").removesuffix("]")
    if host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", int(port))
        return socket.AF_INET, ("0.0.0.0", int(port))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, (host, int(port))
