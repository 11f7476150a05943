"""Renders the rules for a site. In: the pack and the values. Out: the texts of all files.

Files are edited as text, so that comments, order and layout stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

import nodevitals
from nodevitals.commands.generated.example import duration
from nodevitals.commands.rules.alert_labels import LabelSet, label_sets, recorded_faults
from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.rule_files import Rule, RuleFile
from nodevitals.commands.rules.sampled_rules import SampledRule, alert, rule_file
from nodevitals.commands.rules.site.pack import THRESHOLD, Pack, read_text
from nodevitals.commands.rules.site.pools import NODE_DOMAINS, POOL_THRESHOLD, with_pools
from nodevitals.commands.rules.site.severity import changes_of, severity_edit
from nodevitals.commands.rules.site.tests import rendered_tests
from nodevitals.commands.rules.site.values import Values, with_names
from nodevitals.commands.terminal import FOUND_WRONG, CommandError


class RuleEdit(msgspec.Struct, frozen=True):
    """New values of keys of a rule, None to remove a key; or a rule that is not `kept`."""

    values: dict[str, Any] = {}
    kept: bool = True


def edited(file: RuleFile, edits: Iterable[tuple[Rule, RuleEdit]]) -> str:
    """The text of a file with these edits. Raises CommandError where a rule is not in block style:
    one line per key.
    """
    lines: list[str | None] = list(file.lines)
    inserted: dict[int, list[str]] = {}
    for rule, edit in edits:
        if not edit.kept:
            indent = " " * (_indent(file, rule) - 2)
            _replace(lines, (rule.first_line, rule.last_line), [f"{indent}# {rule.name} is off."])
            continue
        for key, value in edit.values.items():
            text = [] if value is None else _key(key, value, " " * _indent(file, rule))
            if key in rule.key_lines:
                _replace(lines, rule.key_lines[key], text)
            else:
                inserted.setdefault(rule.key_lines["expr"][1], []).extend(text)
    made = []
    for number, line in enumerate(lines, 1):
        made += [] if line is None else [line]
        made += inserted.get(number, [])
    return "\n".join(made)


def _indent(file: RuleFile, rule: Rule) -> int:
    """The column of the rule's keys."""
    starts = [first for first, _ in rule.key_lines.values()]
    if len(set(starts)) < len(starts):
        text = f"{file.path}:{rule.first_line}: write each key on a line of its own"
        raise CommandError(text, FOUND_WRONG)
    line = file.lines[rule.first_line - 1]
    return len(line) - len(line.lstrip(" -"))


def _replace(lines: list[str | None], span: tuple[int, int], text: list[str]) -> None:
    first, last = span
    lines[first - 1] = "\n".join(text) if text else None
    for number in range(first + 1, last + 1):
        lines[number - 1] = None


def _key(key: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, str) and "\n" in value:
        return [f"{indent}{key}: |", *(f"{indent}  {line}" for line in value.splitlines())]
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False
    )
    # PyYAML writes an end of document after a plain value.
    return [f"{indent}{key}: {text.partition(chr(10))[0]}"]


# The first line of a file; printed sampled rules have another one.
HEAD = "# Made by `nodevitals rules render` of nodevitals "
SAMPLED = "custom.yaml"
_POOL_GROUP = """
  # Of the nodes of a pool; other nodes are compared with the values above.
  - name: nodevitals-pool-thresholds
    rules:
"""
_POOL_RULE = f"""\
      - record: {POOL_THRESHOLD}
        labels: {{{{threshold: {{threshold}}}}}}
        expr: |
          group by (cluster, instance) ({NODE_DOMAINS}{{{{pool={{pool}}}}}}) * {{value}}
"""


def render(
    pack: Pack, values: Values, sampled: Sequence[SampledRule] = (), *, with_tests: bool
) -> dict[str, str]:
    """The files to write, by their path: the rule files, with tests also tests/ and runbooks/."""
    head = f"{HEAD}{nodevitals.__version__}; change the values file instead.\n"
    rules = _rule_files(pack, values)
    made = dict(rules)
    if sampled:
        made[SAMPLED] = _sampled(sampled, values)
    if with_tests:
        defaults = _rule_files(pack, _with_default_numbers(values), record_pools=False)
        changed = {name: text for name, text in defaults.items() if text != rules[name]}
        made |= {f"tests/{name}": text for name, text in rendered_tests(pack, values, changed)}
        made |= {f"tests/defaults/{name}": text for name, text in changed.items()}
    made = {name: head + text for name, text in made.items()}
    if with_tests:
        made |= {f"runbooks/{name}": text for name, text in pack.runbooks.items()}
    return made


def _with_default_numbers(values: Values) -> Values:
    """The values with the shipped thresholds and waits, which the tests need."""
    alerts = {
        name: msgspec.structs.replace(changes, wait=None, keep_firing_for=None)
        for name, changes in values.alerts.items()
    }
    return msgspec.structs.replace(values, thresholds={}, alerts=alerts)


def _rule_files(pack: Pack, values: Values, *, record_pools: bool = True) -> dict[str, str]:
    files = {name: _named(file, values) for name, file in pack.files.items()}
    faults = recorded_faults(rule for file in files.values() for rule in file.rules)
    made = {}
    for name, file in files.items():
        made[name] = edited(file, list(_edits(file, values, faults)))
        if record_pools and any(rule.name == THRESHOLD for rule in file.rules):
            made[name] = made[name].rstrip("\n") + "\n" + _pool_rules(values, pack)
    return made


def _named(file: RuleFile, values: Values) -> RuleFile:
    findings: list[Finding] = []
    named = read_text(Path(file.path), with_names("\n".join(file.lines), values), findings)
    if named is None:
        raise CommandError("\n".join(map(str, findings)), FOUND_WRONG)
    return named


def _edits(
    file: RuleFile, values: Values, faults: dict[str, list[LabelSet]]
) -> Iterator[tuple[Rule, RuleEdit]]:
    pooled = {name for pool in values.pools.values() for name in pool.thresholds}
    for rule in file.rules:
        changed: dict[str, Any] = {}
        threshold = rule.labels.get("threshold") if rule.name == THRESHOLD else None
        if threshold in values.thresholds:
            changed["expr"] = f"vector({values.thresholds[threshold]:.12g})"
        elif (new := with_pools(rule.expression, pooled)) != rule.expression:
            changed["expr"] = new
        if rule.is_alert:
            sets = label_sets(rule, faults)
            if not changes_of(values, rule.name, sets[0].get("severity", "")).enabled:
                yield rule, RuleEdit(kept=False)
                continue
            changed |= _alert_values(values, rule, sets)
        if changed:
            yield rule, RuleEdit(changed)


def _alert_values(values: Values, rule: Rule, sets: list[LabelSet]) -> dict[str, Any]:
    """The keys of an alert that change."""
    changes = changes_of(values, rule.name, sets[0].get("severity", ""))
    edit = severity_edit(values, rule, sets)
    labels = {**rule.labels, **edit.labels, **values.labels, **changes.labels}
    keys: dict[str, Any] = {"expr": edit.expression} if edit.expression else {}
    for key, wait in (("for", changes.wait), ("keep_firing_for", changes.keep_firing_for)):
        if wait is not None:
            keys[key] = duration(wait) if wait else None
    if labels != rule.labels:
        keys["labels"] = labels
    return keys


def _pool_rules(values: Values, pack: Pack) -> str:
    """The group that records the thresholds of pools; '' without pools."""
    rules = [
        _POOL_RULE.format(threshold=threshold, pool=_quoted(pool), value=f"{value:.12g}")
        for pool, chosen in values.pools.items()
        for threshold, value in chosen.thresholds.items()
    ]
    if not rules:
        return ""
    if all(rule.name != NODE_DOMAINS for rule in pack.rules):
        text = f"pools: no rule records {NODE_DOMAINS}, which has the pools of nodes"
        raise CommandError(text, FOUND_WRONG)
    return _POOL_GROUP + "".join(rules)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _sampled(sampled: Sequence[SampledRule], values: Values) -> str:
    rules = [alert(rule, values.labels) for rule in sampled]
    return rule_file("custom", rules, "render")
