"""Runs a pair test as an order on two agents: the target first, then the source.

In: a run whose order's id was stored. Out: its result. After a restart the hub sends the same order
again: an agent that has the order returns its state; another agent refuses it as stale, or accepts
it if it is recent. So an order is executed at most once.
"""

from __future__ import annotations

import asyncio
import time
from itertools import chain, repeat, zip_longest
from typing import TypedDict

from msgspec.structs import replace

from nodevitals.checks.deadlines import within
from nodevitals.checks.model import Check, RunResult
from nodevitals.checks.requests.runs import by_node, pair_tests
from nodevitals.probes.fabric.orders import (
    LEASE_SECONDS,
    Order,
    OrderRefused,
    OrderStatus,
    TestRun,
)
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.checks.members import Members
from nodevitals_hub.checks.runners import PlannedRun, Runner, skipped
from nodevitals_hub.launch.agent_orders import WAIT_SECONDS, AgentError, Agents
from nodevitals_hub.store.check_store import Issued

TRIES = 3
TRY_SECONDS = 0.5
BUSY_SECONDS = 10.0
"""How long a node is asked again while another test runs on it: such tests take a few seconds. This
is less than the lease of the order on the other node.
"""
CANCEL_SECONDS = 6.0
LOST_SECONDS = 2 * LEASE_SECONDS
"""An agent that did not answer for this time has ended its orders, because their lease is over."""
MARGIN_SECONDS = 60.0


class _EndedError(Exception):
    """The run has no result; the text is the word for `skipped`."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(reason)
        self.reason, self.message = reason, message


class PairRunner(Runner):
    """Runs pair tests through agents."""

    def __init__(self, agents: Agents, members: Members) -> None:
        self._agents = agents
        self._members = members
        self.leaving = False
        """Whether the hub stops: orders then continue for their lease, and the next hub collects
        their results."""

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Give the order to both agents, and wait until it is done."""
        known = self._members.by_name
        if any(name not in known for name in run.nodes):
            return skipped(run, "not_listed")
        ends = [known[name] for name in run.nodes]
        started, clock = time.time(), time.monotonic()
        try:
            status, of_target = await self._execute(check, run, ends, issued, again)
        except asyncio.CancelledError:
            if not self.leaving:
                await asyncio.shield(self._end(ends, issued.name))
            raise
        except _EndedError as error:
            await self._end(ends, issued.name)
            seconds = time.monotonic() - clock
            result = replace(skipped(run, error.reason), outputs=(error.message,))
            return replace(result, started=started, seconds=seconds)
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=status.reports,
            skipped=status.skipped,
            started=started,
            seconds=status.seconds,
            versions=status.versions,
            series=run.series,
            governors=(status.governor, of_target.governor if of_target else ""),
            **_per_test(run.nodes, status, of_target),
        )

    async def _execute(
        self, check: Check, run: PlannedRun, ends: list[Member], issued: Issued, again: bool
    ) -> tuple[OrderStatus, OrderStatus | None]:
        """The states of source and target at the end; None where the target's is not known."""
        source, target = ends
        tests = pair_tests(check.request, run.series)

        def order(node: str) -> Order:
            return Order(
                id=issued.name,
                issued=issued.time,
                node=node,
                source=source.name,
                target=target.name,
                tests=tests,
                force=check.request.force,
            )

        first = await self._put(target, order(target.name), again)
        if first.state == "done":  # in an earlier process of the hub
            status = await self._asked(source, issued.name)
            if status is None:
                raise _EndedError(first.skipped or "lost", "the order ended before the source's")
        else:
            status = await self._put(source, order(source.name), again)
        limit = time.monotonic() + sum(test.timeout for test in tests) + MARGIN_SECONDS
        status = await self._follow(source, target, status, limit)
        [of_target] = await self._end([target], issued.name) or [None]
        if status.skipped == "peer_busy" and isinstance(of_target, OrderStatus):
            # Only the target has the reason.
            status = replace(status, skipped=of_target.skipped or status.skipped)
        if not isinstance(of_target, OrderStatus) and _unreachable(status):
            # The target's agent is gone, which is no fault of its link.
            word = "lost" if isinstance(of_target, OrderRefused) else "no_agent"
            raise _EndedError(word, f"agent of {target.name}: {of_target or 'no response'}")
        return status, of_target if isinstance(of_target, OrderStatus) else None

    async def _put(self, member: Member, order: Order, again: bool) -> OrderStatus:
        failures, deadline = 0, time.monotonic() + BUSY_SECONDS
        while True:
            try:
                response = await self._agents.put(member, order)
            except AgentError as error:
                failures += 1
                if failures == TRIES:
                    raise _EndedError("no_agent", str(error)) from None
                await asyncio.sleep(TRY_SECONDS * failures)
                continue
            if isinstance(response, OrderStatus):
                return response
            occupied = response.refusal == "busy" and response.reason == "testing"
            if not occupied or time.monotonic() > deadline:
                text = f"agent of {member.name}: {response.message}"
                raise _EndedError(_word(response, again), text)
            await asyncio.sleep(TRY_SECONDS)

    async def _asked(self, member: Member, identity: str) -> OrderStatus | None:
        try:
            response = await self._agents.get(member, identity)
        except AgentError as error:
            raise _EndedError("no_agent", str(error)) from None
        return response if isinstance(response, OrderStatus) else None

    async def _follow(
        self, source: Member, target: Member, status: OrderStatus, limit: float
    ) -> OrderStatus:
        """Query both ends until the source is done; this also renews the order's lease."""
        last = time.monotonic()
        while status.state != "done":
            answers = await asyncio.gather(
                self._agents.get(source, status.id, WAIT_SECONDS),
                self._agents.get(target, status.id, 0),
                return_exceptions=True,
            )
            now = time.monotonic()
            of_source = answers[0]
            if isinstance(of_source, OrderStatus):
                status, last = of_source, now
            elif isinstance(of_source, OrderRefused):
                raise _EndedError("lost", f"agent of {source.name}: {of_source.message}")
            elif not isinstance(of_source, AgentError):
                raise of_source
            else:
                await asyncio.sleep(TRY_SECONDS)
                if now - last > LOST_SECONDS:
                    raise _EndedError("lost", str(of_source))
            if now > limit:
                raise _EndedError("timeout", "the agents did not end the test in time")
        return status

    async def _end(self, ends: list[Member], identity: str) -> list[object]:
        """End the order on these nodes, and return their answers; on a node that is not reachable,
        its lease ends it.
        """
        tasks = [self._agents.cancel(member, identity) for member in ends]
        both = asyncio.gather(*tasks, return_exceptions=True)
        try:
            return list(await within(both, CANCEL_SECONDS))
        except TimeoutError:
            return []


class _PerTest(TypedDict):
    commands: tuple[str, ...]
    outputs: tuple[str, ...]
    ports_bytes_per_second: tuple[tuple[float, float] | None, ...]
    port_limits: tuple[tuple[str, str], ...]


def _per_test(nodes: tuple[str, ...], source: OrderStatus, target: OrderStatus | None) -> _PerTest:
    """What ran for each report of the source, on both nodes."""
    found = _PerTest(commands=(), outputs=(), ports_bytes_per_second=(), port_limits=())
    served = target.runs if target else ()
    runs = zip_longest(source.runs, served, fillvalue=TestRun())
    for report, (here, there) in zip(source.reports, chain(runs, repeat((TestRun(), TestRun())))):
        texts = [here.output] if report.outcome == "ok" else [here.output, there.output]
        source_rate, target_rate = here.port_bytes_per_second, there.port_bytes_per_second
        rates = (source_rate, target_rate) if source_rate and target_rate else None
        found["commands"] += (by_node(zip(reversed(nodes), (there.command, here.command))),)
        found["outputs"] += (by_node(zip(nodes, texts)),)
        found["ports_bytes_per_second"] += (rates,)
        found["port_limits"] += ((here.port_limit, there.port_limit),)
    return found


def _unreachable(status: OrderStatus) -> bool:
    return any(report.reason == "unreachable" for report in status.reports)


def _word(refusal: OrderRefused, again: bool) -> str:
    if refusal.refusal == "busy":
        return refusal.reason or "peer_busy"
    return "lost" if refusal.refusal == "stale" and again else refusal.refusal
