"""The checks of a hub: queue, reservations, limits, recovery after a restart.

In: requests. Out: checks, each with exactly one verdict. A node has one check at a time: the nodes
of running checks are reserved, and no later check gets a node that an earlier one waits for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import string
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Sequence
from typing import TypeVar

from msgspec.structs import replace

from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    Kind,
    Phase,
    Requester,
    RunResult,
    Verdict,
)
from nodevitals.checks.requests.devices import is_complete
from nodevitals.checks.requests.parameters import first_of
from nodevitals.errors import Wording
from nodevitals_hub import stopping
from nodevitals_hub.checks import check_requests, planning, progress
from nodevitals_hub.checks.changes import Changes
from nodevitals_hub.checks.check_procedure import left_of, limit_of, perform
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.checks.execution import Execution, until_stored
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.peer_sights import Sights
from nodevitals_hub.checks.progress import Progress
from nodevitals_hub.checks.runners import Runner
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store, StoreError, Unfinished

PRUNE_SECONDS = 600.0
CANCEL_SECONDS = 20.0
MAX_LISTED = 1000
MAX_NAMED = 5
Result = TypeVar("Result")
_LETTERS = string.ascii_lowercase + string.digits

log = logging.getLogger(__name__)


def new_identity() -> str:
    """A new id: the time, and letters that cannot be guessed."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{stamp}-{''.join(secrets.choice(_LETTERS) for _ in range(6))}"


class Coordinator:
    """All checks of this hub, for pages, REST, resources, schedules and alerts. Methods run in the
    event loop and never block it.
    """

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
        """The task of each running check, until its end is stored; canceled when the hub stops."""
        self._runs: dict[str, asyncio.Task[Verdict | None]] = {}
        """The runs of each running check; canceled with the check, or at its time limit."""
        self._executions: dict[str, Execution] = {}
        """The execution of each check in `_runs`."""
        self._canceled: dict[str, str] = {}
        self._starting: set[str] = set()
        self._entering = 0

    async def start(self) -> None:
        """Continue the checks that have not ended. Raises StoreError."""
        for unfinished in await self._store.unfinished():
            if unfinished.check.phase == "running":
                self._start(unfinished)
            else:
                self._queue[unfinished.check.id] = unfinished
        self._start_what_may()

    async def stop(self) -> None:
        """Stop without ending checks: the next hub continues them."""
        await self._runner.close()
        tasks = [*self._runs.values(), *self._tasks.values()]
        await stopping.canceled(tasks, stopping.STOP_SECONDS)

    async def run(self) -> None:
        """Remove old checks until cancelled."""
        while True:
            limits = self.settings.limits
            with contextlib.suppress(StoreError):
                await self._store.prune(time.time() - limits.keep, limits.keep_checks)
            await asyncio.sleep(PRUNE_SECONDS)

    def members(self) -> Sequence[Member]:
        """The nodes on the lists, by name."""
        return sorted(self._members.by_name.values(), key=lambda member: member.name)

    async def estimate(
        self, request: CheckRequest, requester: Requester, without: Collection[str] = ()
    ) -> Check:
        """The check that would be started, with its cost, and without the nodes in `without`.
        Raises RefusedError.
        """
        if requester.role == "read":
            raise RefusedError("forbidden", "a check needs the role run")
        if request.force and requester.role != "act":
            raise RefusedError("forbidden", Wording("force: needs the role {role}", role="act"))
        resolved = planning.resolve(request, self._members.by_name, self.settings, without)
        refusal = self._runner.refusal(resolved)
        if refusal:
            raise RefusedError("invalid", refusal)
        if not is_complete(resolved.test.device):
            known = await self._runner.devices(resolved)
            resolved = planning.with_devices(resolved, known)
        cost = planning.cost(resolved, self.settings)
        return Check(
            id=new_identity(), request=resolved, requester=requester, cost=cost, created=time.time()
        )

    async def submit(
        self,
        request: CheckRequest,
        requester: Requester,
        key: str = "",
        without: Collection[str] = (),
    ) -> Check:
        """Store and queue a check, once per key. Raises RefusedError."""
        check = await self.estimate(request, requester, without)
        if key and (known := await _stored(self._store.by_key(key))):
            return self._latest(known)
        if len(self._queue) + self._entering >= self.settings.limits.queued:
            text = Wording(
                "{count} checks wait (limits.queued): try again later", count=len(self._queue)
            )
            raise RefusedError("busy", text)
        self._entering += 1
        try:
            if request.kind != "node" and not request.force:
                await self._refuse_in_use(check.request)
            # A client that disconnects must not leave a check that is stored but not queued.
            return await asyncio.shield(asyncio.ensure_future(self._enter(check, key)))
        finally:
            self._entering -= 1

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        """The nodes of a resolved request that jobs are known to use."""
        return await self._runner.in_use(request)

    async def sights(self, nodes: Sequence[str]) -> Sights:
        """What these nodes report about their peers, read now."""
        return await self._runner.sights(nodes)

    async def _refuse_in_use(self, request: CheckRequest) -> None:
        if names := await self.in_use(request):
            text = Wording(
                "in use by jobs: {names}; leave them out, or force (role act)",
                names=first_of(names, MAX_NAMED),
            )
            raise RefusedError("conflict", text)

    async def _enter(self, check: Check, key: str) -> Check:
        stored = await _stored(self._store.add(check, key))
        if stored.id == check.id:
            self._queue[check.id] = Unfinished(check)
            self._changes.put(check)
            self._start_what_may()
        return self._latest(stored)

    async def cancel(self, identity: str, requester: Requester) -> Check:
        """End a check that is queued or running. Raises RefusedError."""
        if requester.role == "read":
            raise RefusedError("forbidden", "to cancel needs the role run")
        await self.check(identity)
        by = requester.name or requester.trigger
        runs = self._runs.get(identity)
        if waiting := self._queue.pop(identity, None):
            self._canceled[identity] = by
            check = self._running[identity] = waiting.check
            task = asyncio.ensure_future(self._finish(check, waiting.results, None, ""))
            self._tasks[identity] = task
        elif identity in self._starting or (runs is not None and runs.cancel()):
            self._canceled[identity] = by
        else:
            raise RefusedError("conflict", Wording("{name} has ended", name=identity))
        await asyncio.wait([self._tasks[identity]], timeout=CANCEL_SECONDS)
        return await self.check(identity)

    async def get(self, identity: str) -> CheckDetail:
        """One check with its results. Raises RefusedError."""
        check = await self.check(identity)
        results = await _stored(self._store.results(identity))
        done = {result.number for result in results}
        going_on = [result for result in self.partial(identity) if result.number not in done]
        return CheckDetail(check=check, results=(*results, *going_on))

    def partial(self, identity: str) -> tuple[RunResult, ...]:
        """What the runs of a check that are not done have measured so far."""
        return self._runner.partial(identity)

    async def check(self, identity: str) -> Check:
        """One check without its results. Raises RefusedError."""
        check = await _stored(self._store.check(identity))
        if check is None:
            raise RefusedError("not_found", check_requests.missing(identity, self.settings.limits))
        return self._latest(check)

    async def earlier(self, check: Check) -> Sequence[Check]:
        """Earlier ended checks of the same kind, like ones first. Raises RefusedError."""
        return await _stored(self._store.earlier(check))

    async def list(
        self,
        limit: int = 100,
        before: str = "",
        kind: Kind | None = None,
        node: str = "",
        outcome: str = "",
    ) -> Sequence[Check]:
        """The checks before an id, the newest first."""
        most = max(1, min(limit, MAX_LISTED))
        checks = await _stored(self._store.list(most, before, kind or "", node, outcome))
        return [self._latest(check) for check in checks]

    def progress(self, check: Check) -> Progress:
        """What a check that has not ended does now, or waits for."""
        if check.phase == "queued":
            queue = (waiting.check for waiting in self._queue.values())
            return progress.waiting(check, [*self._running.values(), *queue])
        return progress.running(check, self._executions.get(check.id))

    def changes(self) -> AsyncIterator[Check]:
        """Each change of a check from now on."""
        return self._changes.reader()

    def _latest(self, check: Check) -> Check:
        return self._running.get(check.id, check)

    def _start_what_may(self) -> None:
        """Start waiting checks, oldest first, if no older check has or waits for their nodes."""
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
        identity, done = unfinished.check.id, len(unfinished.results)
        self._running[identity] = replace(unfinished.check, phase="running", runs_done=done)
        self._starting.add(identity)
        self._tasks[identity] = asyncio.ensure_future(self._execute(unfinished))

    async def _execute(self, unfinished: Unfinished) -> None:
        """Execute a check from its start until its end is stored."""
        check = self._running[unfinished.check.id]
        if unfinished.check.phase == "queued":
            like = await until_stored(lambda: self._store.like(check))
            ok = like is None or (like.verdict is not None and like.verdict.outcome == "ok")
            check = replace(
                check,
                started=time.time(),
                baseline=like.figure if like else None,
                baselines=like.figures if like else {},
                baseline_ok=ok,
                bus=await self._runner.bus(check),
            )
            await until_stored(lambda: self._store.update(check))
        self._running[check.id] = check
        self._changes.put(check)
        self._starting.discard(check.id)
        if check.id in self._canceled:
            await self._finish(check, unfinished.results, None, "")
            return
        unfinished = Unfinished(check, unfinished.results, unfinished.issued)
        execution = Execution(
            self._store, self._runner, self._slots, unfinished, lambda _: self._advance(check.id)
        )
        self._executions[check.id] = execution
        problem, isolation = "", None
        runs = self._runs[check.id] = asyncio.ensure_future(perform(check, execution, self._runner))
        done, _ = await asyncio.wait([runs], timeout=left_of(unfinished, time.time()))
        if not done:
            problem = f"not done within its time limit of {limit_of(check):g} s"
            runs.cancel()
            await asyncio.wait([runs])
        del self._runs[check.id], self._executions[check.id]
        if not runs.cancelled():
            if error := runs.exception():
                log.error("check %s", check.id, exc_info=error)
                problem = f"a defect of the hub: {type(error).__name__}"
            else:
                isolation = runs.result()
        await self._finish(check, tuple(execution.results.values()), isolation, problem)

    def _advance(self, identity: str) -> None:
        check = self._running[identity]
        check = self._running[identity] = replace(check, runs_done=check.runs_done + 1)
        self._changes.put(check)

    async def _finish(
        self,
        check: Check,
        results: Sequence[RunResult],
        isolation: Verdict | None,
        problem: str,
    ) -> None:
        results = sorted(results, key=lambda result: result.number)
        by = self._canceled.pop(check.id, None)
        # In a thread: a verdict over 10,000 nodes takes one or two seconds.
        check = await asyncio.to_thread(_judged, self._latest(check), results, isolation)
        verdict = check.verdict or Verdict(outcome="unknown")
        if by is not None:
            verdict = Verdict(outcome="unknown", message=f"canceled by {by}")
        if problem and by is None:
            text = f"{problem}; {verdict.message}"
            outcome = "unknown" if verdict.outcome == "ok" else verdict.outcome
            reason = verdict.reason or "harness"
            verdict = replace(verdict, outcome=outcome, reason=reason, message=text)
        phase: Phase = "done" if by is None else "canceled"
        ended = replace(check, phase=phase, ended=time.time(), verdict=verdict)
        await until_stored(lambda: self._store.finish(ended, results))
        self._running.pop(check.id, None)
        self._tasks.pop(check.id, None)
        self._changes.put(ended)
        self._start_what_may()


def _judged(check: Check, results: Sequence[RunResult], isolation: Verdict | None) -> Check:
    """The check with its verdict. A defect in it must not keep the nodes reserved for ever."""
    try:
        return planning.judged(check, results, isolation)
    except Exception as error:
        log.exception("check %s", check.id)
        text = f"a defect of the hub: {type(error).__name__}"
        return replace(check, verdict=Verdict(outcome="unknown", reason="harness", message=text))


async def _stored(work: Awaitable[Result]) -> Result:
    try:
        return await work
    except StoreError as error:
        raise RefusedError("unavailable", str(error)) from None
