"""RepairManager's mail settings as an Alertmanager configuration, and what each setting became.

The report has what each setting became, or why it became nothing.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from typing import Any

import yaml

from nodevitals.commands.rules.repair_manager.settings import (
    ALERTMANAGER_OUT,
    CONFIG,
    RULES_OUT,
    ConvertedKey,
    Missing,
    Setting,
    Settings,
    prometheus_duration,
)

PASSWORD_FILE = "/etc/alertmanager/secrets/smtp-password"  # noqa: S105 - a path
NEVER = "8760h"
_HEAD = "# Made by `nodevitals rules import`. More to choose from: alertmanager/alertmanager.yaml\n"
_OWNED = ['owner=~".+"']


def alertmanager_file(settings: Settings) -> str:
    """The configuration that sends the mail that RepairManager sent."""
    mailed = bool(settings.get("alerts_enabled", True)) and bool(settings.text("receiver"))
    wait = prometheus_duration(settings.get("reminder_wait_time")) or "4h"
    route: dict[str, Any] = {
        "receiver": "operators" if mailed else "null",
        "group_by": ["cluster", "instance", "alertname"],
        "group_wait": "30s",
        "group_interval": "5m",
        "repeat_interval": wait if settings.get("reminders_enabled", True) else NEVER,
    }
    receivers: list[dict[str, Any]] = [{"name": "null"}]
    if mailed:
        receivers.append(_mail("operators", settings.text("receiver"), settings.cluster))
    if mailed and settings.get("alert_job_owners"):
        route["routes"] = _owner_routes()
        owner = "{{ .GroupLabels.owner }}" + settings.mail_domain
        receivers.append(_mail("job-owner", owner, settings.cluster))
    document: dict[str, Any] = {"route": route, "receivers": receivers}
    if mailed:
        document = {"global": _smtp(settings), **document}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _owner_routes() -> list[dict[str, Any]]:
    """Alerts that have an owner go to the owner and to the operators."""
    return [
        {
            "matchers": list(_OWNED),
            "receiver": "job-owner",
            "continue": True,
            "group_by": ["cluster", "owner"],
        },
        {"matchers": list(_OWNED), "receiver": "operators"},
    ]


def _mail(name: str, to: str, cluster: str) -> dict[str, Any]:
    mail: dict[str, Any] = {"to": to, "send_resolved": True}
    if cluster:  # RepairManager's mails have its name in the title
        title = '{{ template "email.default.subject" . }}'
        mail["headers"] = {"Subject": f"[{_literal(cluster)}] {title}"}
    return {"name": name, "email_configs": [mail]}


def _literal(text: str) -> str:
    """Text that Alertmanager's templates print as it is."""
    return text.replace("{{", "{ {")


def _smtp(settings: Settings) -> dict[str, str]:
    host = settings.text("smtp_url").rpartition("//")[2] or "localhost"
    smtp = {
        "smtp_smarthost": host if re.search(r":\d+$", host) else f"{host}:587",
        "smtp_from": settings.text("sender") or "alertmanager@localhost",
    }
    if settings.text("login"):
        smtp["smtp_auth_username"] = settings.text("login")
        smtp["smtp_auth_password_file"] = PASSWORD_FILE
    return smtp


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
    for setting in settings.all:
        used = settings.used[setting.name]
        if isinstance(setting.value, Missing) and setting.name not in _NOT_NEEDED:
            became, why = "", str(setting.value)
        elif setting is not used and setting.name in _USED:
            became, why = "", f"{used.path} of {used.file} is used instead"
            if setting.value == used.value:
                became, why = _used(settings, setting)
        elif setting.name in _USED:
            became, why = _used(settings, setting)
        else:
            became, why = _unused(setting, referenced)
        keys.append(ConvertedKey(file=setting.file, path=setting.path, became=became, why=why))
    return keys


def _used(settings: Settings, setting: Setting) -> tuple[str, str]:
    """What a known setting was converted to, or why it was not."""
    name, value = setting.name, setting.value
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


def _unused(setting: Setting, referenced: AbstractSet[str]) -> tuple[str, str]:
    if setting.name in _NOT_NEEDED:
        return "", _NOT_NEEDED[setting.name]
    if "password" in setting.name:
        return "", f"passwords are read from files: write it to {PASSWORD_FILE}"
    if setting.file == CONFIG and any(
        setting.path == path or setting.path.startswith((f"{path}.", f"{path}["))
        for path in referenced
    ):
        return "the value of references in other files", ""
    return "", "unknown key"
