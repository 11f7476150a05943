"""How long the fault of each alert lasts, at the least, before the alert fires: the `for` of the
shipped rules, by the name of the alert. A table for the hub, a definition for Alertmanager's
template: both say when the fault began.

An alert that has two waits has the shorter one: the fault began by then in either case.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tools.chinese_words import between_marks
from tools.registry import Alert, Fault, Registry

from nodevitals.quantities import parse_duration

_TIME = '.Local.Format "2006-01-02 15:04:05 MST"'


def waits_json(registry: Registry) -> str:
    """Return the waits by alert, for the hub."""
    return json.dumps(waits(registry), indent=2) + "\n"


def waits(registry: Registry) -> dict[str, str]:
    """Return the `for` of each alert that has one."""
    found: dict[str, list[str]] = {}
    for _, item in registry.items:
        if isinstance(item, Fault) and item.alert:
            found.setdefault(item.alert.name, []).append(item.alert.wait)
        elif isinstance(item, Alert):
            found.setdefault(item.alert, []).append(item.wait)
    return {
        name: min(times, key=parse_duration) for name, times in sorted(found.items()) if all(times)
    }


def waits_template(registry: Registry, text: str) -> str:
    """Return the template with its generated definition."""
    return between_marks(text, "\n".join(_definition(waits(registry))) + "\n")


def _definition(table: dict[str, str]) -> Iterator[str]:
    """The time by which the fault of an alert began: templates can subtract constants only."""
    names: dict[str, list[str]] = {}
    for name, wait in table.items():
        names.setdefault(wait, []).append(f'"{name}"')
    yield '{{ define "nodevitals.began" -}}'
    opening = "{{ if"
    for wait, alerts in sorted(names.items(), key=lambda one: parse_duration(one[0])):
        nanoseconds = round(parse_duration(wait) * 1e9)
        began = f"{{{{ (.StartsAt.Add -{nanoseconds}){_TIME} }}}}"
        yield f"{opening} eq .Labels.alertname {' '.join(alerts)} }}}}{began} (for: {wait})"
        opening = "{{- else if"
    yield f"{{{{- else }}}}{{{{ .StartsAt{_TIME} }}}}{{{{ end }}}}"
    yield "{{- end }}"
