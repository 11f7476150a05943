"""JSON Schema of the chart's values, for Helm. In: the types of the values, of the agent's
and of the hub's settings, with their docstrings. Out: `values.schema.json`, in which an unknown key
is an error.
"""

from __future__ import annotations

import itertools
import json
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec

from helm.hub import HubConfig
from helm.nodes import AgentConfig, Nodes, Values
from helm.rules_schema import name_rules
from helm.values import ChartValues
from nodevitals.commands.generated.example import fields_of
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.values import Wait
from nodevitals.config import Config
from nodevitals.probe import Probe
from nodevitals.quantities import BytesPerSecond, Seconds
from nodevitals_hub.settings.hub import HubSettings

_FILES = {AgentConfig: "#/definitions/config", HubConfig: "#/definitions/hub"}
_DURATION = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"}
# As Prometheus reads it: without fractions.
_WAIT = {"type": "string", "pattern": r"^[0-9]+(ms|s|m|h|d)$"}
_SHARED_CHARACTERS = 100
"""A shorter part is written out: a reference is no shorter."""
_RATE = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?[MGT]b(/s|it/s|ps)$"}


def values_schema(probes: Mapping[str, type[Probe]], pack: Pack) -> str:
    """The schema as text, for these probes and rules."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart nodevitals",
        **_struct(ChartValues),
        "definitions": {"config": _config(probes), "hub": _hub()},
    }
    name_rules(schema, pack)
    _share(schema)
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _share(schema: dict[str, Any]) -> None:
    """Move each part that is there several times into `definitions`, once."""
    counts: Counter[str] = Counter()

    def count(part: dict[str, Any]) -> None:
        text = json.dumps(part)
        counts[text] += 1
        if counts[text] == 1:
            for _, _, _, inner in _parts(part):
                count(inner)

    def replace(part: dict[str, Any]) -> None:
        for container, key, name, inner in [*_parts(part)]:  # definitions grow
            text = json.dumps(inner)
            if counts[text] == 1 or len(text) < _SHARED_CHARACTERS:
                replace(inner)
                continue
            if text not in references:
                names = (f"{name}{number or ''}" for number in itertools.count())
                references[text] = next(one for one in names if one not in definitions)
                definitions[references[text]] = inner
                replace(inner)
            container[key] = {"$ref": f"#/definitions/{references[text]}"}

    count(schema)
    definitions: dict[str, Any] = schema["definitions"]
    references: dict[str, str] = {}
    replace(schema)


def _parts(schema: dict[str, Any]) -> Iterator[tuple[Any, Any, str, Any]]:
    """The schemas right inside one: what has each of them, its key there, a name, itself."""
    for key, value in [*schema.items()]:
        if key in ("properties", "definitions"):
            yield from ((value, one, one, value[one]) for one in [*value])
        elif key in ("anyOf", "allOf") or (key == "items" and isinstance(value, list)):
            yield from ((value, number, key, one) for number, one in enumerate(value))
        elif key in ("items", "additionalProperties", "propertyNames") and isinstance(value, dict):
            yield schema, key, key, value


def _config(probes: Mapping[str, type[Probe]]) -> dict[str, Any]:
    """The agent's configuration: a site's own probe is no part of it."""
    schema = _struct(Config)
    sections = {name: _probe(kind) for name, kind in probes.items()}
    schema["properties"]["probes"] = {
        "description": "Settings by probe.",
        **_closed(sections),
    }
    return {"title": "the agent's settings (nodevitals.yaml)", **schema}


def _hub() -> dict[str, Any]:
    """The hub's configuration, without what the chart itself says."""
    schema = _struct(HubSettings)
    del schema["properties"]["state_directory"]
    return {"title": "the hub's settings (hub.yaml)", **schema}


def _probe(kind: type[Probe]) -> dict[str, Any]:
    schema = _struct(kind.Settings)
    # The values of a DaemonSet are merged over others: what a probe needs may be in either.
    return {"description": " ".join((kind.__doc__ or "").split()), **schema}


def _struct(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """An object with a property per field, and no others."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    properties = {}
    for field in fields_of(struct):
        schema = _any(field.hint)
        # Draft 7 ignores what stands beside $ref.
        schema = {"allOf": [schema]} if "$ref" in schema else schema
        properties[names[field.name]] = {"description": field.text, **schema}
    return _closed(properties) | _needs(struct)


def _needs(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The keys of a section that have no default, so that null in the site's values is named."""
    if not issubclass(struct, Values) or struct is Nodes:
        return {}
    hints = typing.get_type_hints(struct)
    fields = [one for one in msgspec.structs.fields(struct) if one.required]
    names = [one.encode_name for one in fields if hints[one.name] not in _FILES]
    return {"required": names} if names else {}


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _any(hint: Any) -> dict[str, Any]:
    """The schema of a type; what has no parts is msgspec's."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _FILES:
        return {"$ref": _FILES[hint]}
    if hint == Seconds:
        return dict(_DURATION)
    if hint == Wait:
        return dict(_WAIT)
    if hint == BytesPerSecond:
        return dict(_RATE)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_any(choice) for choice in arguments]}
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return {"type": "array", "items": _any(arguments[0])}
    if origin is tuple:
        size = len(arguments)
        items = [_any(one) for one in arguments]
        return {"type": "array", "items": items, "minItems": size, "maxItems": size}
    if origin is dict:
        return _mapping(*arguments)
    return _plain(hint)


def _plain(hint: Any) -> dict[str, Any]:
    """The schema of a type without parts, as Helm reads it: in RE2, `$` is the end of the text."""
    found = msgspec.json.schema(hint)
    if found.get("pattern", "").endswith(r"\Z"):
        found["pattern"] = found["pattern"][:-2] + "$"
    return found


def _mapping(key: Any, value: Any) -> dict[str, Any]:
    names = _plain(key)
    names.pop("type", None)
    schema: dict[str, Any] = {"type": "object"}
    if value is not Any:
        schema["additionalProperties"] = _any(value)
    if names:
        schema["propertyNames"] = names
    return schema
