"""Metric families: names, kinds, help and labels that follow Prometheus' conventions.

A room declares its families once, beside the code that fills them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from typing import Literal, Optional

import msgspec

Kind = Literal["gauge", "counter"]

PREFIX = "nodevitals_"
# Metrics of the process itself have the names that all Prometheus client libraries use.
PROCESS_PREFIX = "process_"
_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LABEL_NAME = re.compile(r"[a-z][a-z0-9_]*")
# https://prometheus.io/docs/practices/naming/: base units only, ratios instead of percents.
_FOREIGN_UNITS = ("milliseconds", "minutes", "hours", "percent", "kilobytes", "megabytes", "bits")
# By the operators of PromQL.
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


class Bounds(msgspec.Struct, frozen=True):
    """The lowest and the highest value; `exact`: no value between them occurs."""

    low: float
    high: float
    exact: bool = False

    def joined(self, other: Bounds) -> Bounds:
        """The range of the values of both."""
        exact = self.exact and self == other
        return Bounds(min(self.low, other.low), max(self.high, other.high), exact)

    def results(self, comparison: str, value: float) -> set[bool]:
        """The results that a comparison with a value can have."""
        if self.low < value < self.high and not self.exact:
            return {False, True}
        compare = _COMPARISONS[comparison]
        return {compare(self.low, value), compare(self.high, value)}


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """One metric family: its name, kind, one-line help and label names.

    `closed` lists every value a label may take, for the labels that a rule may compare. Samples of
    an `open` family may have further labels, which the configuration or a text file names: the
    name and the value of each follow the values of the declared ones.
    Raises ValueError when a name breaks Prometheus' conventions.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    closed: Mapping[str, tuple[str, ...]] = {}
    open: bool = False

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(f"family {self.name}: {problem}")

    def __hash__(self) -> int:
        return hash(self.name)

    def _problems(self) -> list[str]:
        words = self.name.split("_")
        return [
            text
            for broken, text in (
                (not _METRIC_NAME.fullmatch(self.name), "not a metric name"),
                (
                    not self.name.startswith((PREFIX, PROCESS_PREFIX)),
                    f"does not start with {PREFIX}",
                ),
                (
                    (self.kind == "counter") != self.name.endswith("_total"),
                    "counters end in _total and nothing else does",
                ),
                (any(unit in words for unit in _FOREIGN_UNITS), "not in a base unit"),
                (not self.help.strip() or "\n" in self.help, "needs one line of help"),
                (
                    not all(_LABEL_NAME.fullmatch(label) for label in self.labels),
                    "not a label name",
                ),
                (len(set(self.labels)) != len(self.labels), "a label twice"),
                (
                    not set(self.closed) <= set(self.labels),
                    "a closed list for a label it does not have",
                ),
            )
            if broken
        ]

    @property
    def bounds(self) -> Optional[Bounds]:
        """The range of the values, as the help text states it; None: any."""
        if self.help.startswith("Always 1"):
            return Bounds(1, 1)
        if self.help.startswith("Whether "):
            return Bounds(0, 1, exact=True)
        shares = self.name.endswith("_ratio") and self.help.startswith("Share of ")
        return Bounds(0, 1) if shares and "may exceed 1" not in self.help else None

    @property
    def certain(self) -> frozenset[str]:
        """The labels that are never empty: closed lists without '', and what identifies a device.
        A lost device has lost its number, but not its uuid.
        """
        closed = {label for label, values in self.closed.items() if "" not in values}
        if self.name.startswith((PREFIX + "check_", PREFIX + "hub_", PREFIX + "scripts_")):
            return frozenset(closed)
        first = "uuid" if "uuid" in self.labels else (*self.labels, "")[0]
        return frozenset(closed | {first} - {""})

    def accepts(self, labels: tuple[str, ...]) -> bool:
        """Whether these label values fit: as many as declared, closed ones from their list, and
        the further ones of an open family.
        """
        further = labels[len(self.labels) :]
        if len(labels) < len(self.labels) or not (self.open or not further):
            return False
        if further and not self._accepts_further(further):
            return False
        for label, values in self.closed.items():
            if labels[self.labels.index(label)] not in values:
                return False
        return True

    def _accepts_further(self, further: tuple[str, ...]) -> bool:
        names = further[::2]
        distinct = len({*self.labels, *names}) == len(self.labels) + len(names)
        return len(further) % 2 == 0 and distinct and all(map(_LABEL_NAME.fullmatch, names))

    def pairs(self, labels: tuple[str, ...]) -> list[tuple[str, str]]:
        """Name and value of each label, for label values that fit."""
        further = labels[len(self.labels) :]
        return [
            *zip(self.labels, labels),
            *zip(further[::2], further[1::2]),
        ]


class Families:
    """Declares families that share the first part of their name and their first labels.

    >>> metrics = Families("mount", "mountpoint")
    >>> metrics.gauge("step_seconds", "Duration of each step.", step=("open", "read")).labels
    ('mountpoint', 'step')
    >>> [family.name for family in metrics]
    ['nodevitals_mount_step_seconds']
    """

    def __init__(self, prefix: str, *labels: str, **closed: tuple[str, ...]) -> None:
        """`labels` come first in every family; `closed` lists the values that a label may take, and
        adds the label behind `labels` where it is not among them.
        """
        self._prefix = f"{PREFIX}{prefix}_" if prefix else PREFIX
        self._labels = _merged(labels, closed)
        self._closed = closed
        self._declared: list[Family] = []

    def gauge(self, name: str, help: str, *labels: str, **closed: tuple[str, ...]) -> Family:
        """Declare a gauge with further labels."""
        return self._declare("gauge", name, help, labels, closed)

    def open_gauge(self, name: str, help: str, *labels: str) -> Family:
        """Declare a gauge with further labels, whose samples may have labels that only the
        configuration names.
        """
        return self._declare("gauge", name, help, labels, {}, open=True)

    def counter(self, name: str, help: str, *labels: str, **closed: tuple[str, ...]) -> Family:
        """Declare a counter with further labels; its name ends in `_total`."""
        return self._declare("counter", name, help, labels, closed)

    def _declare(
        self,
        kind: Kind,
        name: str,
        help: str,
        labels: tuple[str, ...],
        closed: dict[str, tuple[str, ...]],
        *,
        open: bool = False,
    ) -> Family:
        family = Family(
            name=self._prefix + name,
            kind=kind,
            help=help,
            labels=(*self._labels, *_merged(labels, closed)),
            closed={**self._closed, **closed},
            open=open,
        )
        self._declared.append(family)
        return family

    def __iter__(self) -> Iterator[Family]:
        return iter(self._declared)


def _merged(labels: tuple[str, ...], closed: Mapping[str, object]) -> tuple[str, ...]:
    return (*labels, *(label for label in closed if label not in labels))
