"""Names in the chart's values: its schema and the rules in; out comes the schema in which unknown
thresholds, alerts, rule files and receivers are errors.
"""

from __future__ import annotations

import re
from typing import Any

from helm.alertmanager import CONFIGURATIONS, ROOT, shipped
from nodevitals.commands.rules.alert_labels import label_sets, recorded_faults, severities
from nodevitals.commands.rules.expression import WORDS
from nodevitals.commands.rules.site.checks import MUTED_BY, names_in_use
from nodevitals.commands.rules.site.pack import Pack
from nodevitals.commands.rules.site.pools import pool_problem

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SEVERE, _MUTING = "#/definitions/alert", "#/definitions/mutingAlert"


def name_rules(schema: dict[str, Any], pack: Pack) -> None:
    """Name what there is, in place."""
    rules = schema["properties"]["rules"]["properties"]
    values = rules["values"]["properties"]
    values["job"]["pattern"] = "^[A-Za-z0-9_][A-Za-z0-9_./:-]*$"
    values["runbook_base"]["pattern"] = r"""^https?://[^\s"'\\{}]+$"""
    rules["files"] |= _closed(
        {name.removesuffix(".yaml"): {"type": "boolean"} for name in pack.files}
    )
    values["thresholds"] |= _closed({name: _number(name) for name in pack.thresholds})
    pool = values["pools"]["additionalProperties"]["properties"]["thresholds"]
    pool |= _closed(
        {name: _number(name) for name in pack.thresholds if not pool_problem(name, pack.rules)}
    )
    alert = values["alerts"].pop("additionalProperties")
    for labels in (values["labels"], alert["properties"]["labels"]):
        labels |= {"allOf": [{"$ref": "#/definitions/alertLabels"}]}
    muting = {name: one for name, one in alert["properties"].items() if name != "severity"}
    schema["definitions"] |= {
        "alertLabels": _labels(pack),
        "alert": alert,
        "mutingAlert": {**alert, "properties": muting},
    }
    values["alerts"] |= _closed(_alerts(pack))
    receivers = schema["properties"]["alertmanager"]["properties"]["receivers"]
    entries = receivers.pop("additionalProperties")
    receivers |= _closed(dict.fromkeys(_receivers(), entries))


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"properties": properties, "additionalProperties": False}


def _number(threshold: str) -> dict[str, Any]:
    share = {"maximum": 1} if "share" in threshold.split("_") else {}
    return {"type": "number", "minimum": 0, **share}


def _labels(pack: Pack) -> dict[str, Any]:
    """Labels of alerts: not those that the rules use, and no templates."""
    used = [name for name in names_in_use(pack) if _LABEL.fullmatch(name) and name not in WORDS]
    taken = sorted(name for name in used if not name.startswith("nodevitals_"))
    return {
        "type": "object",
        "propertyNames": {
            "pattern": "^([a-zA-Z]|_[a-zA-Z0-9]|_$)[a-zA-Z0-9_]*$",
            "not": {"enum": taken},
        },
        "additionalProperties": {"type": "string", "minLength": 1, "not": {"pattern": r"\{\{"}},
    }


def _alerts(pack: Pack) -> dict[str, Any]:
    """The names of alerts, and NAME/SEVERITY of rules that have one."""
    faults = recorded_faults(pack.rules)
    found: dict[str, str] = {}
    for rule in pack.alerts:
        known = severities(label_sets(rule, faults))
        kind = _MUTING if "none" in known or rule.name in MUTED_BY else _SEVERE
        found[rule.name] = kind
        if len(known) == 1:
            found[f"{rule.name}/{known[0]}"] = kind
    return {name: {"$ref": kind} for name, kind in sorted(found.items())}


def _receivers() -> list[str]:
    configs = [shipped(ROOT / file) for file in CONFIGURATIONS.values()]
    return list(dict.fromkeys(one["name"] for config in configs for one in config["receivers"]))
