"""Values as text and colour, after a panel's unit, mappings, thresholds and overrides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from dashboards.preview.queries import Json
from dashboards.preview.results import Result

SUFFIXES = {
    "none": "", "celsius": " °C", "percent": "%", "rotrpm": " rpm", "amp": " A",
}  # fmt: skip
SCALED = {
    "short": "", "bytes": "B", "Bps": "B/s", "bps": "b/s", "watt": "W", "hertz": "Hz", "cps": "c/s",
}  # fmt: skip
TIMES = (
    (86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"),
    (0.0, "ns"),
)  # fmt: skip


class Shown(NamedTuple):
    """A value as text, and its colour or '' where none applies."""

    text: str
    colour: str


def settings(panel: Json, name: str) -> Json:
    """Return the panel's settings for a column or series: defaults, then overrides by its name."""
    config = panel.get("fieldConfig", {})
    found = dict(config.get("defaults", {}))
    found["custom"] = dict(found.get("custom", {}))
    for override in config.get("overrides", ()):
        if override["matcher"]["id"] != "byName":
            raise ValueError(f"unknown matcher {override['matcher']['id']}")
        if override["matcher"]["options"] == name:
            for change in override["properties"]:
                room, _, key = change["id"].rpartition(".")
                (found["custom"] if room == "custom" else found)[key] = change.get("value")
    return found


def shown(value: Any, config: Mapping[str, Any], now: float = 0.0) -> Shown:
    """Return a value as the panel shows it; `now` is the dashboard's end in seconds."""
    if value is None or value == "":
        return Shown(config.get("noValue") or "", "")
    whole = isinstance(value, float) and value.is_integer()
    key = str(int(value)) if whole else str(value)
    words = None
    for mapping in config.get("mappings") or ():
        if mapping["type"] != "value":
            raise ValueError(f"unknown mapping {mapping['type']}")
        if key in mapping["options"]:
            option = mapping["options"][key]
            words, colour = option.get("text"), option.get("color") or ""
            break
    else:
        colour = _threshold(-math.inf if isinstance(value, str) else value, config)
    if words is None:
        plain = isinstance(value, str)
        unit = config.get("unit") or "none"
        words = value if plain else number(value, unit, config.get("decimals"), now)
    return Shown(str(words), colour)


def _threshold(value: float, config: Mapping[str, Any]) -> str:
    """Return the colour of the last threshold that the value reaches."""
    colour = ""
    for step in (config.get("thresholds") or {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    return colour


def number(value: float, unit: str, decimals: int | None = None, now: float = 0.0) -> str:
    """Return a number in a unit of Grafana (dates: ms); an unknown unit is an error."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}∞"
    if unit == "dateTimeAsIso":
        return datetime.fromtimestamp(value / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    if unit == "dateTimeFromNow":
        return f"{number(now - value / 1000, 's', 0)} ago"
    if unit == "bool_yes_no":
        return "Yes" if value else "No"
    if unit == "percentunit":
        return f"{_fixed(value * 100, decimals)}%"
    if unit == "s":
        size, name = next(pair for pair in TIMES if abs(value) >= pair[0] or value == 0.0)
        return "0 s" if value == 0 else f"{_fixed(value / (size or 1e-9), decimals)} {name}"
    if unit == "kwatth":
        return f"{_fixed(value, decimals)} kWh"
    if unit in SCALED:
        base, infix = (1024, "i") if unit == "bytes" else (1000, "")
        power = min(int(math.log(abs(value), base) + 1e-12), 5) if abs(value) >= 1 else 0
        prefix = f"{' kMGTP'[power]}{infix}" if power else ""
        return f"{_fixed(value / base**power, decimals)} {prefix}{SCALED[unit]}".rstrip()
    if unit.startswith("suffix:"):
        return f"{_fixed(value, decimals)} {unit.partition(':')[2]}"
    if unit not in SUFFIXES:
        raise ValueError(f"unknown unit {unit!r}")
    return _fixed(value, decimals) + SUFFIXES[unit]


def _fixed(value: float, decimals: int | None) -> str:
    """Return a number with that many decimals; without one, with three digits at least."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return f"{value:.0f}" if abs(value) >= 100 or value.is_integer() else f"{value:.3g}"


def visible(panel: Json, result: Result) -> list[str]:
    """Return the columns of a table panel that are not hidden."""
    columns = result.table.columns if result.table else []
    return [name for name in columns if not settings(panel, name)["custom"].get("hidden")]


def text_table(panel: Json, result: Result, now: float) -> list[list[str]]:
    """Return a panel's result as lines of cells, the first of them the titles. Series are one line
    each, with their last value.
    """
    if result.table:
        columns = visible(panel, result)
        rows = result.table.rows
        configs = {name: settings(panel, name) for name in columns}
        return [
            columns,
            *([shown(row.get(name), configs[name], now).text for name in columns] for row in rows),
        ]
    found = [["series", "last", "lowest", "highest", "points"]]
    for line in result.lines:
        config = settings(panel, line.name)
        parts = (line.values[-1], min(line.values), max(line.values))
        texts = [shown(value, config, now).text for value in parts]
        found.append([line.name, *texts, str(len(line.values))])
    return found
