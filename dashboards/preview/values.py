"""How a panel shows a value: its text and colour after unit, mappings, thresholds and overrides."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dashboards.preview import units
from dashboards.preview.frames import Field, Frame, title

Json = dict[str, Any]


class Shown(NamedTuple):
    """A value as text, and its colour or '' where none applies. `mapped`: a mapping gave it."""

    text: str
    colour: str
    mapped: bool = False


def settings(panel: Json, field: Field, frames: Sequence[Frame], ref: str = "") -> Json:
    """Return the panel's settings for a column: the defaults, then each override that matches."""
    config = panel.get("fieldConfig", {})
    found = dict(config.get("defaults", {}))
    found["custom"] = dict(found.get("custom", {}))
    for override in config.get("overrides", ()):
        if _matches(override["matcher"], field, title(field, frames), ref):
            for change in override["properties"]:
                room, _, key = change["id"].rpartition(".")
                (found["custom"] if room == "custom" else found)[key] = change.get("value")
    return found


def _matches(matcher: Json, field: Field, name: str, ref: str) -> bool:
    kind: str = matcher["id"]
    wanted: Any = matcher.get("options")
    if kind == "byName":
        return bool(name == wanted)
    if kind == "byNames":
        return name in wanted["names"]
    if kind == "byRegexp":
        return re.search(str(wanted).strip("/"), name) is not None
    if kind == "byType":
        return bool(field.kind == wanted)
    if kind == "byFrameRefID":
        return bool(ref == wanted)
    raise ValueError(f"unknown matcher {kind}")


def mapped(value: Any, mappings: Sequence[Json]) -> Json | None:
    """Return what the first mapping that matches says."""
    for mapping in mappings:
        found = _mapped(value, mapping["type"], mapping["options"])
        if found is not None:
            return found
    return None


def _mapped(value: Any, kind: str, options: Json) -> Json | None:
    missing = value is None or value == ""
    odd = isinstance(value, float) and math.isnan(value)
    if kind == "value":
        return None if value is None else options.get(_key(value))
    if kind == "range":
        if missing or odd or not isinstance(value, (int, float)):
            return None
        low, high = options.get("from"), options.get("to")
        inside = (low is None or value >= low) and (high is None or value <= high)
        return options["result"] if inside else None
    if kind == "regex":
        pattern = str(options["pattern"]).strip("/")
        inside = isinstance(value, str) and re.search(pattern, value) is not None
        return options["result"] if inside else None
    if kind == "special":
        matches = {
            "null": value is None,
            "nan": odd,
            "null+nan": odd or value is None,
            "empty": value == "",
        }
        return options["result"] if matches[options["match"]] else None
    raise ValueError(f"unknown mapping {kind}")


def _key(value: Any) -> str:
    """Return a value as JavaScript spells it as a key."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def threshold(value: float, config: Mapping[str, Any]) -> str:
    """Return the colour of the last threshold that the value reaches."""
    limits = config.get("thresholds") or {"steps": []}
    number = value
    if limits.get("mode") == "percentage":
        low, high = config.get("min") or 0.0, config.get("max", 100.0)
        number = (value - low) / (high - low) * 100
    colour = ""
    for step in limits["steps"]:
        if step["value"] is None or number >= step["value"]:
            colour = step["color"]
    return colour


def shown(value: Any, config: Mapping[str, Any], now: float = 0.0) -> Shown:
    """Return a value as the panel shows it."""
    result = mapped(value, config.get("mappings") or ())
    if result is not None:
        words = result.get("text")
        plain = shown(value, {**config, "mappings": ()}, now) if words is None else None
        return Shown(plain.text if plain else str(words), result.get("color") or "", True)
    if value is None or value == "":
        return Shown(config.get("noValue") or "", "")
    if isinstance(value, str):
        return Shown(value, threshold(-math.inf, config))
    words = units.text(value, config.get("unit") or "none", config.get("decimals"), now)
    return Shown(words, threshold(value, config))
