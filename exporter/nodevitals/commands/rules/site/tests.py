"""promtool tests for the rules of a site.

Tests need the shipped thresholds and waits. They read the rendered rules; where a site changed such
a number in a file, they read a copy with the shipped numbers, tests/defaults/.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml

from nodevitals.commands.rules.check_alerts import SEVERITIES
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.severity import FAULT_SEVERITY, changes_of, severity_of
from nodevitals.commands.rules.site.values import Values, with_names

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Plain(str):
    """A scalar without quotes, written as it was read: promtool's `0x9`, ten samples of 0, is 9 in
    YAML.
    """


class _TestLoader(_Loader):  # type: ignore[misc] # chosen above
    """Reads plain scalars as text."""


class _TestDumper(_Dumper):  # type: ignore[misc] # chosen above
    """Writes what is used twice twice: expectations are changed one by one."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Always."""
        return True


def _read_scalar(_loader: Any, node: yaml.ScalarNode) -> str:
    return str(node.value) if node.style in ("'", '"', "|", ">") else _Plain(node.value)


def _write_scalar(dumper: Any, value: _Plain) -> yaml.ScalarNode:
    return yaml.ScalarNode(dumper.resolve(yaml.ScalarNode, str(value), (True, False)), str(value))


for _kind in ("str", "int", "float", "bool", "null", "timestamp"):
    _TestLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", _read_scalar)
_TestDumper.add_representer(_Plain, _write_scalar)


def rendered_tests(
    pack: Pack, values: Values, changed: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Names and texts of the tests; `changed` are the rule files that have a copy in defaults/."""
    for name, text in pack.tests.items():
        document = yaml.load(with_names(text, values), Loader=_TestLoader)  # noqa: S506 # a safe one
        document["rule_files"] = [_rule_file(file, changed) for file in document["rule_files"]]
        for test in document["tests"]:
            for case in test.get("alert_rule_test") or ():
                case["exp_alerts"] = _expected(case, values)
        yield name, yaml.dump(document, Dumper=_TestDumper, sort_keys=False, width=10**6)


def _rule_file(path: str, changed: Collection[str]) -> str:
    name = path.removeprefix("../")
    return f"defaults/{name}" if name in changed else path


def _expected(case: Mapping[str, Any], values: Values) -> list[dict[str, Any]]:
    """The alerts that are expected at the site. Where a fault's two severities become one, only the
    alert of the more severe one is expected.
    """
    name = case["alertname"]
    alerts: dict[str, dict[str, Any]] = {}
    for expected in sorted(case.get("exp_alerts") or (), key=_by_severity):
        labels = expected.get("exp_labels") or {}
        shipped = str(labels.get("severity", ""))
        changes = changes_of(values, name, shipped)
        if not changes.enabled:
            continue
        severity = severity_of(values, name, labels)
        own = {**labels, "severity": severity, **values.labels, **changes.labels}
        changed = {} if severity == shipped else {FAULT_SEVERITY: shipped}
        alert = {**expected, "exp_labels": {**own, **changed}}
        alerts.setdefault(str(sorted(own.items())), alert)
    return list(alerts.values())


def _by_severity(expected: Mapping[str, Any]) -> int:
    severity = str((expected.get("exp_labels") or {}).get("severity", ""))
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
