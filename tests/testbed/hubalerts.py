"""A real Alertmanager that sends alerts to a hub, as docs/hub.md says."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import requests
import yaml

from testbed.node import wait_until
from testbed.servers import Alertmanager, ServerProcess, show_debian_files

SENT = re.compile(r'alertmanager_notifications_total\{integration="webhook"\} (\S+)')
FAILED = re.compile(r'alertmanager_notifications_failed_total\{integration="webhook"\} (\S+)')


def stamp(seconds: float) -> str:
    """A time as Alertmanager's API takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class HubAlertmanager(Alertmanager):
    """One receiver, the hub; alerts that fire are sent again every second."""

    def __init__(self, folder: Path, hub: str, token_file: Path) -> None:
        ServerProcess.__init__(self, folder, "alertmanager")
        show_debian_files()
        authorization = {"authorization": {"credentials_file": str(token_file)}}
        webhook = {"url": f"{hub}/api/v1/alerts", "max_alerts": 100, "http_config": authorization}
        route = {"receiver": "hub", "group_by": ["alertname"]}
        waits = {"group_wait": "100ms", "group_interval": "200ms", "repeat_interval": "1s"}
        config = {
            "route": {**route, **waits},
            "receivers": [{"name": "hub", "webhook_configs": [webhook]}],
        }
        (self.folder / "alertmanager.yaml").write_text(yaml.safe_dump(config))

    def post(self, *nodes: str, name: str = "NodeFabricSlow", resolved: bool = False) -> None:
        """Alerts of nodes, as Prometheus sends them."""
        now = time.time()
        ends = {"endsAt": stamp(now - 1) if resolved else stamp(now + 3600)}
        alerts: list[dict[str, Any]] = [
            {"labels": {"alertname": name, "instance": node}, "startsAt": stamp(now - 60), **ends}
            for node in nodes
        ]
        requests.post(f"{self.url}/api/v2/alerts", json=alerts, timeout=60).raise_for_status()

    def fingerprint(self, node: str) -> str:
        """The fingerprint of the alert of a node."""

        def found() -> str:
            listed = requests.get(f"{self.url}/api/v2/alerts", timeout=60).json()
            own = (one["fingerprint"] for one in listed if one["labels"].get("instance") == node)
            return next(own, "")

        return str(wait_until(found, 20, f"the alert of {node}"))

    def count(self, pattern: re.Pattern[str]) -> float:
        """Messages to the hub."""
        found = pattern.search(requests.get(f"{self.url}/metrics", timeout=60).text)
        return float(found[1]) if found else 0.0

    def wait_for_more(self, messages: int) -> None:
        """Wait until so many more messages were sent."""
        before = self.count(SENT)
        wait_until(lambda: self.count(SENT) >= before + messages, 30, "messages to the hub")
