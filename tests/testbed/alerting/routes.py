"""A real Alertmanager with the shipped routes, inhibitions, receivers and templates, compressed.

All waits are divided by a speed. Receivers keep their types and templates; only their addresses
are those of an inbox on loopback. Beside each stands a webhook, which names the group and alerts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from testbed.node import ROOT
from testbed.servers import NEVER
from testbed.shipped import Shipped, filled_in, send_to
from testbed.webhook import Inbox

BY_NIGHT: dict[str, list[Any]] = {"office-hours": NEVER}
# Alertmanager's own defaults, where send_resolved is not configured.
SENDS_RESOLVED = {"email_configs": False, "slack_configs": False}
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
# In a header of each mail, to find its notification.
_GROUP = "{{ range .GroupLabels.SortedPairs }}{{ .Name }}={{ .Value }};{{ end }}"


class CompressedAlertmanager(Shipped):
    """The shipped configuration with every wait divided by `speed`, and an inbox for all mail.

    `hours` replaces time intervals by name.
    """

    def __init__(
        self, folder: Path, inbox: Inbox, speed: float, hours: dict[str, list[Any]] | None = None
    ) -> None:
        super().__init__(folder, "alertmanager.yaml")
        config = filled_in("alertmanager.yaml")
        send_to(config, inbox.smarthost, f"{inbox.url}/sent")
        config["templates"] = [str(ROOT / "alertmanager/templates/*.tmpl")]
        for receiver in config["receivers"]:
            _watch(receiver, inbox)
        for interval in config["time_intervals"]:
            interval["time_intervals"] = (hours or {}).get(
                interval["name"], interval["time_intervals"]
            )
        _compress(config["route"], speed)
        text = yaml.safe_dump(config, allow_unicode=True, width=1000)
        (self.folder / "alertmanager.yaml").write_text(text)


def _watch(receiver: dict[str, Any], inbox: Inbox) -> None:
    """Add a webhook that is sent what a receiver is sent, and mark its mails."""
    kinds = [key for key in receiver if key != "name"]
    if not kinds:
        return
    resolved = any(
        config.get("send_resolved", SENDS_RESOLVED.get(kind, True))
        for kind in kinds
        for config in receiver[kind]
    )
    for mail in receiver.get("email_configs", []):
        mail["headers"] |= {"X-Receiver": receiver["name"], "X-Group": _GROUP}
    webhook = {"url": f"{inbox.url}/webhook/{receiver['name']}", "send_resolved": resolved}
    receiver["webhook_configs"] = [webhook]


def _compress(route: dict[str, Any], speed: float) -> None:
    """Divide the waits of a route and of those below it, in place."""
    for key in ("group_wait", "group_interval", "repeat_interval"):
        if key in route:
            parts = re.findall(r"(\d+)(ms|[dhms])", route[key])
            total = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
            route[key] = f"{max(1, round(total * 1000 / speed))}ms"
    for child in route.get("routes", ()):
        _compress(child, speed)
