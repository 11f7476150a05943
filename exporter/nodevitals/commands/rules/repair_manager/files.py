"""The files that are read and written, and the report about their keys."""

from __future__ import annotations

import msgspec

CONFIG, ALERTS = "config.yaml", "rule-alerts.yaml"
FILES = (CONFIG, "rule-config.yaml", "ecc-config.yaml", ALERTS)
RULES_OUT, ALERTMANAGER_OUT = "repair-manager.yaml", "alertmanager.yaml"


class ConvertedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a file: what it became, or else why it became nothing."""

    file: str
    path: str
    became: str = ""
    why: str = ""
    rule_lost: bool = False
    """Whether the key is the expression of a rule that became nothing."""
