"""The example configuration, made from the Settings: their fields, docstrings and defaults.

`make generate` writes it. Text after `#` and a space explains; a key after
a bare `#` is commented out and shows its default, or the `Example:` of its docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from nodevitals.config import Config
from nodevitals.probe import Probe, ProbeSettings, TargetTiming
from nodevitals.quantities import UNIONS, BytesPerSecond, Seconds

HEAD = """\
# Configuration of nodevitals; by convention /etc/nodevitals/nodevitals.yaml.
# Check it with: nodevitals check-config FILE
#
# Every key is optional, an unknown key is an error. Durations: 500ms, 30s, 5m, 1h, 1d, from 10ms
# to 365d. A list has at most 10000 items, the file 1 MiB, the agent 5000 targets.
# Remove the # before a key to set it. The values shown are the defaults or, where there is none,
# examples.
"""
WIDTH = 100
_EXAMPLE = re.compile(r"Example: `(?P<value>[^`]*)`\.?\s*$")


class Field(NamedTuple):
    """One key: its type, its default (msgspec.NODEFAULT where required), text and example."""

    name: str
    hint: Any
    default: Any
    text: str
    example: str


def fields_of(struct: type[msgspec.Struct]) -> list[Field]:
    """The fields of a Settings class. Raises ValueError for one without a docstring."""
    hints = typing.get_type_hints(struct, include_extras=True)
    texts: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        if issubclass(owner, msgspec.Struct) and owner is not msgspec.Struct:
            texts |= _docstrings(owner)
    fields = sorted(msgspec.structs.fields(struct), key=lambda field: _rank(struct, field.name))
    return [_field(struct, field, hints[field.name], texts) for field in fields]


def _rank(struct: type, name: str) -> int:
    """Its place: `enabled` before the timing of a probe, the timing of a target after the rest."""
    if issubclass(struct, ProbeSettings):
        return 0 if name == "enabled" else 1
    return 1 if issubclass(struct, TargetTiming) and name in TargetTiming.__struct_fields__ else 0


def _field(
    struct: type, field: msgspec.structs.FieldInfo, hint: Any, texts: dict[str, str]
) -> Field:
    text = texts.get(field.name, "")
    if not text:
        raise ValueError(f"{struct.__module__}.{struct.__name__}.{field.name} has no docstring")
    match = _EXAMPLE.search(text)
    example = match["value"] if match else ""
    default = (
        field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    )
    text = _EXAMPLE.sub("", text).rstrip() + _bounds(hint)
    return Field(field.name, hint, default, text, example)


def _bounds(hint: Any) -> str:
    """The bounds of a number, as a sentence; '' of anything else."""
    plain = without_none(hint)
    for part in getattr(plain, "__metadata__", ()):
        if isinstance(part, msgspec.Meta) and part.le is not None:
            above = f" Above {part.gt}, up to {part.le}."
            return above if part.ge is None else f" From {part.ge} to {part.le}."
    return ""


def _docstrings(struct: type) -> dict[str, str]:
    """The string below each field, by the field's name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct)))
    body = typing.cast("ast.ClassDef", tree.body[0]).body
    texts = {}
    for field, below in zip(body, body[1:]):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts


def example_configuration(kinds: dict[str, type[Probe]]) -> str:
    """The whole file, for these probes."""
    lines = [HEAD]
    for field in fields_of(Config):
        if field.name == "probes":
            continue
        struct = struct_in(field.hint)
        lines += comment(field.text, "")
        if struct is None:
            lines += [f"#{field.name}: {field.example or spelled(field.default, field.hint)}"]
        else:
            lines.append(f"{field.name}:")
            for inner in fields_of(struct):
                lines += comment(inner.text, "  ")
                lines.append(f"  {inner.name}: {spelled(inner.default, inner.hint)}")
        lines.append("")
    lines += ["# Each probe also takes these:"]
    lines += [f"#   {field.name}: {field.text}" for field in fields_of(ProbeSettings)]
    lines += ["probes:"]
    for name, kind in kinds.items():
        lines += _section(name, kind)
    return "\n".join(lines).rstrip() + "\n"


def _section(name: str, kind: type[Probe]) -> Iterator[str]:
    yield from comment(" ".join((kind.__doc__ or "").split()), "  ")
    yield f"  {name}:"
    common = {field.name: field.default for field in fields_of(ProbeSettings)}
    if kind.default != "auto":
        yield f"    #enabled: {'true' if kind.default == 'on' else 'false'}"
    for field in fields_of(kind.Settings):
        if field.name not in common or field.default != common[field.name]:
            yield from key_lines(field, "    ")
    yield ""


def key_lines(field: Field, indent: str, first: str = "") -> Iterator[str]:
    """A key with its comment; of nested settings the keys below it. `first` starts a list item."""
    yield from comment(field.text, indent)
    struct = struct_in(field.hint)
    if struct is None or field.example:
        value = field.example or spelled(field.default, field.hint)
        yield f"{indent}#{first}{field.name}: {value}"
        return
    yield f"{indent}#{first}{field.name}:"
    below = indent + " " * len(first) + "  "
    is_list = get_origin(without_none(field.hint)) is tuple
    if get_origin(without_none(field.hint)) is dict:
        yield f"{below}#NAME:"
        below += "  "
    for index, inner in enumerate(fields_of(struct)):
        if is_list and index == 0:
            yield from key_lines(inner, below, "- ")
        else:
            yield from key_lines(inner, below + ("  " if is_list else ""))


def comment(text: str, indent: str) -> list[str]:
    """A text as lines of a comment."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def without_none(hint: Any) -> Any:
    """The type of a key that may be null, without the null."""
    if get_origin(hint) in UNIONS:
        rest = [part for part in get_args(hint) if part is not type(None)]
        return rest[0] if len(rest) == 1 else hint
    return hint


def struct_in(hint: Any) -> type[msgspec.Struct] | None:
    """The Settings class of a nested mapping, of the items of a list, or of a mapping by names."""
    plain = without_none(hint)
    if get_origin(plain) in (tuple, dict):
        plain = get_args(plain)[-1 if get_origin(plain) is dict else 0]
    return plain if isinstance(plain, type) and issubclass(plain, msgspec.Struct) else None


def spelled(value: Any, hint: Any) -> str:
    """A default as the file spells it."""
    if value is None or value is msgspec.NODEFAULT:
        return "null"
    plain = without_none(hint)
    if plain == Seconds:
        return duration(value)
    if plain == BytesPerSecond:
        return f"{value * 8 / 1e9:g}Gb/s"
    if isinstance(value, bool):
        return str(value).lower()
    return msgspec.json.encode(value).decode() if isinstance(value, (tuple, dict)) else _text(value)


def _text(value: Any) -> str:
    return (
        f'"{value}"'
        if isinstance(value, str) and re.search(r"^$|[:#{}\[\],]", value)
        else f"{value}"
    )


def duration(seconds: float) -> str:
    """Seconds in the largest unit that divides them: `5m`, `90s`, `500ms`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds * 1000:g}ms"
