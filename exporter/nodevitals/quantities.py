"""Values as the configuration spells them: durations, rates and addresses."""

from __future__ import annotations

import re
import socket
import typing
from typing import Annotated

import msgspec

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BIT_RATE = re.compile(r"(\d+(?:\.\d+)?) ?([MGT])b(?:/s|it/s|ps)")
_UNIT_BITS = {"M": 1e6, "G": 1e9, "T": 1e12}


def parse_duration(text: object) -> float:
    """Seconds from `500ms`, `30s`, `5m`, `1h`, `1d`. Raises ValueError with the format."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a duration: write it like 500ms, 30s, 5m or 1h")
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    if seconds <= 0:
        raise ValueError(f"{text!r} must be greater than 0")
    return seconds


def parse_bit_rate(text: object) -> float:
    """Bytes per second from `400Gb/s`, as links are sold. Raises ValueError with the format."""
    match = _BIT_RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a rate: write it like 400Gb/s or 100Mb/s")
    rate = float(match[1]) * _UNIT_BITS[match[2]] / 8
    if rate <= 0:
        raise ValueError(f"{text!r} must be greater than 0")
    return rate


class Spelling(msgspec.Struct, frozen=True):
    """Marks a number that is written with a unit; `parse` reads it."""

    parse: typing.Callable[[object], float]


Seconds = Annotated[float, Spelling(parse_duration)]
"""Seconds; written as `500ms`, `30s`, `5m` or `1h`."""

BytesPerSecond = Annotated[float, Spelling(parse_bit_rate)]
"""Bytes per second; written in bits, `400Gb/s`."""


def parse_listen_address(text: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """`:9855`, `127.0.0.1:9855`, `[::1]:9855` as a family and an address. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not a listen address: write it like :9855 or 127.0.0.1:9855")
    host = host.removeprefix("[").removesuffix("]")
    if host == "":
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", int(port))
        return socket.AF_INET, ("0.0.0.0", int(port))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return family, (host, int(port))
