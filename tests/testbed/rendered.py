"""The shipped templates of notifications for given alerts, as amtool renders them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.annotated import render

RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"
STARTED, ENDED = "2026-11-21T02:00:00Z", "2026-11-21T02:30:00Z"
NODE_GROUP = {"cluster": "atlas", "instance": "gpu-node-1"}
PREFIXES = ("nodevitals", "nodevitals.zh", "nodevitals.owner", "nodevitals.zh.owner")
TITLES = tuple(f"{prefix}.subject" for prefix in PREFIXES)
BODIES = tuple(f"{prefix}.text" for prefix in PREFIXES)
CHATS = ("nodevitals.chat", "nodevitals.zh.chat")
ALL = (*TITLES, *BODIES, *CHATS, "nodevitals.title", "nodevitals.zh.title", "nodevitals.thread")


def alert(status: str = "firing", summary: str = "something", **labels: str) -> dict[str, Any]:
    """Return an alert with all annotations."""
    texts = {"summary": summary, "description": "jobs fail", "action": "repair it"}
    return {
        "status": status,
        "labels": {"alertname": "A", "severity": "critical", "fault": "mount_hung", **labels},
        "annotations": {**texts, "runbook_url": f"{RUNBOOKS}/MountHung.md"},
    }


def messages(
    folder: Path,
    templates: tuple[str, ...],
    alerts: list[dict[str, Any]],
    group: dict[str, str] | None = None,
) -> dict[str, list[str]]:
    """Return the lines of each template, rendered by amtool as Alertmanager renders it."""
    firing = any(one.get("status", "firing") == "firing" for one in alerts)
    times = {"startsAt": STARTED, "endsAt": ENDED, "generatorURL": "http://prometheus.example/x"}
    data = {
        "receiver": "r",
        "status": "firing" if firing else "resolved",
        "externalURL": "http://alertmanager.example",
        "groupLabels": group or {},
        "alerts": [{"status": "firing", **times, **one} for one in alerts],
    }
    uses = "\x1e".join(f'{{{{ template "{name}" . }}}}' for name in templates)
    texts = render(folder, uses, data).split("\x1e")
    return {name: text.split("\n") for name, text in zip(templates, texts, strict=True)}


def message(
    folder: Path, template: str, alerts: list[dict[str, Any]], group: dict[str, str] | None = None
) -> list[str]:
    """Return the lines of one template."""
    return messages(folder, (template,), alerts, group)[template]
