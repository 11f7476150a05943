"""What people are notified of: a timeline of alerts, posted to a real Alertmanager as Prometheus
posts it, with the shipped routes, inhibitions, receivers and templates.

All waits are divided by a speed. Receivers keep their types and templates; only their addresses
are those of an inbox on loopback. Beside each stands a webhook, which names the group and alerts.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import requests
import yaml

from testbed.alerting.inbox import Inbox, Request
from testbed.alerting.series import STEP_SECONDS
from testbed.alerting.timeline import Firing
from testbed.node import ROOT
from testbed.servers import ALWAYS, BINARIES, NEVER, ServerProcess, show_debian_files

SHIPPED = ROOT / "alertmanager/alertmanager.yaml"
BY_NIGHT: dict[str, list[Any]] = {**ALWAYS, "office-hours": NEVER}
# Prometheus sends a resolved alert again for this long.
RESOLVED_RETENTION_SECONDS = 900.0
# Prometheus' --rules.alert.for-grace-period: a shorter `for` starts again after a restart.
GRACE_SECONDS = 600.0
# Alertmanager's own defaults, where send_resolved is not configured.
SENDS_RESOLVED = {"email_configs": False}
_UNIT_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_GROUP = "{{ range .GroupLabels.SortedPairs }}{{ .Name }}={{ .Value }};{{ end }}"


class Notification(msgspec.Struct):
    """One notification of a receiver.

    `at` is in seconds of the scenario; `key` is the group's, the same for all its notifications;
    `alerts` are Alertmanager's, with `status`, `labels` and `annotations`; title and text are what
    the receiver's own templates made, empty where it is a webhook.
    """

    at: float
    receiver: str
    key: str
    status: str
    group: dict[str, str]
    alerts: list[dict[str, Any]]
    title: str = ""
    text: str = ""


class Away(msgspec.Struct, frozen=True):
    """Prometheus of a cluster does not run between two times (seconds)."""

    start: float
    end: float


class Sender(msgspec.Struct, frozen=True):
    """How the Prometheus of a cluster sends its alerts."""

    away: tuple[Away, ...] = ()
    resend_seconds: float = 60.0

    def lives(self, firing: Firing) -> list[tuple[float, float | None]]:
        """Return from when to when an alert fires, without the times that Prometheus is away.

        Afterwards its `for` begins again: Prometheus restores only those of ten minutes and more.
        """
        found: list[tuple[float, float | None]] = [(firing.start, firing.end)]
        for away in self.away:
            start, end = found.pop()
            if start >= away.end or (end is not None and end <= away.start):
                found.append((start, end))
                continue
            if start < away.start:
                found.append((start, away.start))
            again = away.end + (firing.hold_seconds if firing.hold_seconds < GRACE_SECONDS else 0)
            if end is None or end > again:
                found.append((again, end))
        return found


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


def notify(
    timeline: Sequence[Firing],
    seconds: float,
    folder: Path,
    speed: float = 60.0,
    hours: dict[str, list[Any]] | None = None,
    senders: dict[str, Sender] | None = None,
    since: float = 0.0,
) -> list[Notification]:
    """Return all notifications of a timeline from `since` to `seconds`, in order of their arrival.

    It takes (seconds - since) / speed. `senders` has the clusters whose Prometheus does not send as
    usual.
    """
    with Inbox() as inbox, CompressedAlertmanager(folder, inbox, speed, hours) as alertmanager:
        origin = time.monotonic() - since / speed
        _post(timeline, seconds, alertmanager.url, speed, senders or {}, origin)
        # What is on its way.
        time.sleep(0.3)
        return _collect(inbox, origin, speed)


def _post(
    timeline: Sequence[Firing],
    seconds: float,
    url: str,
    speed: float,
    senders: dict[str, Sender],
    origin: float,
) -> None:
    """Post the alerts, all that are due at one evaluation in one request, in real time."""
    started = datetime.now(timezone.utc) - timedelta(seconds=time.monotonic() - origin)
    posts: list[_Posts] = []
    for firing in timeline:
        sender = senders.get(firing.labels.get("cluster", ""), Sender())
        if firing.labels["alertname"] != "Watchdog":
            posts += [_Posts(firing, start, end, sender) for start, end in sender.lives(firing)]
    due = [(one.start, number) for number, one in enumerate(posts)]
    heapq.heapify(due)
    session = requests.Session()
    while due and due[0][0] <= seconds:
        now = due[0][0]
        batch = []
        while due and due[0][0] == now:
            number = heapq.heappop(due)[1]
            batch.append(posts[number].body(now, started, speed))
            following = posts[number].following(now)
            if following is not None:
                heapq.heappush(due, (following, number))
        time.sleep(max(0.0, origin + now / speed - time.monotonic()))
        session.post(f"{url}/api/v2/alerts", json=batch, timeout=30).raise_for_status()
    time.sleep(max(0.0, origin + seconds / speed - time.monotonic()))


class _Posts:
    """When and how one alert is posted, as rules.Alert.needsSending and sendAlerts of Prometheus
    decide it.
    """

    def __init__(self, firing: Firing, start: float, end: float | None, sender: Sender) -> None:
        self.start = start
        self._firing, self._end = firing, end
        self._ends_with_prometheus = any(away.start == end for away in sender.away)
        self._resend = sender.resend_seconds

    def body(self, now: float, started: datetime, speed: float) -> dict[str, Any]:
        """Return what is posted at a time of the scenario, whose beginning was `started`."""
        until = now + 4 * max(STEP_SECONDS, self._resend)
        if self._end is not None and now >= self._end:
            until = self._end

        def clock(at: float) -> str:
            return (started + timedelta(seconds=at / speed)).isoformat()

        return {
            "labels": self._firing.labels,
            "annotations": self._firing.annotations_at(now),
            "startsAt": clock(self.start),
            "endsAt": clock(until),
            "generatorURL": "http://prometheus.example.com/graph",
        }

    def following(self, now: float) -> float | None:
        """Return when the next post is due after one at `now`."""
        end = self._end
        # The first evaluation at which the last post is older than the delay.
        again = now + (self._resend // STEP_SECONDS + 1) * STEP_SECONDS
        if end is None or again < end:
            return again
        if now < end:
            return None if self._ends_with_prometheus else end
        return again if again <= end + RESOLVED_RETENTION_SECONDS else None


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


def _collect(inbox: Inbox, origin: float, speed: float) -> list[Notification]:
    """Return the notifications; the k-th text of a group belongs to its k-th notification."""
    texts: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for request in inbox.requests:
        kind, _, receiver = request.path.partition("/")
        if kind == "pagerduty":
            event = request.body.get("payload", {})
            details = event.get("custom_details", {})
            text = "\n".join(str(value) for value in details.values())
            texts[receiver, request.body["dedup_key"]].append((event.get("summary", ""), text))
    for mail in inbox.mails:
        key = mail.headers["X-Receiver"], mail.headers.get("X-Group", "")
        texts[key].append((mail.headers.get("Subject", ""), mail.text))
    webhooks = (one for one in inbox.requests if one.path.startswith("webhook/"))
    return [_notification(request, texts, origin, speed) for request in webhooks]


def _notification(
    request: Request,
    texts: dict[tuple[str, str], list[tuple[str, str]]],
    origin: float,
    speed: float,
) -> Notification:
    body, receiver = request.body, request.path.partition("/")[2]
    dedup = hashlib.sha256(body["groupKey"].encode()).hexdigest()
    group = "".join(f"{name}={value};" for name, value in sorted(body["groupLabels"].items()))
    waiting = texts.get((receiver, dedup)) or texts.get((receiver, group)) or [("", "")]
    title, text = waiting.pop(0)
    return Notification(
        at=(request.at - origin) * speed,
        receiver=receiver,
        key=body["groupKey"],
        status=body["status"],
        group=body["groupLabels"],
        alerts=body["alerts"],
        title=title,
        text=text,
    )
