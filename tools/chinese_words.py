"""Chinese words of the registry: JSON for the hub, definitions for Alertmanager's template.

Both say the same: an operator may have either, or both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from tools.registry import Alert, Chinese, Record, Registry

BEGIN = "{{/* generated from rules/faults/ (make generate): begin */}}\n"
END = "{{/* generated: end */}}\n"
# Control characters and separators, and what a chat robot reads as markup.
_CLEAN = r'reReplaceAll "[\\pC\\pZ<>]+" " "'
_SHORT = r'{{ . | reReplaceAll "[\\pC\\pZ<>]+" " " | reReplaceAll "^(.{15}).{2,}$" "${1}…" }}'


# By whether the fault of an alert is a shipped one; texts of a site's own are its own.
_SHIPPED = {
    "named": (
        '{{ template "nodevitals.zh.object" . }}{{ template "nodevitals.zh.fault" .Labels.fault }}'
        "{{ else }}{{ or .Annotations.summary .Labels.fault .Labels.alertname | "
        + _CLEAN
        + ' | reReplaceAll "^(.{38}).{2,}$" "${1}…" }}{{ end }}'
    ),
    "todo": (
        '{{ if eq .Labels.alertname "FleetIncident" }}'
        '{{ template "nodevitals.zh.common" .Labels.domain }}'
        '{{ else }}{{ template "nodevitals.zh.action" .Labels.action }}{{ end }}'
        f'{{{{ else }}}}{{{{ or .Annotations.action "未说明" | {_CLEAN} | printf "%.700s" }}}}'
        "{{ end }}"
    ),
    "jobs": (
        '{{ template "nodevitals.zh.impact" . }}'
        f'{{{{ else }}}}{{{{ or .Annotations.description "未说明" | {_CLEAN} | printf "%.700s" }}}}'
        "{{ end }}"
    ),
    "english": (
        '{{ if eq .Status "firing" }}{{ with .Annotations.action }}\n'
        '  英文步骤：{{ reReplaceAll "[\\\\pC\\\\pZ]+" " " . | printf "%.700s" }}'
        "{{ end }}{{ end }}\n"
        "  英文摘要：{{ or .Annotations.summary .Labels.alertname | "
        'reReplaceAll "[\\\\pC\\\\pZ]+" " " | printf "%.300s" }}{{ end }}'
    ),
}


def chinese_json(registry: Registry) -> str:
    """Return the words of the hub: chinese.yaml, with `faults` and `impacts` by fault."""
    names = _named(registry)
    document: dict[str, Any] = {
        **msgspec.to_builtins(registry.words),
        "faults": {fault: chinese.name for fault, chinese in names.items()},
        "impacts": {fault: chinese.impact for fault, chinese in names.items() if chinese.impact},
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def chinese_template(registry: Registry, text: str) -> str:
    """Return the template with its generated definitions."""
    return between_marks(text, "\n".join(_definitions(registry)))


def between_marks(text: str, definitions: str) -> str:
    """Return the template with these definitions between the lines that mark generated ones."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + definitions + END + after


def _named(registry: Registry) -> dict[str, Chinese]:
    """All faults, and kinds of incidents, with their words."""
    named: dict[str, Chinese] = {}
    for _, item in registry.items:
        if isinstance(item, Record):
            continue
        fault = item.labels["fault"] if isinstance(item, Alert) and item.chinese else ""
        if item.chinese:
            named[fault or getattr(item, "fault", "")] = item.chinese
        if isinstance(item, Alert):
            named |= item.kinds
    return named


def _definitions(registry: Registry) -> Iterator[str]:
    words, names = registry.words, _named(registry)
    yield _define("severity", _choice(words.severities, words.other_severity))
    action = '{{- $action := or . "investigate" -}}'
    other = f'{{{{ {_CLEAN} $action | printf "%.40s" }}}}'
    yield _define("action", [action, *_choice(words.actions, other, "$action")])
    other = f'{{{{ {_CLEAN} . | printf "%.8s" }}}}'
    yield _define("domain.name", _choice(words.domains, other))
    *steps, last = _choice(words.first_steps, words.other_first_step)
    yield _define("common", [*steps, last + words.planned])
    faults = {fault: chinese.name for fault, chinese in names.items()}
    yield _define("fault", _choice(faults, _SHORT))
    yield _define("impact", _impacts(registry, names))
    known = "or " + " ".join(['(eq .Labels.alertname "FleetIncident")', f"({_is_one(faults)})"])
    yield from (_define(name, [f"{{{{ if {known} }}}}{text}"]) for name, text in _SHIPPED.items())


def _is_one(faults: Iterable[str]) -> str:
    return " ".join(["eq .Labels.fault", *(f'"{fault}"' for fault in faults)])


def _define(name: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f'{{{{ define "nodevitals.zh.{name}" -}}}}\n{body}\n{{{{- end }}}}\n'


def _choice(table: Mapping[str, str], other: str, variable: str = ".") -> Iterator[str]:
    """One branch per text; equal texts share one."""
    values: dict[str, list[str]] = {}
    for value, text in table.items():
        values.setdefault(text, []).append(value)
    for number, (text, same) in enumerate(values.items()):
        condition = " ".join(f'"{value}"' for value in same)
        opening = "{{- else if" if number else "{{ if"
        yield f"{opening} eq {variable} {condition} }}}}{text}"
    yield f"{{{{- else }}}}{other}{{{{ end }}}}"


def _impacts(registry: Registry, names: Mapping[str, Chinese]) -> Iterator[str]:
    """By the kind of an incident or the fault; else by severity, else by component."""
    words = registry.words
    yield "{{- $fault := or .Labels.kind .Labels.fault -}}"
    impacts = {fault: chinese.impact for fault, chinese in names.items() if chinese.impact}
    components = "\n".join(
        _choice(words.component_impacts, words.other_impact, ".Labels.component")
    )
    critical = f'{{{{ if eq .Labels.severity "critical" }}}}{words.critical_impact}'
    yield from _choice(impacts, f"{critical}\n{{{{- else }}}}{components}{{{{ end }}}}", "$fault")
