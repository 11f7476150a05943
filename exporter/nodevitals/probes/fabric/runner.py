"""The runner: one node's part in the tests, at most one test at a time, as source or as target.

One thread does all of it: it waits for a peer that opens a test here, for an order of the hub, or
for this node's own pairing of the slot, starts the tool, checks the gate ten times a second, and
ends the tool. Tools end with this thread, and the thread with the worker.
"""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import Callable

from nodevitals.linux.host import Host, stable_fraction
from nodevitals.probes.fabric.budget import Meter
from nodevitals.probes.fabric.client_side import ClientSide
from nodevitals.probes.fabric.guard import Guard
from nodevitals.probes.fabric.members import MemberLists, Membership
from nodevitals.probes.fabric.occupancy import PLANNED, Occupancy
from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.order_entry import OrderEntry
from nodevitals.probes.fabric.orders import ORDER_ENDS
from nodevitals.probes.fabric.plan import Pairing
from nodevitals.probes.fabric.port_rate import promised_here
from nodevitals.probes.fabric.protocol import FabricClient
from nodevitals.probes.fabric.results import FinishedTest
from nodevitals.probes.fabric.server_side import ServerSide
from nodevitals.probes.fabric.settings import FabricSettings

# Tests start in the middle half of a slot: clocks may differ by a quarter of it.
EARLIEST, SPREAD = 0.25, 0.5
# After a late start, or a wait for a peer, no test starts later than this share of the slot.
LATEST = 0.9
# How late a test of our own starts at most; and how late an order ends whose peer does not come.
WAIT_SECONDS, ORDER_WAIT_SECONDS = 2.0, 0.5


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
        """Read the lists, and start the thread. Raises ProbeError where they cannot be read."""
        self.lists.load()
        threading.Thread(target=self._loop, name="fabric-runner", daemon=True).start()

    def finished(self) -> list[FinishedTest]:
        """The tests that have finished since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._finished.get_nowait())
        return found

    def _loop(self) -> None:
        try:
            while True:
                self._step()
        except Exception as error:  # noqa: BLE001 - the boundary: the next run raises it
            self.error = error

    def _step(self) -> None:
        """Do the next work, or run our own tests when they are due; wait for a short time."""
        seconds = WAIT_SECONDS if self.orders is None else ORDER_WAIT_SECONDS
        with suppress(queue.Empty):
            self._work.get(timeout=min(seconds, self._settings.slot / 60))()
        if self.orders is not None:
            self.orders.settle()
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
        """Run the tests of an order of which this node is the source; a failed one ends it."""
        order, peer = entry.order, entry.peer
        assert peer is not None
        assert self.orders is not None
        pairing = Pairing(order.source, order.target)
        try:
            for test in order.tests:
                if entry.must_end():
                    break
                entry.start(promised_here(test, self._host))
                finished = self._client_side.run(test, pairing, peer, 0, entry)
                self._finished.put(finished)
                if finished.report is not None:
                    entry.add(finished.report)
                if finished.report is None or finished.report.outcome != "ok":
                    entry.end(finished.skipped)
            if entry.reason not in ORDER_ENDS:
                self._client_side.close(peer, order.id)
        finally:
            self.orders.finish(entry)

    def _due(self, slot: int, membership: Membership) -> Pairing | None:
        """Our pairing of this slot where we are its source and it is time to start."""
        pairing = membership.roster.pairing(membership.name, slot)
        if pairing is None or pairing.source != membership.name:
            self._slot = slot
            return None
        fraction = stable_fraction(pairing.source, pairing.target, str(slot))
        into = time.time() / self._settings.slot - slot
        if into > LATEST:
            self._slot = slot
        return pairing if EARLIEST + SPREAD * fraction <= into <= LATEST else None
