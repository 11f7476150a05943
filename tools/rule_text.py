"""The rule files made from the registry: a source in, the YAML of its rules out, in one style."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import yaml
from tools.registry import Alert, Fault, Group, Record, Registry, Source, Texts, Threshold

RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks/"
THRESHOLDS = "thresholds"
_HEAD = "# Generated from rules/faults/{name}.yaml (make generate)."
_THRESHOLDS_HEAD = """\
# Policy thresholds: change them here, or replace this file. Hardware limits are metrics of the
# exporter (…_expected, …_max). A missing threshold raises ThresholdMissing.
#
# HELP nodevitals:threshold A limit that rules compare with, by its name; its unit is below.
#
# Generated from rules/faults/ (make generate).
groups:
  - name: nodevitals-thresholds
    rules:
"""
_TEST_HEAD = """\
# Generated from rules/faults/ (make generate).
rule_files: [../agent.yaml]
evaluation_interval: 15s
# A group that reads others comes after them; without an order, promtool's differs each time.
group_eval_order:
  [nodevitals-agent-slow, nodevitals-agent]
tests:
  - name: "{alert}: without the thresholds file, one alert per threshold"
    interval: 15s
    input_series:
      - series: up{{job="nodevitals", cluster="c", instance="n1"}}
        values: 1x59
    alert_rule_test:
      - {{eval_time: 4m45s, alertname: {alert}, exp_alerts: []}}
      - eval_time: 10m
        alertname: {alert}
        exp_alerts:"""


def rule_files(registry: Registry) -> dict[str, str]:
    """Return all rule files of the registry by their names."""
    files = {
        f"{source.name}.yaml": "\n".join(_file(source, registry)) + "\n"
        for source in registry.sources
        if source.groups
    }
    blocks = ("\n".join(_threshold(one)) for one in registry.thresholds)
    return {**files, f"{THRESHOLDS}.yaml": _THRESHOLDS_HEAD + "\n\n".join(blocks) + "\n"}


def threshold_test(registry: Registry) -> str:
    """Return the promtool test of ThresholdMissing, which lists every threshold."""
    item = next(
        item for _, item in registry.items if isinstance(item, Alert) and item.each_threshold
    )
    lines = [_TEST_HEAD.format(alert=item.alert)]
    for threshold in registry.thresholds:
        lines.append(
            f"          - exp_labels: {_flow({**item.labels, 'threshold': threshold.name})}"
        )
        lines.append("            exp_annotations:")
        for key, value in annotations_of(item.alert, item).items():
            text = value.replace("{{ $labels.threshold }}", threshold.name)
            lines.append(f"              {key}: {json.dumps(text, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _file(source: Source, registry: Registry) -> Iterator[str]:
    yield from _comment(source.about, "")
    yield "#"
    yield _HEAD.format(name=source.name)
    yield "groups:"
    for number, group in enumerate(source.groups):
        yield from [""] * bool(number)
        yield from _group(group, source, registry)


def _group(group: Group, source: Source, registry: Registry) -> Iterator[str]:
    yield from _comment(group.note, "  ")
    yield f"  - name: {group.name}"
    if group.interval:
        yield f"    interval: {group.interval}"
    yield "    rules:"
    for before, item in zip([None, *group.items], group.items, strict=False):
        if before and isinstance(before, Alert) != isinstance(item, Alert):
            yield ""
        yield from _comment(item.note, "      ")
        if isinstance(item, Record) and item.help:
            yield f"      # HELP {item.record} {item.help}"
        if isinstance(item, Alert):
            yield from _alert(item.alert, _expression(item, registry), item)
        else:
            yield from _record(item, source)
    alerts = [item for item in group.items if isinstance(item, Fault) and item.alert]
    yield from [""] * bool(alerts)
    for item in alerts:
        assert item.alert
        yield from _comment(item.alert.note, "      ")
        yield from _alert(item.alert.name, _of_fault(item), item.alert)


def _record(item: Fault | Record, source: Source) -> Iterator[str]:
    name, labels = "nodevitals:fault", {}
    if isinstance(item, Record):
        name, labels = item.record, item.labels
    else:
        labels = {
            "fault": item.fault,
            "component": item.component or source.component,
            **({"action": item.action} if item.action else {}),
            "severity": item.severity,
            "scope": item.scope,
        }
    yield f"      - record: {name}"
    if labels:
        yield f"        labels: {_flow(labels)}"
    yield from _expr(item.expr)


def _of_fault(item: Fault) -> str:
    """The expression of the alert on a fault."""
    assert item.alert
    faults = item.alert.faults or [item.fault]
    operator = "=~" if len(faults) > 1 else "="
    return item.alert.expr or f'nodevitals:fault{{fault{operator}"{"|".join(faults)}"}}'


def _expression(item: Alert, registry: Registry) -> str:
    if not item.each_threshold:
        return item.expr
    terms = (item.each_threshold.replace("NAME", one.name) for one in registry.thresholds)
    return "\n  or ".join(terms) + "\n"


def _alert(name: str, expression: str, texts: Texts) -> Iterator[str]:
    yield f"      - alert: {name}"
    yield from _expr(expression)
    if texts.labels:
        yield f"        labels: {_flow(texts.labels)}"
    for key, value in (("for", texts.wait), ("keep_firing_for", texts.keep_firing_for)):
        if value:
            yield f"        {key}: {value}"
    yield "        annotations:"
    for key, value in annotations_of(name, texts).items():
        text = value if key == "runbook_url" else json.dumps(value, ensure_ascii=False)
        yield f"          {key}: {text}"


def annotations_of(name: str, texts: Texts) -> dict[str, str]:
    """The annotations of an alert, with the address of its runbook."""
    return {
        "summary": texts.summary,
        "description": texts.description,
        "action": texts.action,
        "runbook_url": f"{RUNBOOKS}{texts.runbook or name}.md",
    }


def _threshold(threshold: Threshold) -> Iterator[str]:
    yield from _comment(threshold.meaning, "      ")
    yield f"      # Unit: {threshold.unit}."
    yield "      - record: nodevitals:threshold"
    yield f"        labels: {{threshold: {threshold.name}}}"
    yield f"        expr: vector({threshold.value})"


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"{indent}# {line}".rstrip()


def _expr(text: str) -> Iterator[str]:
    if text.endswith("\n"):
        yield "        expr: |"
        yield from (f"          {line}".rstrip() for line in text.splitlines())
    else:
        yield f"        expr: {_scalar(text)}"


def _scalar(text: str) -> str:
    """A string as YAML, quoted where it must be."""
    plain = yaml.safe_load(f"key: {text}") if ": " not in text and text[:1] != "{" else None
    return text if plain == {"key": text} else json.dumps(text, ensure_ascii=False)


def _flow(labels: Mapping[str, str]) -> str:
    """Labels in braces."""
    return "{" + ", ".join(f"{key}: {_in_flow(value)}" for key, value in labels.items()) + "}"


def _in_flow(text: str) -> str:
    plain = not set(text) & set("{}[],:#'\"")
    same = plain and yaml.safe_load(f"key: {text}") == {"key": text}
    return text if same else json.dumps(text, ensure_ascii=False)
