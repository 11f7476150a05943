"""What people are notified of: a timeline of alerts, posted to a real Alertmanager as Prometheus
posts it, with the shipped routes, inhibitions, receivers and templates.

All waits are divided by a speed. Receivers keep their types and templates; only their addresses
are those of an inbox on loopback. Beside each stands a webhook, which names the group and alerts.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import requests

from testbed.alerting.clock import ScenarioClock
from testbed.alerting.routes import CompressedAlertmanager
from testbed.alerting.series import STEP_SECONDS
from testbed.alerting.timeline import Firing
from testbed.webhook import Inbox, Message

# --rules.alert.resend-delay, as the example configuration of Prometheus sets it.
RESEND_SECONDS = 180.0
# Prometheus sends a resolved alert again for this long.
RESOLVED_RETENTION_SECONDS = 900.0
# Prometheus' --rules.alert.for-grace-period: a shorter `for` starts again after a restart.
GRACE_SECONDS = 600.0


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
    resend_seconds: float = RESEND_SECONDS

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
        clock = ScenarioClock(speed, since)
        _post(timeline, seconds, alertmanager.url, senders or {}, clock)
        # What is on its way.
        time.sleep(0.3)
        return _collect(inbox, clock)


def _post(
    timeline: Sequence[Firing],
    seconds: float,
    url: str,
    senders: dict[str, Sender],
    clock: ScenarioClock,
) -> None:
    """Post the alerts, all that are due at one evaluation in one request."""
    posts: list[_Posts] = []
    for firing in timeline:
        sender = senders.get(firing.labels.get("cluster", ""), Sender())
        posts += [_Posts(firing, start, end, sender) for start, end in sender.lives(firing)]
    due = [(one.start, number) for number, one in enumerate(posts)]
    heapq.heapify(due)
    session = requests.Session()
    while due and due[0][0] <= seconds:
        now = due[0][0]
        clock.wait(now)
        batch = []
        while due and due[0][0] == now:
            number = heapq.heappop(due)[1]
            batch.append(posts[number].body(now, clock))
            following = posts[number].following(now)
            if following is not None:
                heapq.heappush(due, (following, number))
        session.post(f"{url}/api/v2/alerts", json=batch, timeout=60).raise_for_status()
    clock.wait(seconds)


class _Posts:
    """When and how one alert is posted, as rules.Alert.needsSending and sendAlerts of Prometheus
    decide it.
    """

    def __init__(self, firing: Firing, start: float, end: float | None, sender: Sender) -> None:
        self.start = start
        self._firing, self._end = firing, end
        self._ends_with_prometheus = any(away.start == end for away in sender.away)
        self._resend = sender.resend_seconds

    def body(self, now: float, clock: ScenarioClock) -> dict[str, Any]:
        """Return what is posted at a time of the scenario."""
        until = now + 4 * max(STEP_SECONDS, self._resend)
        if self._end is not None and now >= self._end:
            until = self._end
        return {
            "labels": self._firing.labels,
            "annotations": self._firing.annotations_at(now),
            "startsAt": clock.wall(self.start),
            "endsAt": clock.wall(until),
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


def _collect(inbox: Inbox, clock: ScenarioClock) -> list[Notification]:
    """Return the notifications; the k-th text of a group belongs to its k-th notification."""
    texts: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for message in inbox.messages:
        kind, _, receiver = message.path.partition("/")
        if kind == "sent" and "dedup_key" in message.body:
            event = message.body.get("payload", {})
            details = event.get("custom_details", {})
            text = "\n".join(str(value) for value in details.values())
            texts[receiver, message.body["dedup_key"]].append((event.get("summary", ""), text))
    for mail in inbox.mails:
        part = mail.get_body(("plain",))
        text = str(part.get_content()) if part is not None else ""
        texts[mail["X-Receiver"], mail["X-Group"]].append((mail["Subject"], text))
    webhooks = (one for one in inbox.messages if one.path.startswith("webhook/"))
    return [_notification(message, texts, clock) for message in webhooks]


def _notification(
    message: Message,
    texts: dict[tuple[str, str], list[tuple[str, str]]],
    clock: ScenarioClock,
) -> Notification:
    body, receiver = message.body, message.path.partition("/")[2]
    dedup = hashlib.sha256(body["groupKey"].encode()).hexdigest()
    group = "".join(f"{name}={value};" for name, value in sorted(body["groupLabels"].items()))
    waiting = texts.get((receiver, dedup)) or texts.get((receiver, group)) or [("", "")]
    title, text = waiting.pop(0)
    return Notification(
        at=clock.at(message.at),
        receiver=receiver,
        key=body["groupKey"],
        status=body["status"],
        group=body["groupLabels"],
        alerts=body["alerts"],
        title=title,
        text=text,
    )
