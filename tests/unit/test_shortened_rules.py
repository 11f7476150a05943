"""The shipped rules, for clocks that run faster."""

from __future__ import annotations

from pathlib import Path

import yaml

from testbed.waits import write_shortened_rules


def test_a_change_is_counted_once(tmp_path: Path) -> None:
    """An offset of one evaluation stays one, however short: a fault that lasts began once."""
    write_shortened_rules(tmp_path / "rules", 180.0, 180.0, 60.0)
    groups = yaml.safe_load((tmp_path / "rules/reliability.yaml").read_text())["groups"]
    began = [
        (group["interval"], rule["expr"])
        for group in groups
        for rule in group["rules"]
        if rule.get("labels", {}).get("change") == "fault_began"
    ]
    [(interval, expression)] = began
    assert interval == "1000ms"
    assert "[1h] offset 1000ms" in expression
