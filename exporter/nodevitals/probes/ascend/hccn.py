"""What hccn_tool prints of an NPU's network port: text in, a value out, None where it is not there.

A2 and A3 print `key: value`, the 950 tables. Exit statuses are not to be relied upon.
"""

from __future__ import annotations

import re

import msgspec

NET_HEALTH = (
    *("success", "init", "socket_failed", "receive_timeout", "unreachable", "time_exceeded"),
    *("fault", "thread_error", "detect_ip_set", "unknown"),
)
_PREFIX = r"(?:\[dev(?:id|ice)? \d+\])?"
_LINK = re.compile(rf"^\s*{_PREFIX}\s*link status\s*:\s*(UP|DOWN)\s*$", re.MULTILINE)
_NET_HEALTH = re.compile(
    rf"^\s*{_PREFIX}\s*net health status\s*:\s*(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE
)
_SPEED = re.compile(r"^\s*Speed\s*:\s*(\d+)\s*Mb/s\s*$", re.MULTILINE)
_SPEED_950 = re.compile(r"(\d+)\s*G")
_COUNT = re.compile(r"^\s*([a-z][a-z0-9_]*)\s*:\s*(\d+)\s*$", re.MULTILINE)
_LINK_COUNT = re.compile(rf"^\s*{_PREFIX}\s*link (up|down) count\s*:\s*(\d+)\s*$", re.MULTILINE)
_OPTICAL = re.compile(r"^\s*([A-Za-z][A-Za-z ]*?\d?)\s*:\s*(-?\d+(?:\.\d+)?) (mW|C|mV|mA)\s*$")


def parse_link(text: str) -> bool | None:
    """`-link`: whether the port is up."""
    found = _LINK.findall(text)
    return found[0] == "UP" if len(found) == 1 else None


def parse_net_health(text: str) -> str | None:
    """`-net_health`: one word of NET_HEALTH; `unknown` for one that is not among them."""
    found = _NET_HEALTH.findall(text)
    if len(found) != 1:
        return None
    word = str(found[0]).lower().replace(" ", "_")
    word = {"socket_fail": "socket_failed", "time_out": "time_exceeded"}.get(word, word)
    return word if word in NET_HEALTH else "unknown"


def parse_speed(text: str) -> int | None:
    """`-speed`: bits a second."""
    plain = _SPEED.findall(text)
    if len(plain) == 1:
        return int(plain[0]) * 10**6
    rows = _table(text)
    speeds = [_SPEED_950.fullmatch(row.get("Speed", "")) for row in rows]
    return int(speeds[0][1]) * 10**9 if len(speeds) == 1 and speeds[0] else None


def parse_statistics(text: str) -> dict[str, int]:
    """`-stat`: every counter by the tool's own name."""
    found = _COUNT.findall(text)
    names = [name for name, _ in found]
    return {name: int(count) for name, count in found if names.count(name) == 1}


def parse_link_changes(text: str) -> tuple[int | None, int | None]:
    """`-link_stat`: how often the link went up, and down; older tools tell the first alone."""
    found = dict(_LINK_COUNT.findall(text))
    up, down = found.get("up"), found.get("down")
    return (None if up is None else int(up)), (None if down is None else int(down))


class Optical(msgspec.Struct, frozen=True, kw_only=True):
    """An optical module: power in watts by lane, and the thresholds that it brings along."""

    receive_watts: dict[int, float] = {}
    transmit_watts: dict[int, float] = {}
    receive_low_watts: float | None = None
    transmit_low_watts: float | None = None
    temperature_celsius: float | None = None


def parse_optical(text: str) -> Optical:
    """`-optical`. "not present" beside figures is not to be relied upon: the figures are."""
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _OPTICAL.fullmatch(line)
        if match:
            values[match[1].lower()] = float(match[2] + ("e-3" if match[3] == "mW" else ""))
    lanes = {
        way: {
            lane: values[f"{way} power{lane}"]
            for lane in range(8)
            if f"{way} power{lane}" in values
        }
        for way in ("rx", "tx")
    }
    return Optical(
        receive_watts=lanes["rx"],
        transmit_watts=lanes["tx"],
        receive_low_watts=values.get("rxpower low thres"),
        transmit_low_watts=values.get("txpower low thres"),
        temperature_celsius=values.get("temperature"),
    )


def _table(text: str) -> list[dict[str, str]]:
    rows = [
        [cell.strip() for cell in line.strip()[1:-1].split("|")]
        for line in text.splitlines()
        if line.strip().startswith("|") and line.strip().endswith("|")
    ]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == len(rows[0])]
