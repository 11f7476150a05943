"""Durations as RepairManager writes them: a plain number is seconds."""

from __future__ import annotations

from typing import Any

from nodevitals.quantities import parse_duration


def parse_seconds(value: Any) -> float:
    """Seconds from `60`, `"60"` or `1m`. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str) and value.isdecimal():
        value += "s"
    return parse_duration(value)


def prometheus_duration(value: Any) -> str:
    """The duration as Prometheus writes it, `60s` or `1500ms`; '' where it is none."""
    try:
        milliseconds = round(parse_seconds(value) * 1000)
    except ValueError:
        return ""
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"
