"""A real Alertmanager with the shipped routes, inhibitions, receivers and templates, compressed.

All waits are divided by a speed. Receivers keep their types and templates; only their addresses
are those of an inbox on loopback. Beside each stands a webhook, which names the group and alerts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from testbed.alerting.inbox import Inbox
from testbed.node import ROOT
from testbed.servers import ALWAYS, BINARIES, NEVER, ServerProcess, show_debian_files

SHIPPED = ROOT / "alertmanager/alertmanager.yaml"
BY_NIGHT: dict[str, list[Any]] = {**ALWAYS, "office-hours": NEVER}
# Alertmanager's own defaults, where send_resolved is not configured.
SENDS_RESOLVED = {"email_configs": False}
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
# In a header of each mail, to find its notification.
_GROUP = "{{ range .GroupLabels.SortedPairs }}{{ .Name }}={{ .Value }};{{ end }}"


class CompressedAlertmanager(ServerProcess):
    """The shipped configuration with every wait divided by `speed`, and an inbox for all mail.

    `hours` replaces the time intervals by name.
    """

    def __init__(
        self, folder: Path, inbox: Inbox, speed: float, hours: dict[str, list[Any]] | None = None
    ) -> None:
        super().__init__(folder, "alertmanager")
        show_debian_files()
        config = yaml.safe_load(SHIPPED.read_text())
        config["global"] = {
            "smtp_smarthost": inbox.smarthost,
            "smtp_from": "alertmanager@example.com",
            "smtp_require_tls": False,
        }
        config["templates"] = [str(SHIPPED.parent / "templates/*.tmpl")]
        for receiver in config["receivers"]:
            _redirect(receiver, inbox)
        for interval in config["time_intervals"]:
            interval["time_intervals"] = (hours or ALWAYS)[interval["name"]]
        _compress(config["route"], speed)
        (self.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def argv(self) -> list[str]:
        """Return the command line of a single Alertmanager, without a cluster."""
        return [
            str(BINARIES / "prometheus-alertmanager"),
            f"--config.file={self.folder / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]


def _redirect(receiver: dict[str, Any], inbox: Inbox) -> None:
    """Replace the addresses of a receiver, and add a webhook that is sent what it is sent."""
    name, resolved = receiver["name"], True
    kinds = [key for key in receiver if key != "name"]
    for kind in kinds:
        for config in receiver[kind]:
            resolved = config.get("send_resolved", SENDS_RESOLVED.get(kind, True))
            if kind == "pagerduty_configs":
                config.pop("routing_key_file", None)
                config |= {"routing_key": "key", "url": f"{inbox.url}/pagerduty/{name}"}
            elif kind == "email_configs":
                headers = {**config.get("headers", {}), "X-Receiver": name, "X-Group": _GROUP}
                config |= {"headers": headers, "html": ""}
            elif kind != "webhook_configs":
                raise ValueError(f"receiver {name}: the pager has no stand-in for {kind}")
    if kinds:
        webhook = {"url": f"{inbox.url}/webhook/{name}", "send_resolved": resolved}
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
