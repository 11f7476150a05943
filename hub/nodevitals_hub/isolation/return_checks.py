"""The checks of a node before it returns to service: after a fault of logins or connections, what
other nodes reach; its own; then one with good partners.

In: an isolation that was clean for long enough. Out: whether the node may return. These are
ordinary checks of the hub, each with its own page; a repeated try is the same check, also after a
restart.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nodevitals.checks.model import Check, CheckRequest, Kind, Requester
from nodevitals_hub.alerting.prometheus_queries import AskingError
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.checks import planning
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.isolation.faults import CONFIRMED
from nodevitals_hub.isolation.isolation_book import Book
from nodevitals_hub.isolation.observers import Observers
from nodevitals_hub.isolation.recovery import Verdict
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import ReturnSettings
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

TRY_SECONDS = 600.0
"""A check without a result is run again in the next period of this length."""
LOOK_SECONDS = 1.0
ASKED_PARTNERS = 16
REQUESTER = Requester(trigger="alert", name="return to service")


class ReturnChecks:
    """The checks of a hub's nodes before their return."""

    def __init__(self, hub: Hub, servers: Servers, book: Book) -> None:
        self._hub, self._servers, self._book = hub, servers, book
        self._observers = Observers(hub, servers, book)

    async def test(self, isolation: Isolation) -> Verdict:
        """Run the checks of a node, one after the other."""
        settings = self._hub.settings.out_of_service
        if settings is None:
            return Verdict(None, "out_of_service is not set any more")
        if settings.recovery is not None:
            reached = await self._observers.reached(isolation, settings.recovery)
            if not reached.ok:
                return reached
        number = int(time.time() // TRY_SECONDS)
        own = CheckRequest(kind="node", nodes=(isolation.node,), note=_note(isolation))
        verdict = await self._tested(isolation, own, f"node {number}")
        if not verdict.ok or not settings.back.pair_preset:
            return verdict
        try:
            pairs = await self._with_partners(isolation, settings.back, number)
        except (RefusedError, AskingError) as error:
            return Verdict(None, str(error), verdict.check_id)
        return await self._tested(isolation, pairs, f"pairs {number}")

    async def _with_partners(
        self, isolation: Isolation, settings: ReturnSettings, number: int
    ) -> CheckRequest:
        """A check of the node with idle nodes of its pool that are in service and have no
        confirmed fault. Raises RefusedError and AskingError.
        """
        preset = planning.presets_of(self._hub.settings).get(settings.pair_preset)
        if preset is None:
            raise RefusedError("invalid", f"no preset {settings.pair_preset} (back.pair_preset)")
        out = {other.node for other in self._book.open.values()} | await self._faulty()
        names = [
            member.name
            for member in self._hub.checks.members()
            if member.labels.get("pool", "") == isolation.pool
            and member.name != isolation.node
            and member.name not in out
        ]
        # Other partners at each try, but the same ones when a killed hub repeats a try.
        random.Random(f"{isolation.id} {number}").shuffle(names)  # no secret
        asked = names[:ASKED_PARTNERS]
        busy = await self._in_use(asked)
        partners = [name for name in asked if name not in busy][: settings.partners]
        if len(partners) < settings.partners:
            text = f"{settings.partners} idle nodes of its pool are needed as partners"
            raise RefusedError("busy", f"{len(partners)} found; {text}")
        kind: Kind = "pair" if preset.kind == "pair" and len(partners) == 1 else "matrix"
        return CheckRequest(
            kind=kind,
            nodes=(isolation.node, *partners),
            preset=settings.pair_preset,
            note=_note(isolation),
        )

    async def _faulty(self) -> set[str | None]:
        """The nodes with a confirmed fault of any kind."""
        server = self._servers.prometheus
        if server is None:
            return set()
        members = self._hub.members.by_name
        return {node_of(sample.labels, members) for sample in await server.query(CONFIRMED)}

    async def _in_use(self, names: Sequence[str]) -> set[str]:
        if not names:
            return set()
        return set(await self._hub.checks.in_use(CheckRequest(kind="matrix", nodes=tuple(names))))

    async def _tested(self, isolation: Isolation, request: CheckRequest, part: str) -> Verdict:
        try:
            key = f"return {isolation.id} {part}"
            check = await self._ended(await self._hub.checks.submit(request, REQUESTER, key))
        except RefusedError as error:
            return Verdict(None, f"{request.kind} check: {error}")
        return verdict_of(check, isolation.node)

    async def _ended(self, check: Check) -> Check:
        """Wait for a check to end; cancel the check if this wait is cancelled. Raises
        RefusedError.
        """
        try:
            while check.ended is None:
                await asyncio.sleep(LOOK_SECONDS)
                check = await self._hub.checks.check(check.id)
        except asyncio.CancelledError:
            asker = Requester(trigger="alert", name=REQUESTER.name, role="run")
            await asyncio.shield(self._cancel(check.id, asker))
            raise
        return check

    async def _cancel(self, identity: str, asker: Requester) -> None:
        with suppress(RefusedError):  # it has ended
            await self._hub.checks.cancel(identity, asker)


def verdict_of(check: Check, node: str) -> Verdict:
    """The result of a check for the node: a finding on a partner does not count."""
    verdict = check.verdict
    if verdict is None or check.phase != "done":
        return Verdict(None, f"{check.request.kind} check: {check.phase}", check.id)
    text = f"{check.request.kind} check: {verdict.message}"
    if verdict.outcome == "ok":
        return Verdict(True, text, check.id)
    if any(node in finding.subject.split(" - ") for finding in verdict.findings):
        return Verdict(False, text, check.id)
    return Verdict(None, text, check.id)


def _note(isolation: Isolation) -> str:
    return f"before the return to service, isolation {isolation.id}"
