"""The shipped rules and routes with shorter waits: durations are divided by a speed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from testbed.node import ROOT

# Scrapes and evaluations every second, at most: rules over 500 nodes take about that long.
FASTEST_SCRAPES = 15.0
# A group with an interval of its own is not evaluated more often than every second, either.
SHORTEST_INTERVAL_SECONDS = 1.0
_FLEET_TIMES = re.compile(r"(\[|offset )(\d+[smhd])\b")
_OFFSET = re.compile(r"\boffset (\d+[smhd])\b")
_HUNG_LIMIT = re.compile(
    r'(nodevitals_probe_(?:stuck|unanswered)_seconds\{[^}]*probe="mounts"\} > )(\d+)'
)


def seconds(duration: str) -> float:
    """Return a Prometheus duration of one unit in seconds."""
    return float(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[duration[-1]]


def milliseconds(wait: float) -> str:
    """Return seconds as a Prometheus duration in whole milliseconds, at least one."""
    return f"{max(1, round(wait * 1000))}ms"


def shorten_routes(config: dict[str, Any], speed: float) -> None:
    """Shorten the waits of an Alertmanager configuration, in place; reminders stay."""
    for route in (config["route"], *config["route"]["routes"]):
        for key in ("group_wait", "group_interval"):
            if key in route:
                route[key] = milliseconds(seconds(route[key]) / speed)


def write_shortened_rules(
    folder: Path, speed: float, waits_speed: float, longest_wait: float
) -> None:
    """Write the shipped rules to a new folder.

    `speed` is that of scrapes and evaluations. `for` and `keep_firing_for` are divided by
    `waits_speed`, and are then at most `longest_wait` seconds.
    """
    texts = {file.name: file.read_text() for file in (ROOT / "rules").glob("*.yaml")}
    for wait, among in ((_FLEET_TIMES, [texts["fleet.yaml"]]), (_HUNG_LIMIT, texts.values())):
        assert any(map(wait.search, among)), f"{wait.pattern} is gone"
    folder.mkdir()
    for name, text in texts.items():
        document = yaml.safe_load(text)
        for group in document["groups"]:
            if "interval" in group:
                whole = seconds(group["interval"])
                interval = max(whole / speed, SHORTEST_INTERVAL_SECONDS)
                group["interval"] = milliseconds(interval)
            for rule in group["rules"]:
                if name == "reliability.yaml":
                    _shorten_offset(rule, whole, interval)
                if name == "fleet.yaml":
                    _shorten_fleet_rule(rule, min(speed, FASTEST_SCRAPES))
                _shorten_rule(rule, speed, waits_speed, longest_wait)
        (folder / name).write_text(yaml.safe_dump(document))


def _shorten_fleet_rule(rule: dict[str, Any], speed: float) -> None:
    """Shorten the ranges and offsets of a rule in place: how long ago a fault began."""
    rule["expr"] = _FLEET_TIMES.sub(
        lambda found: f"{found[1]}{milliseconds(seconds(found[2]) / speed)}", rule["expr"]
    )


def _shorten_offset(rule: dict[str, Any], whole: float, interval: float) -> None:
    """Shorten offsets of one interval in place: what changed since the last evaluation is counted
    once.
    """
    rule["expr"] = _OFFSET.sub(
        lambda found: f"offset {milliseconds(seconds(found[1]) * interval / whole)}", rule["expr"]
    )


def _shorten_rule(
    rule: dict[str, Any], speed: float, waits_speed: float, longest_wait: float
) -> None:
    """Shorten a rule's waits in place, also the 30 s after which a mount counts as hung."""
    rule["expr"] = _HUNG_LIMIT.sub(
        lambda found: f"{found[1]}{float(found[2]) / min(speed, FASTEST_SCRAPES):g}", rule["expr"]
    )
    for key in ("for", "keep_firing_for"):
        if key in rule:
            rule[key] = milliseconds(min(seconds(rule[key]) / waits_speed, longest_wait))
