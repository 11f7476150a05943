"""RepairManager's mail settings as an Alertmanager configuration."""

from __future__ import annotations

import re
from typing import Any

import yaml

from nodevitals.commands.rules.repair_manager.durations import prometheus_duration
from nodevitals.commands.rules.repair_manager.settings import Settings

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
