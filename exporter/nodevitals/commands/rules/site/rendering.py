"""Rules for a site: the pack and the values in, the texts of all files out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import nodevitals
from nodevitals.commands.example import duration
from nodevitals.commands.rules.alert_labels import LabelSet, label_sets, recorded_faults
from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.rule_files import Rule, RuleFile
from nodevitals.commands.rules.sampled_rules import SampledRule, alert, rule_file
from nodevitals.commands.rules.site.edits import RuleEdit, edited
from nodevitals.commands.rules.site.names import with_names
from nodevitals.commands.rules.site.pack import THRESHOLD, Pack, read_text
from nodevitals.commands.rules.site.pools import NODE_DOMAINS, POOL_THRESHOLD, with_pools
from nodevitals.commands.rules.site.severity import changes_of, severity_edit
from nodevitals.commands.rules.site.tests import rendered_tests
from nodevitals.commands.rules.site.values import Values
from nodevitals.commands.terminal import FOUND_WRONG, CommandError

# The first line of a file; sampled rules that are printed have another one.
HEAD = "# Made by `nodevitals rules render` of nodevitals "
SAMPLED = "custom.yaml"
# Findings of `rules check` that a site's own rules may have.
_SAMPLED_SILENCES = ("annotation/missing", "test/missing")
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
    """The values with the shipped thresholds and waits, which the tests are about."""
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
    found: list[Finding] = []
    named = read_text(Path(file.path), with_names("\n".join(file.lines), values), found)
    if named is None:
        raise CommandError("\n".join(map(str, found)), FOUND_WRONG)
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
    found: dict[str, Any] = {"expr": edit.expression} if edit.expression else {}
    for key, wait in (("for", changes.wait), ("keep_firing_for", changes.keep_firing_for)):
        if wait is not None:
            found[key] = duration(wait) if wait else None
    if labels != rule.labels:
        found["labels"] = labels
    return found


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
    text = rule_file("custom", rules, "render")
    silences = [
        f"# nodevitals disable {name}: a rule of the site\n  " for name in _SAMPLED_SILENCES
    ]
    return text.replace("\n  - alert:", "\n  " + "".join(silences) + "- alert:")
