"""Durations as RepairManager writes them: a plain number is seconds, or minutes in `interval`."""

from __future__ import annotations

from typing import Any, Literal

from nodevitals.quantities import parse_duration


def parse_seconds(value: Any, unit: Literal["s", "m"] = "s") -> float:
    """Seconds from `60`, `"60"` or `1m`; `unit` is that of a plain number. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value) * (60 if unit == "m" else 1)
    if isinstance(value, str) and value.isdecimal():
        value += unit
    return parse_duration(value)


def prometheus_duration(value: Any) -> str:
    """The duration as Prometheus writes it, `60s` or `1500ms`; '' where it is none."""
    try:
        milliseconds = round(parse_seconds(value) * 1000)
    except ValueError:
        return ""
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"
