"""Generates docs/configuration.md from the Settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec

from nodevitals.commands.generated.example import Field, fields_of, spelled, struct_in, without_none
from nodevitals.config import Config
from nodevitals.probe import Probe, ProbeSettings
from nodevitals.quantities import UNIONS, BytesPerSecond, Seconds

HEAD = """\
# Configuration

Every key of `/etc/nodevitals/nodevitals.yaml`, made from the same source as
[the example](../exporter/packaging/nodevitals.example.yaml). Every key is optional, unless its
default is `required`; an unknown key is an error. The key of a mapping within another is written
`outer.inner`, that of the mappings in a list `list[].key`.

| type | written as |
|---|---|
| duration | `500ms`, `30s`, `5m`, `1h`, `1d`; from 10ms to 365d |
| rate | `400Gb/s`, `100Mb/s`; from 1Mb/s to 1000Tb/s |
| list of … | `[a, b]`, or one item per line after `- `; at most 10000 items |

After each change, check the file, then reload:

```console
$ nodevitals check-config /etc/nodevitals/nodevitals.yaml
/etc/nodevitals/nodevitals.yaml: ok
```

`systemctl reload nodevitals` makes the agent read it; where it has an error, the agent goes on with
what it had.

Alerts are configured where they are evaluated: a site's
[values of the rules](../rules/examples/values.example.yaml), rules of its own
([own-alert.md](own-alert.md), [sampled rules](../rules/examples/custom.example.yaml)), and routes,
also [by the pool of a node](own-alert.md#route-shipped-alerts-by-pool).
"""
COMMON = """
## Every probe

Each section below `probes` also has these keys. A default that differs is in the probe's own table.
"""
TABLE = "\n| key | type | default | |\n|---|---|---|---|\n"
_BELOW = {tuple: "[].", dict: ".NAME."}
WORDS: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "true or false"}


def configuration_page(kinds: dict[str, type[Probe]]) -> str:
    """The text of the page, for these probes."""
    top = [field for field in fields_of(Config) if field.name != "probes"]
    common = fields_of(ProbeSettings)
    parts = [HEAD, "\n## The agent\n", table(top), COMMON, table(common)]
    defaults = {field.name: field.default for field in common}
    for name, kind in kinds.items():
        own = [
            field
            for field in fields_of(kind.Settings)
            if field.name not in defaults or field.default != defaults[field.name]
        ]
        parts.append(f"\n## {name}\n\n{' '.join((kind.__doc__ or '').split())}\n")
        if kind.default != "auto":
            value = "true" if kind.default == "on" else "false"
            parts.append(f"`enabled` is `{value}` by default.\n")
        if own:
            parts.append(table(own))
    return "".join(parts)


def table(fields: list[Field]) -> str:
    """The table of these keys and of those below them."""
    return TABLE + "".join(row for field in fields for row in _rows(field, ""))


def _rows(field: Field, before: str) -> Iterator[str]:
    """The row of a key, and those of the keys below it."""
    key = before + field.name
    struct = struct_in(field.hint)
    text = field.text if not field.example else f"{field.text} Example: `{field.example}`."
    default = "" if _is_struct(without_none(field.hint)) else _default(field)
    cells = [f"`{key}`", words(field.hint), default, text]
    yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"
    if struct is not None:
        below = key + _BELOW.get(get_origin(without_none(field.hint)), ".")
        for inner in fields_of(struct):
            yield from _rows(inner, below)


def _default(field: Field) -> str:
    if field.default is msgspec.NODEFAULT:
        return "required"
    return f"`{spelled(field.default, field.hint)}`"


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def words(hint: Any) -> str:
    """The type of a key in plain words. Raises TypeError for a type that is not supported."""
    plain = without_none(hint)
    origin, arguments = get_origin(plain), get_args(plain)
    if plain in (Seconds, BytesPerSecond):
        return "duration" if plain == Seconds else "rate"
    if plain in WORDS:
        return WORDS[plain]
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in UNIONS:
        return " or ".join(words(choice) for choice in arguments)
    if origin is tuple:
        return f"list of {words(arguments[0])}"
    if origin is dict:
        return f"mapping of text to {words(arguments[1])}"
    if _is_struct(plain):
        return "mapping"
    if hasattr(plain, "__metadata__"):  # a number with bounds
        return words(plain.__origin__)
    raise TypeError(f"no words for the type {hint}")
