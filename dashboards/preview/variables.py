"""Variables of a dashboard: their values, and how they are written into a query.

A variable of several values becomes (a|b) with escaped regular expressions, All becomes the
variable's own pattern: `interpolateQueryExpr` of Grafana's Prometheus data source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

ALL = "$__all"
REFERENCE = re.compile(
    r"\$(?P<plain>\w+)"
    r"|\$\{(?P<braced>\w+)(?::(?P<format>[^}]+))?\}"
    r"|\[\[(?P<old>\w+)(?::(?P<oldformat>\w+))?\]\]"
)


@dataclass(frozen=True)
class Variable:
    """A variable with its chosen values; `options` are needed where All has no pattern."""

    name: str
    values: tuple[str, ...]
    several: bool = False
    pattern: str = ""
    options: tuple[str, ...] = ()

    @property
    def every(self) -> bool:
        """Return whether All is chosen."""
        return ALL in self.values

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the single values that are chosen."""
        return self.options if self.every else self.values


def prometheus(variable: Variable) -> str:
    """Return a variable as a query has it."""
    if variable.every and variable.pattern:
        return variable.pattern
    if not variable.several:
        return variable.values[0].replace("\\", "\\\\").replace("'", "\\\\'")
    found = [_escaped(value) for value in variable.chosen]
    return found[0] if len(found) == 1 else f"({'|'.join(found)})"


def _escaped(value: str) -> str:
    # Two backslashes: the query's string literal takes one of them.
    return re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def _queryparam(variable: Variable) -> str:
    return "&".join(f"var-{variable.name}={quote(value, safe='')}" for value in variable.values)


def _joined(separator: str) -> Callable[[Variable], str]:
    return lambda variable: separator.join(variable.chosen)


FORMATS: dict[str, Callable[[Variable], str]] = {
    "": prometheus,
    "queryparam": _queryparam,
    "percentencode": lambda variable: quote(",".join(variable.chosen), safe=""),
    "regex": lambda variable: (
        variable.pattern
        if variable.every and variable.pattern
        else f"({'|'.join(re.escape(value) for value in variable.chosen)})"
    ),
    "pipe": _joined("|"),
    "csv": _joined(","),
    "raw": _joined(","),
    "text": lambda variable: "All" if variable.every else " + ".join(variable.values),
}


def interpolate(
    text: str, variables: Mapping[str, Variable], words: Mapping[str, str], default: str = ""
) -> str:
    """Return the text with the values of all variables. An unknown one is an error: Grafana would
    send its name to Prometheus.
    """

    def value(found: re.Match[str]) -> str:
        name = found["plain"] or found["braced"] or found["old"]
        if name.isdigit():  # a group of label_replace
            return found[0]
        if name in words:
            return words[name]
        if name not in variables:
            raise ValueError(f"no variable {name} in {text}")
        style = found["format"] or found["oldformat"] or default
        if style not in FORMATS:
            raise ValueError(f"unknown format {style} of the variable {name} in {text}")
        return FORMATS[style](variables[name])

    return REFERENCE.sub(value, text)


def narrowed(values: list[str], regex: str) -> list[str]:
    """Return the values that a variable's own regular expression leaves: its first group, or the
    one that is named `value`.
    """
    if not regex:
        return values
    pattern = re.compile(regex.strip("/").replace("(?<", "(?P<"))
    found = []
    for value in values:
        match = pattern.search(value)
        if match:
            groups = match.groupdict()
            part = groups["value"] if "value" in groups else (*match.groups(), match[0])[0]
            found.append(part)
    return list(dict.fromkeys(found))


def natural(value: str) -> list[Any]:
    """Return a key that sorts node-9 before node-10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part.lower())
        for part in re.split(r"(\d+)", value)
        if part
    ]
