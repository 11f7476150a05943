"""Checks that values fit the rules that they change. In: values and a pack. Out: every problem."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping

from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults, severities
from nodevitals.commands.rules.expression import tokens
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.pools import pool_problem
from nodevitals.commands.rules.site.values import AlertValues, Values, convert_values
from nodevitals.document import Problem, SettingsDocument
from nodevitals.quantities import shown

_JOB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:-]*")
_URL = re.compile(r"https?://[^\s\"'\\{}]+")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
# Routes, inhibitions and templates compare these.
_OWN_LABELS = ("alertname", "severity", "component", "fault", "action", "scope")
# While the first alert fires, the second mutes the alerts that the first replaces.
MUTED_BY = {"FleetIncident": "InsideFleetIncident"}


def parse_values(text: bytes, pack: Pack) -> Values:
    """The values of a file, for these rules. Raises DocumentError with every problem."""
    document = SettingsDocument(text)
    problems: list[Problem] = []
    values = convert_values(document, problems)
    if values is not None:
        problems += _problems(values, pack)
    error = document.error(problems)
    if error is not None:
        raise error
    assert values is not None
    return values


def _problems(values: Values, pack: Pack) -> Iterator[Problem]:
    if not _JOB.fullmatch(values.job):
        yield Problem(
            "job", f"{shown(values.job)} is not a job name: use letters, digits and _ . / : -"
        )
    if not _URL.fullmatch(values.runbook_base):
        yield Problem("runbook_base", f"{shown(values.runbook_base)} is not an http or https URL")
    yield from _label_problems("labels", values.labels, pack)
    yield from _threshold_problems("thresholds", values.thresholds, pack)
    for name, pool in values.pools.items():
        path = f"pools.{name}.thresholds"
        yield from _threshold_problems(path, pool.thresholds, pack)
        for threshold in pool.thresholds:
            problem = threshold in pack.thresholds and pool_problem(threshold, pack.rules)
            if problem:
                yield Problem(f"{path}.{threshold}", problem)
    for key, changes in values.alerts.items():
        yield from _alert_problems(key, changes, pack)
    yield from _mute_problems(values.alerts)


def _threshold_problems(
    path: str, thresholds: Mapping[str, float], pack: Pack
) -> Iterator[Problem]:
    for name, value in thresholds.items():
        if name not in pack.thresholds:
            yield Problem(f"{path}.{name}", _unknown("threshold", name, pack.thresholds))
        elif not math.isfinite(value) or value < 0:
            yield Problem(f"{path}.{name}", f"{value:g} is not a number of at least 0")
        elif "share" in name.split("_") and value > 1:
            yield Problem(f"{path}.{name}", f"{value:g} is over 1: a share is from 0 to 1")


def names_in_use(pack: Pack) -> set[str]:
    """The names that a site's label cannot have: all names in the rules."""
    used = {
        token.text.strip("\"'`")
        for rule in pack.rules
        for token in tokens(rule.expression)
        if token.kind in ("name", "string")
    }
    return used | set(_OWN_LABELS)


def _label_problems(path: str, labels: Mapping[str, str], pack: Pack) -> Iterator[Problem]:
    used = names_in_use(pack) if labels else set()
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            yield Problem(f"{path}.{name}", "not a Prometheus label name")
        elif name in used:
            yield Problem(f"{path}.{name}", "the rules use this label themselves: choose another")
        elif not value or "{{" in value:
            yield Problem(f"{path}.{name}", f"{shown(value)} is not a fixed text")


def _alert_problems(key: str, changes: AlertValues, pack: Pack) -> Iterator[Problem]:
    path = f"alerts.{key}"
    name, slash, severity = key.partition("/")
    rules = [rule for rule in pack.alerts if rule.name == name]
    if not rules:
        yield Problem(path, _unknown("alert", name, {rule.name for rule in pack.alerts}))
        return
    faults = recorded_faults(pack.rules)
    shipped = [severities(label_sets(rule, faults)) for rule in rules]
    if slash and [severity] not in shipped:
        shared = (
            "; one rule has them all" if any(severity in problem for problem in shipped) else ""
        )
        known = ", ".join(sorted({level for several in shipped for level in several}))
        yield Problem(path, f"no rule of {name} has only this severity (found: {known}{shared})")
    if changes.severity is not None and any("none" in several for several in shipped):
        yield Problem(
            f"{path}.severity",
            f"{name} has no receiver: it mutes others or shows that alerting works",
        )
    if changes.severity is not None and name in MUTED_BY:
        text = f"{name} stands for muted alerts and has the severity of what it stands for"
        yield Problem(f"{path}.severity", text)
    yield from _label_problems(f"{path}.labels", changes.labels, pack)


def _mute_problems(alerts: Mapping[str, AlertValues]) -> Iterator[Problem]:
    for name, mute in MUTED_BY.items():
        for key, changes in alerts.items():
            muted = mute not in alerts or alerts[mute].enabled
            if key.partition("/")[0] == name and not changes.enabled and muted:
                text = f"{mute} would go on muting the alerts of its nodes: disable it as well"
                yield Problem(f"alerts.{key}.enabled", text)


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"no {kind} of the rules has this name{meant}"
