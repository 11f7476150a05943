"""Generates docs/alerts.md from rules, routes and runbooks.

Sections between markers are written by hand or by benchmarks and are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodevitals.commands.rules.alert_labels import LabelSet, label_sets, recorded_faults, severities
from nodevitals.commands.rules.expression import tokens
from nodevitals.commands.rules.routes import SOME, Delivery, deliveries
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.severity import severity_of
from nodevitals.commands.rules.site.values import Values

PROFILES = ("small", "large")
_SECTION = re.compile(r"^## Severity\s*\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_HEAD = """\
# Alerts

Made by `make generate` from `rules/`, `rules/runbooks/` and `alertmanager/alertmanager.yaml`.

Critical notifies the on-call: a running workload fails or will fail now, and a person can do
something now. Warning is a ticket, info is context, none mutes or proves other alerts. The profile
(`profile` in the values of `nodevitals rules render`) decides about single devices and nodes: in
a small cluster (the default, and the files as they lie) their critical faults notify the on-call,
in a large one they are tickets and automation acts on the node; incidents of the fleet always
notify the on-call. `for` is the time that the fault must last, in addition to what the expression
itself measures; `keep_firing_for` is the time that the alert outlasts the fault. Other words, such
as scope and fleet incident: [glossary](glossary.md).

## Use them

[rules/](../rules/) are plain Prometheus files, valid as they lie: load all of them. They are tested
on Prometheus 2.42; what 3.x reads otherwise is refused by a static check. What holds now is
`nodevitals:fault`, with `fault`, `component`, `action`, `severity` and the device; an alert is a
fault that lasted. Policy is in [rules/thresholds.yaml](../rules/thresholds.yaml). Every alert has
tests, firing and silent, and a [runbook](../rules/runbooks/), critical ones also
[in Chinese](../rules/runbooks/zh/).

A site changes no file: [a values file](../rules/examples/values.example.yaml) has its scrape job,
runbooks, labels, thresholds (also per pool), alerts that are off or have another severity or wait,
and the profile. `nodevitals rules render --values FILE --output FOLDER` writes the rules.

[alertmanager/](../alertmanager/) notifies the right person once: pages in three tiers, tickets to
teams, one page for a filer under 500 nodes; `minimal.yaml` has one receiver and the same
inhibitions. All are sent at any hour, until a site sets [hours of its own](#receivers). Texts are
English; a receiver whose templates begin with `nodevitals.zh.` gets Chinese ones, as does a channel
of the hub with `language: zh`. "Fault began by" reckons with the shipped wait, which it names: a
site with a shorter one reads the time of firing.
[alert-latency.md](alert-latency.md) has the time from each fault to its message,
[rules-cost.md](rules-cost.md) what the rules cost.
"""
_FILE = """\
The names here, and in the columns *small* and *large* below, are those of
`alertmanager/alertmanager.yaml`, the full configuration, which the chart has by default. In
`minimal.yaml`, which `nodevitals init` writes as `alertmanager.yml`, `operators` gets all critical
alerts and warnings, at any hour.
"""
_TABLE = "| receiver | after | only in | not in |\n|---|---|---|---|"
_HOURS = """
As shipped, `office-hours` is always and `maintenance` never. A site writes its own hours and its
time zone (`location`; without it, times are UTC) at the top of `alertmanager.yaml`, which has an
example of each, or in the chart's `alertmanager.timeIntervals`. The price: an alert that begins and
ends while its route is muted is never sent; one that still fires after that is sent then.
"""
# Sections between markers of these names are kept.
_TITLES = {
    "messages": "Messages",
    "scenarios": "Scenarios",
    "replay": "Replay of a public fault trace",
    "backtest": "Back-test",
}


def alerts_page(pack: Pack, alertmanager: Mapping[str, Any], before: str) -> str:
    """The page; `before` is the present one, for the sections to keep."""
    tables = [_receivers(pack, alertmanager), *_tables(pack, alertmanager)]
    messages, *others = (_kept(name, before) for name in _TITLES)
    return "\n".join([_HEAD, messages, *tables, *others])


def severity_section(page: str) -> str:
    """The text of a runbook's section Severity, on one line; '' without."""
    match = _SECTION.search(page)
    return " ".join(match["text"].split()) if match else ""


def runbook_of(rule: Rule) -> str:
    """The file name of an alert's runbook; '' without."""
    return rule.annotations.get("runbook_url", "").rpartition("/")[2]


def without_reason(pack: Pack) -> list[str]:
    """The alerts whose runbook has no section Severity."""
    return sorted(
        {
            rule.name
            for rule in pack.alerts
            if not severity_section(pack.runbooks.get(runbook_of(rule), ""))
        }
    )


def routed_labels(rule: Rule, sets: Iterable[LabelSet], profile: str) -> Iterator[LabelSet]:
    """The labels of an alert as Alertmanager sees them, once per severity and component."""
    values = Values(profile="large" if profile == "large" else "small")
    words = {token.text.strip('"') for token in tokens(rule.expression)}
    for labels in sets:
        severity = severity_of(values, rule.name, labels)
        on_node = labels.get("scope") != "fleet" or "instance" in words
        series = {"cluster": SOME, "instance": SOME if on_node else ""}
        series["owner"] = SOME if "owner" in words else ""
        yield {**series, **labels, "alertname": rule.name, "severity": severity}


def _kept(name: str, before: str) -> str:
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    _, separator, rest = before.partition(start)
    text = rest.partition(end)[0] if separator else ""
    return f"## {_TITLES[name]}\n\n{start}{text}{end}"


def _receivers(pack: Pack, alertmanager: Mapping[str, Any]) -> str:
    used: dict[Delivery, None] = {}
    faults = recorded_faults(pack.rules)
    for profile in PROFILES:
        for rule in pack.alerts:
            for labels in routed_labels(rule, label_sets(rule, faults), profile):
                used |= dict.fromkeys(deliveries(alertmanager, labels))
    lines = ["## Receivers\n", _FILE, _TABLE]
    notified = [delivery for delivery in used if delivery.receiver != "null"]
    for delivery in sorted(notified, key=lambda delivery: (delivery.receiver, delivery.group_wait)):
        active, muted = ", ".join(delivery.active), ", ".join(delivery.muted)
        lines.append(f"| {delivery.receiver} | {delivery.group_wait} | {active} | {muted} |")
    return "\n".join(lines) + "\n" + _HOURS


def _tables(pack: Pack, alertmanager: Mapping[str, Any]) -> Iterator[str]:
    faults = recorded_faults(pack.rules)
    tables: dict[str, dict[str, None]] = {}
    for name, file in pack.files.items():
        for rule in file.rules:
            if rule.is_alert:
                sets = label_sets(rule, faults)
                components = {labels.get("component", "") for labels in sets}
                title = components.pop() if len(components) == 1 else ""
                title = "" if "{" in title else title  # that of the series
                row = _row(rule, sets, alertmanager, pack)
                tables.setdefault(title or name.removesuffix(".yaml"), {})[row] = None
    for title in sorted(tables):
        lines = [f"## {title}\n", "| alert | small | large | `for` | `keep_firing_for` | why |"]
        lines += ["|---|---|---|---|---|---|", *sorted(tables[title])]
        yield "\n".join(lines) + "\n"


def _row(rule: Rule, sets: list[LabelSet], alertmanager: Mapping[str, Any], pack: Pack) -> str:
    small, large = (
        _notified(list(routed_labels(rule, sets, profile)), alertmanager) for profile in PROFILES
    )
    page = runbook_of(rule)
    why = severity_section(pack.runbooks.get(page, "")).replace("|", "\\|")
    cells = (
        f"[{rule.name}](../rules/runbooks/{page})",
        small,
        "as small" if large == small else large,
        rule.wait,
        rule.keep_firing_for,
        why,
    )
    return "| " + " | ".join(cells) + " |"


def _notified(labels: list[LabelSet], alertmanager: Mapping[str, Any]) -> str:
    """Each severity with its receivers: `critical: on-call, chat`."""
    notified = []
    for severity in severities(labels):
        names: dict[str, None] = {}
        for label_set in labels:
            if label_set["severity"] == severity:
                names |= dict.fromkeys(
                    delivery.receiver for delivery in deliveries(alertmanager, label_set)
                )
        listed = ", ".join(name for name in names if name != "null")
        notified.append(f"{severity or 'as its fault'}: {listed}" if listed else severity)
    return "; ".join(notified)
