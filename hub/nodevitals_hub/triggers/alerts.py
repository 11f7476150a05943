"""Starts checks for alerts.

In: messages of Alertmanager's webhook. Out: checks and leases; for each alert its newest check, or
why there is none, in a file of the state directory. A message whose nodes cannot be tested gets a
normal answer, because Alertmanager would repeat a message that fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, Response, get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath
from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, Requester
from nodevitals.errors import Wording
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.settings.hub import AlertCheckSettings, HubSettings
from nodevitals_hub.store.state_file import StateFile
from nodevitals_hub.triggers.alert_plan import (
    Alert,
    Group,
    Grouping,
    Known,
    Message,
    decode,
    grouped,
    key_of,
    node_of,
    request_of,
)
from nodevitals_hub.web.limits import MAX_MESSAGE_BYTES

PATH = "/api/v1/alerts"
FILE_NAME = "alerts.json"
MAX_RECORDS = 10_000
FIRING_SECONDS = 86400.0
"""An alert that was not sent again for this time counts as resolved: its message was lost."""

log = logging.getLogger(__name__)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an alert. Times are seconds since the epoch."""

    alertname: str
    node: str = ""
    firing: bool = True
    seen: float
    check: str = ""
    """The newest check."""
    checked: float = 0.0
    reason: str = ""
    """Why the last message started no check."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a message: checks, and the number of firing alerts without one by reason."""

    checks: tuple[str, ...]
    refused: dict[str, int]


AskLease = Callable[[str, Iterable[str]], Awaitable[object]]


class Alerts:
    """All alerts of this hub."""

    def __init__(
        self,
        settings: Callable[[], HubSettings],
        checks: Coordinator,
        lease: AskLease,
    ) -> None:
        """Read the file; a damaged file counts as empty."""
        self._settings, self._checks = settings, checks
        self._lease = lease
        self._file = StateFile(Path(settings().state_directory, FILE_NAME), dict[str, Record])
        self._records = self._file.read() or {}
        self._one_at_a_time = asyncio.Lock()

    async def take(self, message: Message, now: float | None = None) -> Answer:
        """Start the checks for a message. Raises RefusedError only where Alertmanager must send it
        again: the store fails, or the queue is full.
        """
        drills = [alert for alert in message.alerts if alert.is_drill]
        real = tuple(alert for alert in message.alerts if not alert.is_drill)
        message = replace(message, alerts=real)
        async with self._one_at_a_time:  # several Alertmanagers may send the same message
            now = time.time() if now is None else now
            members = {member.name: member for member in self._checks.members()}
            grouping = grouped(message.alerts, self._rules(), self._known(message, members, now))
            try:
                refusals = await self._start(grouping, message.alerts, members, now)
            finally:
                await self._file.write(self._records)
            await self._ask_leases(message.alerts, members)
        if message.truncated > 0:
            refusals["left out by Alertmanager (max_alerts)"] += message.truncated
        if drills:
            refusals["a drill: nothing acts on it"] += len(_firing(drills))
        for reason, count in refusals.items():
            log.warning("alerts: %d without a check: %s", count, reason)
        started = {self._records[alert.fingerprint].check for alert in _firing(message.alerts)}
        return Answer(checks=tuple(sorted(started - {""})), refused=dict(refusals))

    def newest(self, fingerprint: str) -> str:
        """The newest check of an alert. Raises RefusedError with the reason why there is none."""
        record = self._records.get(fingerprint)
        if record is None:
            text = Wording("this hub has not received that alert")
            raise RefusedError("not_found", text)
        if record.check:
            return record.check
        of = f" of {record.node}" if record.node else ""
        text = Wording(
            "{name}: no check: {reason}",
            name=f"{record.alertname}{of}",
            reason=record.reason or Wording("it is resolved"),
        )
        raise RefusedError("not_found", text)

    def alerting(self, now: float | None = None) -> set[str]:
        """The nodes that have an alert."""
        now = time.time() if now is None else now
        return {
            record.node
            for record in self._records.values()
            # A record from the future was made before the clock was set back.
            if record.firing and abs(now - record.seen) < FIRING_SECONDS
        }

    def _rules(self) -> dict[str, AlertCheckSettings]:
        return {rule.alertname: rule for rule in self._settings().alerts}

    def _known(self, message: Message, members: Mapping[str, Member], now: float) -> Known:
        """Record the alerts; return the known alerts and checks of the nodes."""
        for alert in message.alerts:
            before = self._records.pop(alert.fingerprint, None)
            node = node_of(alert.labels, members) or ""
            record = before or Record(alertname=alert.name, seen=now)
            firing = alert.status == "firing"
            record = replace(record, node=node, firing=firing, seen=now)
            self._records[alert.fingerprint] = record
        # Above the limit, the oldest records are removed, but none of this message.
        most = max(MAX_RECORDS, len(message.alerts))
        for old in list(self._records)[: max(0, len(self._records) - most)]:
            del self._records[old]
        rules, records = self._rules(), self._records.values()
        return Known(
            members,
            self.alerting(now),
            {
                (record.alertname, record.node): record.check
                for record in sorted(records, key=lambda record: record.checked)
                if record.check
                and record.alertname in rules
                and 0 <= now - record.checked < rules[record.alertname].at_most_every
            },
        )

    async def _start(
        self, grouping: Grouping, alerts: Sequence[Alert], members: Mapping[str, Member], now: float
    ) -> Counter[str]:
        names = {name for group in grouping.groups for name in (*group.suspects, *group.partners)}
        asked = CheckRequest(kind="matrix", nodes=tuple(sorted(names)))
        in_use = set(await self._checks.in_use(asked)) if names else set()
        checks, reasons = dict(grouping.checks), dict(grouping.reasons)
        unavailable = None
        for group in grouping.groups:
            own = {
                alert.fingerprint: node_of(alert.labels, members)
                for alert in _firing(alerts)
                if alert.name == group.rule.alertname
                and node_of(alert.labels, members) in group.suspects
            }
            identity, reason = "", ""
            try:
                identity = await self._submit(group, in_use, now)
            except ValueError as error:
                reason = str(error)
            except RefusedError as error:
                reason = str(error)
                if error.kind in ("unavailable", "busy"):
                    # Alertmanager sends a message again after a 503, not after a 429.
                    unavailable = RefusedError("unavailable", reason)
            for fingerprint, node in own.items():
                if identity and node not in in_use:
                    checks[fingerprint] = identity
                    self._note(fingerprint, check=identity, checked=now, reason="")
                else:
                    reasons[fingerprint] = reason or "in use by jobs"
        for fingerprint, identity in grouping.checks.items():
            self._note(fingerprint, check=identity, reason="")
        for fingerprint, reason in reasons.items():
            self._note(fingerprint, reason=reason)
        if unavailable is not None:
            raise unavailable
        return Counter(reasons.values())

    def _note(self, fingerprint: str, **changes: Any) -> None:
        self._records[fingerprint] = replace(self._records[fingerprint], **changes)

    async def _submit(self, group: Group, in_use: set[str], now: float) -> str:
        """Start the check of a group. Raises ValueError and RefusedError."""
        preset = planning.presets_of(self._settings()).get(group.rule.preset)
        if preset is None:
            raise ValueError(f"no preset {group.rule.preset}")
        request = request_of(group, in_use, preset.kind)
        requester = Requester(trigger="alert", name=group.rule.alertname)
        return (await self._checks.submit(request, requester, key_of(group, now))).id

    async def _ask_leases(self, alerts: Sequence[Alert], members: Mapping[str, Member]) -> None:
        nodes: dict[str, set[str]] = {}
        for alert in _firing(alerts):
            if node := node_of(alert.labels, members):
                nodes.setdefault(alert.name, set()).add(node)
        for name, own in nodes.items():
            try:
                await self._lease(name, own)
            except RefusedError as error:
                log.warning("alerts: %s: no lease: %s", name, error)


def _firing(alerts: Sequence[Alert]) -> list[Alert]:
    return [alert for alert in alerts if alert.status == "firing"]


def handlers(alerts: Alerts) -> list[Any]:
    """The webhook, and the address of an alert's newest check."""

    @post(PATH, status_code=200, request_max_body_size=MAX_MESSAGE_BYTES)
    async def take(request: Request[Any, Any, Any]) -> dict[str, Any]:
        """Start the checks that a message of Alertmanager (webhook, version 4) asks for."""
        try:
            message = decode(await request.body())
        except ValueError as error:
            raise ClientException(str(error)) from None
        answer = await alerts.take(message)
        return {"checks": answer.checks, "refused": answer.refused}

    @get("/alerts/{fingerprint:str}", include_in_schema=False)
    async def newest(fingerprint: FromPath[str]) -> Response[str]:
        """The newest check of an alert."""
        place = {"location": f"/checks/{alerts.newest(fingerprint)}"}
        return Response("", status_code=303, media_type="text/html", headers=place)

    return [take, newest]
