"""When a fault passed each stage between the hardware and the message, in Unix time.

`Watched` is one injected fault: the sample that shows it, the alert that it raises. `Stages` asks
the agents, Prometheus and Alertmanager; times of samples and alerts are their own, so that only
`exposed` is as exact as it is asked often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
import requests

from testbed.node import Node
from testbed.replicas import samples
from testbed.servers import Alertmanager, Prometheus
from testbed.webhook import Receiver

STAGES = ("exposed", "scraped", "active", "sent", "notified")


class Watched(msgspec.Struct):
    """A fault of a node. `family` with `labels` is 1 or more once the agent has seen it."""

    alert: str
    instance: str
    family: str
    labels: dict[str, str]
    inject: Callable[[], object]
    alert_labels: dict[str, str]
    written: float = 0.0
    at: dict[str, float] = {}
    """Unix time of each stage that was reached."""

    def is_exposed(self, page: list[tuple[str, str, float]]) -> bool:
        """Return whether a page of the agent shows it."""
        pairs = [f'{name}="{value}"' for name, value in self.labels.items()]
        return any(
            name == self.family and value >= 1 and all(pair in text for pair in pairs)
            for name, text, value in page
        )

    def selector(self, name: str, labels: dict[str, str]) -> str:
        """Return the raw samples of the last minutes."""
        pairs = ",".join(f'{key}="{one}"' for key, one in labels.items())
        return f'{name}{{instance="{self.instance}",{pairs}}}[10m]'


class Stages:
    """Asks for the stages of faults until all are notified."""

    def __init__(
        self,
        agents: dict[str, Node],
        prometheus: Prometheus,
        alertmanager: Alertmanager,
        receiver: Receiver,
    ) -> None:
        self._agents = agents
        self._prometheus = prometheus
        self._alertmanager = alertmanager
        self._receiver = receiver

    def look(self, watched: Iterable[Watched]) -> None:
        """Note what the agents expose and what Alertmanager and the webhook have received."""
        pending = [one for one in watched if one.written and "notified" not in one.at]
        for instance in {one.instance for one in pending if "exposed" not in one.at}:
            page = samples(self._agents[instance].get().text)
            for one in pending:
                if one.instance == instance and one.is_exposed(page):
                    one.at.setdefault("exposed", time.time())
        if any("sent" not in one.at for one in pending):
            self._look_at_alertmanager(pending)
        for one in pending:
            self._look_at_webhook(one)

    def _look_at_alertmanager(self, pending: list[Watched]) -> None:
        url = f"{self._alertmanager.url}/api/v2/alerts"
        for alert in requests.get(url, timeout=60).json():
            for one in pending:
                if _is_of(one, alert["labels"]):
                    updated = datetime.fromisoformat(alert["updatedAt"]).timestamp()
                    one.at.setdefault("sent", updated)

    def _look_at_webhook(self, one: Watched) -> None:
        for moment, alert in self._receiver.alerts:
            unix = moment - time.monotonic() + time.time()
            if unix > one.written and alert["status"] == "firing" and _is_of(one, alert["labels"]):
                one.at.setdefault("notified", unix)
                return

    def finish(self, watched: Iterable[Watched]) -> None:
        """Note when Prometheus had the sample and when the alert was active."""
        for one in watched:
            expression = one.selector(one.family, one.labels)
            with suppress(ValueError):
                one.at["scraped"] = self._first(expression, one.written - 1, 1)
            more = {"alertname": one.alert, "alertstate": "firing"} | one.alert_labels
            with suppress(ValueError):
                one.at["active"] = self._first(one.selector("ALERTS", more), one.written, 1)

    def _first(self, expression: str, since: float, least: float) -> float:
        """Return the time of the first sample; raises ValueError where there is none."""
        return min(
            float(moment)
            for series in self._prometheus.query(expression)
            for moment, value in series["values"]
            if float(moment) >= since and float(value) >= least
        )


def _is_of(one: Watched, labels: dict[str, Any]) -> bool:
    wanted = {"alertname": one.alert, "instance": one.instance} | one.alert_labels
    return wanted.items() <= labels.items()
