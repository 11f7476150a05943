"""The tables of probes in the READMEs and in docs/probes.md: main metrics and alerts of each.

In: the probes, the rules, tools/main_of_probes.py. Out: Markdown; what the list names that does not
exist; which metrics an alert reads, also through the rules that record them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

from tools.main_of_probes import MAIN, Main

from nodevitals import probes
from nodevitals.commands.rules.alert_labels import FAULT
from nodevitals.commands.rules.expression import selectors
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.pack import Pack

MARK = "<!-- {}: made by make generate -->\n"
END = "<!-- end of {} -->\n"

# The probes whose whole section is generated.
OTHERS = "other probes"
# Metrics of a probe that is not in the list.
MOST = 7
# A pattern of every fault.
ANY = ".*"


def described(name: str) -> str:
    """What a probe checks: the first lines of its class."""
    return " ".join((probes.registered()[name].__doc__ or "").split())


def readme_list(pack: Pack, chinese: bool) -> str:
    """The list of a README: one line per probe, with a link to its section in docs/probes.md."""
    lines = []
    for name in probes.registered():
        sentence = described(name).partition(". ")[0].rstrip(".")
        text = main_of(name, pack).chinese if chinese else sentence
        lines.append(f"- [`{name}`](docs/probes.md#{name}): {text}\n")
    return "".join(lines)


def main_of(name: str, pack: Pack) -> Main:
    """What a reader should know of a probe first. Of one that is not in the list: its first
    metrics, the alerts that read any of its metrics, and the Chinese text of its class.
    """
    if name in MAIN:
        return MAIN[name]
    kind = probes.registered()[name]
    families = [family.name for family in kind.families]
    alerts = dict.fromkeys(rule.name for rule in pack.alerts)
    return Main(
        tuple(family.removeprefix("nodevitals_") for family in families[:MOST]),
        tuple(one for one in alerts if depends_on(one, pack.rules) & {*families}),
        kind.chinese,
    )


def probes_page(text: str, pack: Pack) -> str:
    """Return docs/probes.md with the generated parts: of a probe without a section by hand, the
    whole section, with the docstring of its module.
    """
    added = []
    for name, kind in probes.registered().items():
        if MARK.format(name) in text:
            text = replaced(text, name, probe_section(name, pack))
        else:
            docstring = inspect.cleandoc(sys.modules[kind.__module__].__doc__ or "")
            notes = docstring.partition("\n\n")[2]
            added.append(f"## {name}\n\n{probe_section(name, pack)}\n{notes}".rstrip() + "\n")
    return replaced(text, OTHERS, "\n".join(added))


def probe_section(name: str, pack: Pack) -> str:
    """The generated part of a probe's section in docs/probes.md."""
    families = {family.name: family for family in probes.registered()[name].families}
    lines = [described(name), "", "| main metric | is |", "|---|---|"]
    main = main_of(name, pack)
    for metric in main.metrics:
        link = _metric(name, metric)
        lines.append(f"| {link} | {families[f'nodevitals_{metric}'].help} |")
    if main.alerts:
        lines += ["", "| main alert | severity | component |", "|---|---|---|"]
    for alert in main.alerts:
        rules = [rule for rule in pack.alerts if rule.name == alert]
        labels = [_labels(rule, pack) for rule in rules]
        severity, component = (
            ", ".join(dict.fromkeys(one.get(key, "") for one in labels))
            for key in ("severity", "component")
        )
        lines.append(
            f"| [{alert}](../rules/runbooks/{_page(rules[0])}) | {severity} | {component} |"
        )
    return "\n".join(lines) + "\n"


def unknown(pack: Pack, wanted: Mapping[str, Main] = MAIN) -> list[str]:
    """What probes outside the list lack, and what the list names that does not exist."""
    kinds, alerts = probes.registered(), {rule.name for rule in pack.alerts}
    unnamed = {name for name in kinds.keys() - wanted.keys() if not kinds[name].chinese}
    found = [f"probe {name}: no `chinese` in its class" for name in sorted(unnamed)]
    found += [f"no probe {name}" for name in sorted(wanted.keys() - kinds.keys())]
    for name in sorted(kinds.keys() & wanted.keys()):
        families = {family.name for family in kinds[name].families}
        found += [
            f"metric nodevitals_{one} of {name}"
            for one in wanted[name].metrics
            if f"nodevitals_{one}" not in families
        ]
        found += [f"alert {one} of {name}" for one in wanted[name].alerts if one not in alerts]
    return found


def depends_on(alert: str, rules: Iterable[Rule]) -> set[str]:
    """The metrics that an alert reads, also those from which rules record what it reads. Those of
    the faults are not among them where it is on whatever fault there is, as FleetIncident is.
    """
    rules = list(rules)
    found: set[str] = set()
    waiting = [rule.expression for rule in rules if rule.is_alert and rule.name == alert]
    while waiting:
        for name, faults in _read(waiting.pop()):
            key = f"{name} {faults}"
            if key not in found and (name, faults) != (FAULT, ANY):
                found |= {key, name}
                waiting += [
                    rule.expression
                    for rule in rules
                    if rule.name == name
                    and re.fullmatch(faults, rule.labels.get("fault", "")) is not None
                ]
    return {name for name in found if " " not in name}


def _read(expression: str) -> Iterator[tuple[str, str]]:
    """Each series that an expression reads, with a pattern of its faults."""
    for selector in selectors(expression):
        patterns = [
            one.value
            for one in selector.matchers
            if one.label == "fault" and one.operator in ("=", "=~")
        ]
        yield selector.name, patterns[0] if patterns and selector.name == FAULT else ANY


def _labels(rule: Rule, pack: Pack) -> dict[str, str]:
    """An alert's labels, with those of the first fault that it reads."""
    for name, pattern in _read(rule.expression):
        for other in pack.rules:
            if name == other.name == FAULT and re.fullmatch(pattern, other.labels.get("fault", "")):
                return {**other.labels, **rule.labels}
    return rule.labels


def _page(rule: Rule) -> str:
    return rule.annotations["runbook_url"].rpartition("/")[2]


def _metric(probe: str, metric: str) -> str:
    """A metric with a link to its section in docs/METRICS.md, which is named after its probes."""
    owners = [
        name
        for name, kind in probes.registered().items()
        if f"nodevitals_{metric}" in {family.name for family in kind.families}
    ]
    assert probe in owners, metric
    return f"[`nodevitals_{metric}`](METRICS.md#exposed-by-{'-'.join(owners)})"


def replaced(text: str, name: str, part: str) -> str:
    """The text of a page with another part between the marks of that name."""
    before, begin, rest = text.partition(MARK.format(name))
    _, end, after = rest.partition(END.format(name))
    if not begin or not end:
        marks = f"{MARK.format(name).strip()} and {END.format(name).strip()}"
        raise SystemExit(f"a page lacks the lines {marks}")
    return f"{before}{begin}\n{part}\n{end}{after}"
