"""Variables of a dashboard: their values, and how they are written into a query.

A variable of several values becomes (a|b) with escaped regular expressions, All becomes the
variable's own pattern: `interpolateQueryExpr` of Grafana's Prometheus data source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

ALL = "$__all"
REFERENCE = re.compile(r"\$(?P<plain>\w+)|\$\{(?P<braced>\w+)\}")


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
    def query(self) -> str:
        """Return the variable as a query has it."""
        if self.every and self.pattern:
            return self.pattern
        if not self.several:
            return self.values[0].replace("\\", "\\\\").replace("'", "\\\\'")
        found = [_escaped(value) for value in (self.options if self.every else self.values)]
        return found[0] if len(found) == 1 else f"({'|'.join(found)})"


def _escaped(value: str) -> str:
    # Two backslashes: the query's string literal takes one of them.
    return re.sub(r"[$^*{}\[\]+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def interpolate(text: str, variables: Mapping[str, Variable], words: Mapping[str, str]) -> str:
    """Return the text with the values of all variables. An unknown one is an error: Grafana would
    send its name to Prometheus.
    """

    def value(reference: re.Match[str]) -> str:
        name = reference["plain"] or reference["braced"]
        if name.isdigit():  # a group of label_replace
            return reference[0]
        if name in words:
            return words[name]
        if name not in variables:
            raise ValueError(f"no variable {name} in {text}")
        return variables[name].query

    return REFERENCE.sub(value, text)
