"""The checks of a hub: queue, reservations, limits, recovery after a restart.

In: requests. Out: checks with a verdict, exactly one each. A node has one check at a time: the
nodes of running checks are reserved, and a waiting check is not overtaken on any of its nodes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
import time
from collections.abc import AsyncIterator, Sequence
from typing import Optional

from msgspec.structs import replace

from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    Kind,
    Requester,
    RunResult,
    Verdict,
)
from nodevitals.hub import planning
from nodevitals.hub.changes import Changes
from nodevitals.hub.checks import Checks, Member, RefusedError
from nodevitals.hub.execution import RETRY_SECONDS, Execution
from nodevitals.hub.members import Members
from nodevitals.hub.runners import Runner
from nodevitals.hub.settings import HubSettings
from nodevitals.hub.store import Store, StoreError, Unfinished

PRUNE_SECONDS = 600.0
MAX_LISTED = 1000
_LETTERS = string.ascii_lowercase + string.digits

log = logging.getLogger(__name__)


def new_identity() -> str:
    """A name for a check: its time, and letters that cannot be guessed."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{stamp}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


class Coordinator(Checks):
    """All checks of this hub."""

    def __init__(
        self, settings: HubSettings, store: Store, members: Members, runner: Runner
    ) -> None:
        self.settings = settings
        self._store, self._members, self._runner = store, members, runner
        self._changes = Changes()
        self._slots = asyncio.Semaphore(settings.limits.pairs)
        self._queue: dict[str, Unfinished] = {}
        self._running: dict[str, Check] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._canceled: dict[str, str] = {}

    async def start(self) -> None:
        """Continue the checks that have not ended. Raises StoreError."""
        for unfinished in await self._store.unfinished():
            if unfinished.check.phase == "running":
                self._start(unfinished)
            else:
                self._queue[unfinished.check.id] = unfinished
        self._start_what_may()

    async def run(self) -> None:
        """Remove what is old, for ever."""
        while True:
            limits = self.settings.limits
            try:
                await self._store.prune(time.time() - limits.keep, limits.keep_checks)
            except StoreError as error:
                log.error("%s", error)
            await asyncio.sleep(PRUNE_SECONDS)

    def members(self) -> Sequence[Member]:
        return sorted(self._members.by_name.values(), key=lambda member: member.name)

    async def estimate(self, request: CheckRequest, requester: Requester) -> Check:
        if request.force and requester.role != "act":
            raise RefusedError("forbidden", "force: needs the role act")
        resolved = planning.resolve(request, self._members.by_name, self.settings)
        cost = planning.cost(resolved)
        most = self.settings.limits.node_hours
        if cost.node_seconds > most * 3600:
            hours = cost.node_seconds / 3600
            text = f"{hours:.0f} node hours, over limits.node_hours ({most:g}): choose fewer nodes"
            raise RefusedError("invalid", f"{text} or rounds")
        return Check(
            id=new_identity(), request=resolved, requester=requester, cost=cost, created=time.time()
        )

    async def submit(self, request: CheckRequest, requester: Requester, key: str = "") -> Check:
        check = await self.estimate(request, requester)
        if len(self._queue) >= self.settings.limits.queued:
            text = f"{len(self._queue)} checks wait (limits.queued): try again later"
            raise RefusedError("busy", text)
        stored = await self._stored(self._store.add(check, key))
        if stored.id == check.id:
            self._queue[check.id] = Unfinished(check)
            self._changes.put(check)
            self._start_what_may()
        return self._latest(stored)

    async def cancel(self, identity: str, requester: Requester) -> Check:
        if requester.role == "read":
            raise RefusedError("forbidden", "needs the role run")
        detail = await self.get(identity)
        if detail.check.phase in ("done", "canceled"):
            raise RefusedError("conflict", f"{identity} has ended")
        self._canceled[identity] = requester.name or requester.trigger
        waiting = self._queue.pop(identity, None)
        if waiting:
            await self._finish(
                Execution(self._store, self._runner, self._slots, waiting, lambda _: None),
                waiting.check,
                "",
            )
        elif task := self._tasks.get(identity):
            task.cancel()
            await asyncio.wait([task])
        return (await self.get(identity)).check

    async def get(self, identity: str) -> CheckDetail:
        detail = await self._stored(self._store.get(identity))
        if detail is None:
            raise RefusedError("not_found", f"no check {identity[:40]}")
        return replace(detail, check=self._latest(detail.check))

    async def list(
        self,
        limit: int = 100,
        before: str = "",
        kind: Optional[Kind] = None,
        node: str = "",
        outcome: str = "",
    ) -> Sequence[Check]:
        most = max(1, min(limit, MAX_LISTED))
        found = await self._stored(self._store.list(most, before, kind or "", node, outcome))
        return [self._latest(check) for check in found]

    def changes(self) -> AsyncIterator[Check]:
        return self._changes.reader()

    async def _stored(self, work):  # type: ignore[no-untyped-def]
        try:
            return await work
        except StoreError as error:
            raise RefusedError("unavailable", str(error)) from None

    def _latest(self, check: Check) -> Check:
        return self._running.get(check.id, check)

    def _start_what_may(self) -> None:
        """Start waiting checks, oldest first, whose nodes no older check has or waits for."""
        taken = {node for check in self._running.values() for node in check.request.nodes}
        for identity, waiting in list(self._queue.items()):
            if len(self._running) >= self.settings.limits.running:
                return
            nodes = set(waiting.check.request.nodes)
            if not nodes & taken:
                del self._queue[identity]
                self._start(waiting)
            taken |= nodes

    def _start(self, unfinished: Unfinished) -> None:
        check = unfinished.check
        done = len(unfinished.results)
        started = check.started or time.time()
        check = replace(check, phase="running", started=started, runs_done=done)
        self._running[check.id] = check
        task = asyncio.get_running_loop().create_task(
            self._execute(Unfinished(check, unfinished.results, unfinished.issued))
        )
        self._tasks[check.id] = task

    async def _execute(self, unfinished: Unfinished) -> None:
        check = unfinished.check
        execution = Execution(
            self._store, self._runner, self._slots, unfinished, lambda _: self._advance(check.id)
        )
        problem = ""
        try:
            await self._update(check)
            limit = check.request.limit_seconds or 2 * check.cost.seconds + 60
            await asyncio.wait_for(execution.execute(planning.plan(check.request)), limit)
        except asyncio.TimeoutError:
            problem = f"not done within its time limit of {limit:g} s"
        except asyncio.CancelledError:
            if check.id not in self._canceled:
                raise
        except Exception as error:
            log.exception("check %s", check.id)
            problem = f"a defect of the hub: {type(error).__name__}"
        await self._finish(execution, check, problem)

    async def _update(self, check: Check) -> None:
        self._changes.put(check)
        while True:
            try:
                await self._store.update(check)
            except StoreError as error:
                log.error("%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _advance(self, identity: str) -> None:
        check = self._running[identity]
        check = self._running[identity] = replace(check, runs_done=check.runs_done + 1)
        self._changes.put(check)

    async def _finish(self, execution: Execution, check: Check, problem: str) -> None:
        results: list[RunResult] = sorted(execution.results.values(), key=lambda one: one.number)
        by = self._canceled.pop(check.id, None)
        if by is not None:
            verdict = Verdict(outcome="unknown", message=f"canceled by {by}")
        elif problem:
            verdict = Verdict(outcome="unknown", reason="harness", message=problem)
        else:
            verdict = planning.judge(check.request, results)
        ended = replace(
            self._latest(check),
            phase="done" if by is None else "canceled",
            ended=time.time(),
            verdict=verdict,
            figure=planning.figure(results),
        )
        while True:
            try:
                like = await self._store.like(ended)
                ended = replace(ended, baseline=like.figure if like else None)
                await self._store.finish(ended, results)
            except StoreError as error:
                log.error("%s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        self._running.pop(check.id, None)
        self._tasks.pop(check.id, None)
        self._changes.put(ended)
        self._start_what_may()
