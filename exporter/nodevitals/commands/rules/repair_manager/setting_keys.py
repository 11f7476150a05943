"""The report about settings: what each of them became, or why it became nothing."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from nodevitals.commands.rules.repair_manager.alertmanager import NEVER, PASSWORD_FILE
from nodevitals.commands.rules.repair_manager.durations import prometheus_duration
from nodevitals.commands.rules.repair_manager.files import (
    ALERTMANAGER_OUT,
    CONFIG,
    RULES_OUT,
    ConvertedKey,
)
from nodevitals.commands.rules.repair_manager.references import Missing
from nodevitals.commands.rules.repair_manager.settings import Setting, Settings

_MAIL = ("smtp_url", "login", "sender", "receiver")
_USED = (
    *_MAIL,
    "alerts_enabled",
    "reminders_enabled",
    "reminder_wait_time",
    "alert_job_owners",
    "cluster_name",
    "rule_wait_time",
)
# What the settings of RepairManager's own process are for, by name.
_NOT_NEEDED = {
    "ip": "not needed: Prometheus evaluates the rules itself",
    "port": "not needed: Prometheus evaluates the rules itself",
    "module_name": "not needed: every rule with a query_expression is converted",
    "class_name": "not needed: every rule with a query_expression is converted",
    "rules": "not needed: every rule with a query_expression is converted",
    "cache-ttl": "not needed: Alertmanager keeps no cache of mails",
    "enable_custom_registry_secrets": "not needed: it is about the images of RepairManager",
    "cordon_dry_run": "rules and Alertmanager cordon no node: set the dry run of what cordons",
}


def setting_keys(settings: Settings, referenced: AbstractSet[str]) -> list[ConvertedKey]:
    """The report about all settings; `referenced` are the paths that other files refer to."""
    keys = []
    for one in settings.all:
        used = settings.used[one.name]
        if isinstance(one.value, Missing) and one.name not in _NOT_NEEDED:
            became, why = "", str(one.value)
        elif one is not used and one.name in _USED:
            became, why = "", f"{used.path} of {used.file} is used instead"
            if one.value == used.value:
                became, why = _used(settings, one)
        elif one.name in _USED:
            became, why = _used(settings, one)
        else:
            became, why = _unused(one, referenced)
        keys.append(ConvertedKey(file=one.file, path=one.path, became=became, why=why))
    return keys


def _used(settings: Settings, one: Setting) -> tuple[str, str]:
    """What a known setting became, and otherwise why it became nothing."""
    name, value = one.name, one.value
    if name in _MAIL:
        return (f"{ALERTMANAGER_OUT}: mail", "") if settings.text(name) else ("", "empty")
    if name == "alerts_enabled":
        if value and not settings.text("receiver"):
            return "", "no receiver: no mail can be sent"
        return f"{ALERTMANAGER_OUT}: {'alerts are mailed' if value else 'no mail is sent'}", ""
    if name == "reminders_enabled":
        return f"{ALERTMANAGER_OUT}: repeat_interval{'' if value else f', {NEVER}: never'}", ""
    if name in ("reminder_wait_time", "rule_wait_time"):
        wait = prometheus_duration(value)
        if not wait:
            return "", f"{value!r} is not a duration"
        if name == "rule_wait_time":
            return f"{RULES_OUT}: the group's interval, {wait}", ""
        return f"{ALERTMANAGER_OUT}: repeat_interval, {wait}", ""
    if name == "alert_job_owners":
        mail = f"mail to owner{settings.mail_domain}" if value else "no mail to owners"
        return f"{ALERTMANAGER_OUT}: {mail}", ""
    files = f"{RULES_OUT}: label cluster; {ALERTMANAGER_OUT}: in the subject"
    return f"{files}; set it in prometheus.yml's external_labels too", ""


def _unused(one: Setting, referenced: AbstractSet[str]) -> tuple[str, str]:
    if one.name in _NOT_NEEDED:
        return "", _NOT_NEEDED[one.name]
    if "password" in one.name:
        return "", f"passwords are read from files: write it to {PASSWORD_FILE}"
    if one.file == CONFIG and any(
        one.path == path or one.path.startswith((f"{path}.", f"{path}[")) for path in referenced
    ):
        return "the value of references in other files", ""
    return "", "unknown key"
