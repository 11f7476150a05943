"""What is known about metrics, from the catalogue and from recording rules. In: rules, and
expressions that read what they record. Out: the labels, kind and range of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from nodevitals import catalogue
from nodevitals.commands.rules.expression import Matcher
from nodevitals.commands.rules.promql.series import (
    UNKNOWN,
    Series,
    aggregated,
    called,
    combined,
    either,
)
from nodevitals.commands.rules.promql.syntax import Part, parse
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.families import PREFIX, Bounds, Family
from nodevitals.probes.fabric.families import PUSHED

JOB = "nodevitals"
HUB_JOB = "nodevitals-hub"
# The job with `collect[]` for a few probes every second (docs/probes.md).
FAST_JOB = "nodevitals-fast"
# Labels that Prometheus or the scrape job sets.
TARGET_LABELS = frozenset({"job", "instance", "cluster", "__name__"})
# Exporters whose series never have the job of ours.
_OTHER_JOBS = re.compile(r"(?:node|kube|container|DCGM)_\w+")


class Knowledge:
    """What is known about every metric: `rules` record, `families` are exposed under a job."""

    def __init__(self, rules: Iterable[Rule], job: str = JOB, added: Iterable[str] = ()) -> None:
        """`added` are labels that the scrape job gives to all its series."""
        self.hub = catalogue.hub_families()
        self.families: dict[str, Family] = {**catalogue.all_families(), **self.hub}
        self.job = job
        self.jobs = (job, HUB_JOB, FAST_JOB)
        self.target = TARGET_LABELS | frozenset(added)
        self.recorded: dict[str, list[Rule]] = {}
        for rule in rules:
            if not rule.is_alert:
                self.recorded.setdefault(rule.name, []).append(rule)
        self._results: dict[str, Series] = {}

    def metric(self, name: str, matchers: Iterable[Matcher] = ()) -> Series:
        """What is known about the series of a metric that these matchers select."""
        # Others expose `process_…` as well.
        if name in self.families and name.startswith(PREFIX):
            found = self._exposed(self.families[name])
        elif name in self.recorded:
            found = self._recorded(name, tuple(matchers))
        elif _OTHER_JOBS.fullmatch(name):
            found = Series(certain=frozenset({"job"}), fixed={"job": ""})
        else:
            found = UNKNOWN
        for matcher in matchers:
            found = _selected(found, matcher)
        return found

    def of(self, part: Part) -> Series:
        """What is known about the result of an expression."""
        if part.kind == "number":
            value = float(part.text)
            return Series(frozenset(), kind="scalar", bounds=Bounds(value, value))
        if part.kind == "selector":
            return self.metric(part.text, part.matchers)
        if part.kind == "string":
            return Series(frozenset(), kind="scalar")
        inside = [self.of(inner) for inner in part.inside]
        if part.kind == "aggregation":
            return aggregated(part, inside)
        return called(part, inside) if part.kind == "call" else combined(part, *inside)

    def has_job(self, name: str, matcher: Matcher) -> bool:
        """Whether a matcher of the label `job` may select a family."""
        pushed = self.families[name] in PUSHED
        return pushed or any(_may_match(matcher, {"job": job}) for job in self.jobs)

    def values(self, name: str, label: str) -> tuple[str, ...] | None:
        """Every value that a label of a metric can have; None: it is open."""
        if name in self.families:
            return self.families[name].closed.get(label)
        values = [rule.labels.get(label, "") for rule in self.recorded.get(name, ())]
        return tuple(dict.fromkeys(values)) if values and all(values) else None

    def _exposed(self, family: Family) -> Series:
        pushed = family in PUSHED
        is_open = family.open or pushed or family == catalogue.NODE_INFO
        job = {} if pushed else {"job": HUB_JOB if family.name in self.hub else self.job}
        return Series(
            labels=None if is_open else self.target | frozenset(family.labels),
            certain=family.certain | frozenset({"job", "instance"}),
            fixed=job,
            kind=family.kind,
            bounds=family.bounds,
        )

    def _recorded(self, name: str, matchers: tuple[Matcher, ...]) -> Series:
        found: Series | None = None
        for rule in self.recorded[name]:
            if all(_may_match(matcher, rule.labels) for matcher in matchers):
                own = self._result(rule)
                found = own if found is None else either(found, own)
        return found or UNKNOWN

    def _result(self, rule: Rule) -> Series:
        key = f"{rule.file}:{rule.first_line}:{rule.name}"
        if key not in self._results:
            self._results[key] = UNKNOWN  # what reads itself, by way of any other
            part = parse(rule.expression)
            found = UNKNOWN if part is None else self.of(part)
            fixed = {label: value for label, value in rule.labels.items() if value}
            self._results[key] = msgspec.structs.replace(
                found,
                labels=None if found.labels is None else found.labels | fixed.keys() | {"__name__"},
                certain=found.certain | fixed.keys(),
                fixed={**found.fixed, **fixed},
                kind="gauge" if found.kind == "scalar" else found.kind,
            )
        return self._results[key]


def _may_match(matcher: Matcher, labels: Mapping[str, str]) -> bool:
    """Whether a series with these labels, and others that are unknown, may be selected."""
    value = labels.get(matcher.label)
    if value is None:
        return True
    try:
        same = (
            bool(re.fullmatch(matcher.value, value))
            if "~" in matcher.operator
            else matcher.value == value
        )
    except re.error:
        return True
    return same == matcher.operator.startswith("=")


def _selected(found: Series, matcher: Matcher) -> Series:
    label = matcher.label
    if matcher.operator == "=" and not matcher.value:
        return found.without([label])
    if matcher.operator == "=":
        fixed = {**found.fixed, label: matcher.value}
        labels = None if found.labels is None else found.labels | {label}
        return msgspec.structs.replace(
            found, labels=labels, certain=found.certain | {label}, fixed=fixed
        )
    if matcher.operator == "!=" and not matcher.value:
        return msgspec.structs.replace(found, certain=found.certain | {label})
    if matcher.operator == "=~":  # for example of the job: the value is not known any more
        fixed = {name: value for name, value in found.fixed.items() if name != label}
        return msgspec.structs.replace(found, fixed=fixed)
    return found
