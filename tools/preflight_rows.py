"""The table of `nodevitals preflight`, made from `preflight` of the registry's entries.

In: `FAMILY{LABEL="VALUE", LABEL!="VALUE"} < 0.99 * FAMILY`, or a number on the right; `… and FAMILY
[== VALUE]` wants another series with the same labels. Out: rows of defects.json (defects.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

from tools.registry import Preflight, Record, Registry, RegistryError

_WHEN = re.compile(
    r"nodevitals_(?P<family>\w+)(?:\{(?P<matchers>[^}]*)\})?"
    r" (?P<operator>==|<|>) "
    r"(?:(?P<limit>[0-9.]+)|(?:(?P<factor>[0-9.]+) \* )?nodevitals_(?P<other>\w+))"
    r"(?: and nodevitals_(?P<beside>\w+)(?: == (?P<beside_value>[0-9.]+))?)?"
)
# In the order in which preflight reports them.
PARTS = (
    *("accelerators", "nvlink", "rdma", "network", "mounts"),
    *("node", "services", "disks", "scripts", "profile"),
)
_MATCHER = re.compile(r'(\w+)(=|!=)"([^"]*)"')


def preflight_json(registry: Registry) -> str:
    """Return the rows; raises RegistryError."""
    rows = [
        _row(f"{source.name}.yaml: {item.title}", preflight)
        for source, item in registry.items
        if not isinstance(item, Record)
        for preflight in item.preflight
    ]
    rows.sort(key=lambda row: PARTS.index(row["part"]))
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n"


def _row(where: str, preflight: Preflight) -> dict[str, Any]:
    match = _WHEN.fullmatch(preflight.when)
    if match is None:
        raise RegistryError(f"{where}: preflight cannot read: {preflight.when}")
    if preflight.part not in PARTS:
        raise RegistryError(f"{where}: part {preflight.part!r} is none of {', '.join(PARTS)}")
    matchers = _MATCHER.findall(match["matchers"] or "")
    numbers = {name: match[name] for name in ("limit", "factor", "beside_value") if match[name]}
    row = {
        "part": preflight.part,
        "family": match["family"],
        "where": {label: value for label, operator, value in matchers if operator == "="},
        "unless": {label: value for label, operator, value in matchers if operator == "!="},
        "operator": match["operator"],
        **{name: float(number) for name, number in numbers.items()},
        "other": match["other"] or "",
        "beside": match["beside"] or "",
        "subject": preflight.subject,
        "text": preflight.text,
        "remedy": preflight.remedy,
    }
    return {key: value for key, value in row.items() if value not in ("", {})}
