"""What hccn_tool prints of an NPU's RoCE port on A2 and A3: text in, a value out, None where it is
missing. Exit statuses are unreliable and not used.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Optional

import msgspec

from nodevitals.linux.sysfs import parse_integer

NET_HEALTH = (
    "success",
    "init",
    "socket_failed",
    "receive_timeout",
    "unreachable",
    "time_exceeded",
    "fault",
    "thread_error",
    "detect_ip_set",
    "unknown",
)
# Each line is read alone, and white space is nowhere matched in two ways: a text of newlines or of
# spaces would take the square of its length. A number with more digits is not one.
_START = r"^[ \t]*(?:\[dev(?:id|ice)? \d{1,9}\][ \t]*)?"
_COLON = r"[ \t]*:[ \t]*"
_END = r"[ \t\r]*$"
_LINK = re.compile(rf"{_START}link status{_COLON}(UP|DOWN){_END}", re.MULTILINE)
_NET_HEALTH = re.compile(rf"{_START}net health status{_COLON}(\S.*)$", re.MULTILINE | re.IGNORECASE)
_SPEED = re.compile(rf"^[ \t]*Speed{_COLON}(\d{{1,9}})[ \t]*Mb/s{_END}", re.MULTILINE)
_COUNT = re.compile(rf"^[ \t]*([a-z][a-z0-9_]*){_COLON}(\d{{1,20}}){_END}", re.MULTILINE)
_POWER = rf"{_COLON}(-?\d{{1,9}}(?:\.\d{{1,9}})?) mW{_END}"
_RECEIVE_POWER = re.compile(rf"^[ \t]*Rx Power([0-7]){_POWER}", re.MULTILINE | re.IGNORECASE)
_RECEIVE_POWER_LOW = re.compile(rf"^[ \t]*RxPower Low Thres{_POWER}", re.MULTILINE | re.IGNORECASE)


def parse_link(text: str) -> bool | None:
    """`-link`: whether the port is up."""
    found = _LINK.findall(text)
    return found[0] == "UP" if len(found) == 1 else None


def parse_net_health(text: str) -> str | None:
    """`-net_health`: one word of NET_HEALTH; `unknown` for one that is not among them."""
    found = _NET_HEALTH.findall(text)
    if len(found) != 1:
        return None
    word = str(found[0]).strip().lower().replace(" ", "_")
    word = {"socket_fail": "socket_failed", "time_out": "time_exceeded"}.get(word, word)
    return word if word in NET_HEALTH else "unknown"


def parse_speed(text: str) -> int | None:
    """`-speed`: bits per second."""
    found = _SPEED.findall(text)
    megabits = parse_integer(found[0]) if len(found) == 1 else None
    return None if megabits is None else megabits * 10**6


def parse_statistics(text: str) -> dict[str, int]:
    """`-stat`: every counter by the tool's own name."""
    found = _COUNT.findall(text)
    times = Counter(name for name, _ in found)
    return {name: int(count) for name, count in found if times[name] == 1}


class Optical(msgspec.Struct, frozen=True, kw_only=True):
    """An optical module: received power per lane, and its own lower threshold for it."""

    receive_watts: dict[int, float] = {}
    receive_low_watts: Optional[float] = None


def parse_optical(text: str) -> Optical:
    """`-optical`. The tool prints "not present" also for modules that it measures: not used."""
    lows = _RECEIVE_POWER_LOW.findall(text)
    return Optical(
        receive_watts={int(lane): _watts(power) for lane, power in _RECEIVE_POWER.findall(text)},
        receive_low_watts=_watts(lows[-1]) if lows else None,
    )


def _watts(milliwatts: str) -> float:
    # Shifting the point in the text keeps 1.0189 mW exact where a division would not.
    return float(milliwatts + "e-3")
