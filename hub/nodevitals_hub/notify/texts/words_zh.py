"""Chinese words for faults, severities, actions and impacts, the same as in Alertmanager's Chinese
templates: both are generated from the registry of faults (rules/faults/), here words_zh.json.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class _Words(msgspec.Struct, frozen=True):
    severities: dict[str, str]
    other_severity: str
    actions: dict[str, str]
    domains: dict[str, str]
    first_steps: dict[str, str]
    other_first_step: str
    planned: str
    critical_impact: str
    component_impacts: dict[str, str]
    other_impact: str
    faults: dict[str, str]
    impacts: dict[str, str]


_WORDS = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=_Words)
SEVERITIES, OTHER_SEVERITY = _WORDS.severities, _WORDS.other_severity
ACTIONS, DOMAINS, FAULTS = _WORDS.actions, _WORDS.domains, _WORDS.faults
FIRST_STEPS, OTHER_FIRST_STEP = _WORDS.first_steps, _WORDS.other_first_step
"""First steps for a fault on many nodes, by what the nodes share."""
PLANNED = _WORDS.planned


def impact(fault: str, severity: str, component: str) -> str:
    """The impact of a fault on jobs: by its entry, else by severity, else by component."""
    if fault in _WORDS.impacts:
        return _WORDS.impacts[fault]
    if severity == "critical":
        return _WORDS.critical_impact
    return _WORDS.component_impacts.get(component, _WORDS.other_impact)
