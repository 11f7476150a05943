"""Rule files for a back-test: a folder in; rules in the order of their files out.

Unlike `rule_files`, which has their lines for findings, this has their waits and their interval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Union

import msgspec

from nodevitals.commands.rules.backtest.routing import seconds_of
from nodevitals.commands.terminal import CommandError, document_error
from nodevitals.document import DocumentError, Problem, parse_yaml, translated

EVALUATION_SECONDS = 15.0
"""Interval of groups that have none of their own: that of the shipped prometheus.yaml."""


class BacktestRule(msgspec.Struct, frozen=True, eq=False):
    """A rule; waits and the interval in seconds."""

    name: str
    is_alert: bool
    expression: str
    labels: dict[str, str]
    wait: float
    keep_firing: float
    interval: float


class _RuleShape(msgspec.Struct):
    record: str = ""
    alert: str = ""
    expr: Union[str, int, float] = ""
    labels: Optional[dict[str, Any]] = None
    wait: str = msgspec.field(default="0", name="for")
    keep_firing_for: str = "0"


class _GroupShape(msgspec.Struct):
    rules: Optional[list[_RuleShape]] = None
    interval: str = ""


class _FileShape(msgspec.Struct):
    groups: Optional[list[_GroupShape]] = None


# These record what dashboards show: they have no alerts, and no alert reads them.
FOR_DASHBOARDS = frozenset(
    (
        "agent-history.yaml",
        "fabric-history.yaml",
        "job-history.yaml",
        "reliability.yaml",
        "state.yaml",
        "usage.yaml",
    )
)
# RepeatedFaults remembers a week, of faults that remember one: each span would need two more before
# it.
LEFT_OUT = FOR_DASHBOARDS | {"repeats.yaml"}


def read_rule_set(folder: Path) -> tuple[BacktestRule, ...]:
    """The rules of every *.yaml of a folder but LEFT_OUT. Raises CommandError."""
    paths = sorted(path for path in folder.glob("*.yaml") if path.name not in LEFT_OUT)
    if not paths:
        raise CommandError(f"{folder}: no rule file (*.yaml) here; choose another --rules")
    return tuple(rule for path in paths for rule in _read(path))


def _read(path: Path) -> list[BacktestRule]:
    try:
        shape = msgspec.convert(parse_yaml(path.read_bytes()) or {}, _FileShape)
        return [
            _rule(rule, seconds_of(group.interval) if group.interval else EVALUATION_SECONDS)
            for group in shape.groups or ()
            for rule in group.rules or ()
        ]
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    except DocumentError as error:
        raise document_error(str(path), error) from None
    except (msgspec.ValidationError, ValueError) as error:
        problem = DocumentError([Problem("", f"not a rule file: {translated(error)}")])
        raise document_error(str(path), problem) from None


def _rule(shape: _RuleShape, interval: float) -> BacktestRule:
    return BacktestRule(
        name=shape.alert or shape.record,
        is_alert=bool(shape.alert),
        expression=str(shape.expr),
        labels={name: str(value) for name, value in (shape.labels or {}).items()},
        wait=seconds_of(shape.wait),
        keep_firing=seconds_of(shape.keep_firing_for),
        interval=interval,
    )
