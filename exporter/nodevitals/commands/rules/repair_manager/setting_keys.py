"""The report about settings: what each of them became, or why it became nothing."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from nodevitals.commands.rules.repair_manager.alertmanager import NEVER, PASSWORD_FILE
from nodevitals.commands.rules.repair_manager.durations import prometheus_duration
from nodevitals.commands.rules.repair_manager.files import (
    ALERTMANAGER_OUT,
    CONFIG,
    INTERVAL,
    RULES_OUT,
    ConvertedKey,
)
from nodevitals.commands.rules.repair_manager.settings import Settings

_MAIL = ("smtp_url", "login", "sender", "receiver")
_USED = (
    *_MAIL,
    "alerts_enabled",
    "reminders_enabled",
    "reminder_wait_time",
    "alert_job_owners",
    "cluster_name",
)


def interval_keys(settings: Settings) -> list[ConvertedKey]:
    """The report about rule-config.yaml."""
    interval = settings.evaluation_interval
    became = f"{RULES_OUT}: the group's interval, {interval}"
    why = "not needed: every rule of the other files is converted"
    return [
        ConvertedKey(file=INTERVAL, path=path, became=became)
        if name == "rule_wait_time" and interval
        else ConvertedKey(file=INTERVAL, path=path, why=why)
        for path, name, _ in settings.leaves
    ]


def config_keys(settings: Settings, referenced: AbstractSet[str]) -> list[ConvertedKey]:
    """The report about config.yaml; `referenced` are the paths that other files refer to."""
    keys = []
    for path, name, value in settings.leaves:
        if path != settings.path_of[name] and name in _USED:
            became, why = "", f"{settings.path_of[name]} is used instead"
        elif name in _USED:
            became, why = _used(settings, name, value)
        else:
            became, why = _unused(path, name, referenced)
        keys.append(ConvertedKey(file=CONFIG, path=path, became=became, why=why))
    return keys


def _used(settings: Settings, name: str, value: Any) -> tuple[str, str]:
    """What a known setting became, and otherwise why it became nothing."""
    if name in _MAIL:
        return (f"{ALERTMANAGER_OUT}: mail", "") if value else ("", "empty")
    if name == "alerts_enabled":
        return f"{ALERTMANAGER_OUT}: {'alerts are mailed' if value else 'no mail is sent'}", ""
    if name == "reminders_enabled":
        return f"{ALERTMANAGER_OUT}: repeat_interval{'' if value else f', {NEVER}: never'}", ""
    if name == "reminder_wait_time":
        wait = prometheus_duration(value)
        if not wait:
            return "", f"{value!r} is not a duration"
        return f"{ALERTMANAGER_OUT}: repeat_interval, {wait}", ""
    if name == "alert_job_owners":
        mail = f"mail to owner{settings.mail_domain}" if value else "no mail to owners"
        return f"{ALERTMANAGER_OUT}: {mail}", ""
    return f"{RULES_OUT}: label cluster; set it in prometheus.yml's external_labels too", ""


def _unused(path: str, name: str, referenced: AbstractSet[str]) -> tuple[str, str]:
    if name == "cordon_dry_run":
        return "", "rules and Alertmanager cordon no node"
    if "password" in name:
        return "", f"passwords are read from files: write it to {PASSWORD_FILE}"
    if any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in referenced):
        return "the value of references in other files", ""
    return "", "unknown key"
