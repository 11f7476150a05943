"""The runner: runs this node's side of the tests, one test at a time, as source or as target.

One thread does all of it: it waits for a peer that opens a test here, for an order of the hub, or
for this node's own pairing of the slot, starts the tool, checks the gate ten times a second, and
ends the tool. Tools end with this thread, and the thread with the worker.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from contextlib import suppress
from typing import Callable

from msgspec.structs import replace

from nodevitals.linux.host import Host, stable_fraction
from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.admission import GATE_REASONS, PLANNED, Meter, Occupancy
from nodevitals.probes.fabric.measurement import FinishedTest, StartedTest
from nodevitals.probes.fabric.members import MemberLists, Membership, Pairing
from nodevitals.probes.fabric.node.cpus import cpus_near, pinned
from nodevitals.probes.fabric.node.port import facts_here, limit_of, promised
from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.orders import ORDER_ENDS, OrderEntry
from nodevitals.probes.fabric.protocol import (
    FabricClient,
    Opened,
    OpenRequest,
    Refused,
    TransportError,
)
from nodevitals.probes.fabric.server_side import CLOSE_SECONDS, OPEN_SECONDS, Guard, ServerSide
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tools.process import (
    ToolMissingError,
    ToolProcess,
    is_connected,
    tcp_tables,
)
from nodevitals.probes.fabric.tools.report import REASONS, Reason, Report, failed

# Tests start in the middle half of a slot: clocks may differ by a quarter of a slot.
EARLIEST, SPREAD = 0.25, 0.5
# After a late start, or a wait for a peer, no test starts later than this share of the slot.
LATEST = 0.9
# The longest delay of a test of our own, and of the end of an order whose peer does not respond.
WAIT_SECONDS, ORDER_WAIT_SECONDS = 2.0, 0.5


class ClientSide:
    """The client side of planned and ordered tests that this node starts: opens a test on the peer,
    runs the tool, closes the test.
    """

    def __init__(self, host: Host, client: FabricClient, guard: Guard) -> None:
        self._host = host
        self._client = client
        self._guard = guard

    def run(
        self,
        test: TestSettings,
        pairing: Pairing,
        peer: ListedTarget,
        slot: int,
        order: OrderEntry | None = None,
    ) -> StartedTest:
        """One test with the target of this pairing, which is at `peer`."""
        started = time.time()
        result = StartedTest(
            test=test,
            source=pairing.source,
            peer=pairing.target,
            time=started,
            ordered=order is not None,
            forced=order is not None and order.order.force,
        )
        reason = self._guard.refusal(test, order)
        if reason:
            return replace(result, skipped=reason)
        problem = measurement.problem_of(test, self._host, pairing.source)
        if problem is not None:
            return replace(result, report=problem)
        identity = uuid.uuid4().hex
        of_order = order.order.id if order else ""
        request = OpenRequest(
            id=identity, source=pairing.source, slot=slot, test=test.key, order=of_order
        )
        try:
            opened = self._open(peer, request)
        except TransportError as error:
            if error.connected:
                self.close(peer, identity)
            return replace(result, report=failed(error.reason, str(error)))
        if isinstance(opened, Refused):
            return _refused(result, opened)
        self._guard.govern(order)
        clock = time.monotonic()
        argv = measurement.client_command(test, self._host, peer.host, opened)
        report, stopped = self._run_tool(test, argv, opened.port, order)
        seconds = time.monotonic() - clock
        ended = self.close(peer, identity)
        size = self._guard.charge(test, started, seconds)
        if report is not None and report.outcome != "ok":
            stopped = _stopped_by_peer(ended) or stopped
        result = replace(result, seconds=seconds, bytes=size, skipped=stopped)
        return replace(result, report=None if stopped else report)

    def _open(self, peer: ListedTarget, request: OpenRequest) -> Opened | Refused:
        """Open the test. Tries again if a response got lost, because the second request gets the
        same response; TCP itself repeats lost connection requests.
        """
        try:
            return self._client.open(peer.host, peer.port, request, OPEN_SECONDS + 1)
        except TransportError as error:
            if error.reason == "harness" or not error.connected:
                raise
            return self._client.open(peer.host, peer.port, request, OPEN_SECONDS + 1)

    def close(self, peer: ListedTarget, identity: str) -> str:
        """Close a test, or an order. If the request gets lost, the peer's side ends at its own
        deadline.
        """
        for _ in range(2):
            try:
                return self._client.close(peer.host, peer.port, identity, CLOSE_SECONDS + 1).ended
            except TransportError as error:
                if not error.connected:
                    break
        return ""

    def _run_tool(
        self, test: TestSettings, argv: list[str], port: int, order: OrderEntry | None
    ) -> tuple[Report | None, str]:
        """The report and '', or None and why the tool was stopped."""
        try:
            process = ToolProcess(argv, cpus_near(test, self._host))
        except ToolMissingError as error:
            return failed("tool_missing", str(error)), ""
        try:
            reason = self._guard.watch(process, test.timeout, order=order)
            if reason == "timeout":
                return measurement.unfinished(test, is_connected(port, tcp_tables())), ""
            if reason:
                return None, reason
            return measurement.judge(test, process.text(), process.status() or 0), ""
        finally:
            if order is not None:
                order.keep(test.key, pinned(process.argv, process.cpus), process.text())
            process.end()


def _stopped_by_peer(ended: str) -> str:
    """Why the peer's side of a failed test had ended: its gate closed, or the hub ended the order
    there; '' if it had not ended.
    """
    if ended in GATE_REASONS:
        return "peer_busy"
    return ended if ended in ORDER_ENDS else ""


def _refused(result: StartedTest, refusal: Refused) -> StartedTest:
    """The result after a refusal: the peer is busy, its lists do not plan the test, or it
    failed.
    """
    if refusal.refusal == "busy" and refusal.reason in ORDER_ENDS:
        return replace(result, skipped=refusal.reason)
    if refusal.refusal == "busy":
        return replace(result, skipped="peer_busy")
    if refusal.refusal == "plan_differs" and not result.ordered:
        return replace(result, skipped="plan_differs")
    # A peer with another version may send unknown reasons.
    fallback: Reason = "harness"
    reason = next((reason for reason in REASONS if reason == refusal.reason), fallback)
    return replace(result, report=failed(reason, refusal.message))


class FabricRunner:
    """Runs the tests of this node in a thread of its own."""

    def __init__(
        self, settings: FabricSettings, host: Host, client: FabricClient, meter: Meter
    ) -> None:
        guard = Guard(settings, host, meter)
        self._settings = settings
        self._host = host
        self._finished: queue.SimpleQueue[FinishedTest] = queue.SimpleQueue()
        self._slot = -1
        self.governors = guard.governors
        self.lists = MemberLists(settings, host)
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._occupancy = Occupancy()
        shared = (self.lists, self._occupancy, self._work, self._finished)
        self.orders = OrderBook(settings.hub, *shared) if settings.hub else None
        if self.orders is not None:
            self.orders.run = self._run_order
        self.server_side = ServerSide(settings, host, guard, *shared, self.orders)
        self._client_side = ClientSide(host, client, guard)
        self.error: Exception | None = None
        """Why the thread has ended."""

    def start(self) -> None:
        """Read the lists, and start the thread. Raises ProbeError if the lists cannot be read."""
        self.lists.load()
        self.governors.restore()
        threading.Thread(target=self._loop, name="fabric-runner", daemon=True).start()

    def finished(self) -> list[FinishedTest]:
        """The tests that have finished since the last call."""
        finished = []
        with suppress(queue.Empty):
            while True:
                finished.append(self._finished.get_nowait())
        return finished

    def _loop(self) -> None:
        try:
            while True:
                self._step()
        except Exception as error:  # noqa: BLE001 - the boundary: the next run raises it
            self.error = error

    def _step(self) -> None:
        """Do the next work, or run our own tests if they are due, or wait for a short time."""
        seconds = WAIT_SECONDS if self.orders is None else ORDER_WAIT_SECONDS
        with suppress(queue.Empty):
            self._work.get(timeout=min(seconds, self._settings.slot / 60))()
        if self.orders is not None:
            self.orders.settle()
        if not self._occupancy.holder:
            self.governors.release()
        slot = int(time.time() // self._settings.slot)
        self.lists.refresh(slot)
        membership = self.lists.membership
        if membership is None or slot == self._slot or not self._settings.tests:
            return
        pairing = self._due(slot, membership)
        if pairing is None or not self._occupancy.take(PLANNED):
            return
        self._slot = slot
        peer = membership.members[pairing.target]
        try:
            for test in self._settings.tests:
                self._finished.put(self._client_side.run(test, pairing, peer, slot))
        finally:
            self._occupancy.free(PLANNED)

    def _run_order(self, entry: OrderEntry) -> None:
        """Run the tests of an order whose source is this node. After a failed one, larger ones that
        are otherwise the same are not run.
        """
        order, peer = entry.order, entry.peer
        assert peer is not None
        assert self.orders is not None
        pairing = Pairing(order.source, order.target)
        failures = measurement.FailedTests()
        try:
            for test in order.tests:
                if entry.must_end():
                    break
                left_out = failures.left_out(test)
                if left_out is not None:
                    entry.add(left_out)
                    continue
                facts = facts_here(test, self._host)
                entry.start(test.key, promised(test, facts), limit_of(test, facts))
                finished = self._client_side.run(test, pairing, peer, 0, entry)
                self._finished.put(finished)
                if finished.report is None:
                    entry.end(finished.skipped)
                    break
                entry.add(finished.report)
                failures.add(test, finished.report)
            if entry.reason not in ORDER_ENDS:
                self._client_side.close(peer, order.id)
        finally:
            self.orders.finish(entry)

    def _due(self, slot: int, membership: Membership) -> Pairing | None:
        """Our pairing of this slot, if we are its source and it is time to start."""
        pairing = membership.roster.pairing(membership.name, slot)
        if pairing is None or pairing.source != membership.name:
            self._slot = slot
            return None
        fraction = stable_fraction(pairing.source, pairing.target, str(slot))
        into = time.time() / self._settings.slot - slot
        if into > LATEST:
            self._slot = slot
        return pairing if EARLIEST + SPREAD * fraction <= into <= LATEST else None
