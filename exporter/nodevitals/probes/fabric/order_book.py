"""The orders of the hub on this node: accepts one at a time, and remembers those before it.

In: requests of the hub, in the threads of connections. Out: their states, and HTTP
statuses. The tests of an order run in the runner's thread.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import OrderedDict
from http import HTTPStatus
from typing import Callable, Union

from nodevitals import __version__
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.admission import Occupancy
from nodevitals.probes.fabric.measurement import FinishedTest
from nodevitals.probes.fabric.members import MemberLists
from nodevitals.probes.fabric.orders import (
    CLOCK_SECONDS,
    MAX_AGE_SECONDS,
    MAX_WAIT_SECONDS,
    ORDERS_PATH,
    AcceptedOrder,
    FinishedOrder,
    Order,
    OrderEntry,
    OrderRefusal,
    OrderRefused,
    OrderStatus,
    outcome_of,
    problem_of,
)
from nodevitals.probes.fabric.protocol import parse
from nodevitals.probes.fabric.settings import HubSettings
from nodevitals.probes.fabric.tools.process import version_of

Response = tuple[HTTPStatus, Union[OrderStatus, OrderRefused]]
_PATH = re.compile(rf"{ORDERS_PATH}/([a-zA-Z0-9-]{{8,64}})(?:\?wait=([0-9]{{1,4}}))?")

MAX_RESULTS = 32
"""Number of orders whose results are kept; of older ones only the identities are kept."""
MAX_IDENTITIES = 8192
# Far longer than MAX_AGE_SECONDS: setting the clock back makes old orders look new.
REMEMBERED_SECONDS = 3600.0
END_SECONDS = 3.0
"""Time for which the response to a DELETE waits for the end of the order."""


class OrderBook:
    """The order that runs, and the last ones. `work` is the runner's queue; the runner calls `run`
    for an order whose source is this node.
    """

    def __init__(
        self,
        settings: HubSettings,
        lists: MemberLists,
        occupancy: Occupancy,
        work: queue.SimpleQueue[Callable[[], None]],
        finished: queue.SimpleQueue[FinishedTest],
    ) -> None:
        self.run: Callable[[OrderEntry], None] = self.finish
        self.tested: set[tuple[str, str]] = set()
        """Tool and operation of all tests that were ordered: the labels of their counters."""
        self._settings = settings
        self._lists = lists
        self._occupancy = occupancy
        self._work = work
        self._finished = finished
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._current: OrderEntry | None = None
        self._entries: OrderedDict[str, OrderEntry] = OrderedDict()
        self._identities: OrderedDict[str, float] = OrderedDict()

    def put(self, order: Order) -> OrderStatus | OrderRefused:
        """Accept an order once; for a repeated one, return its state."""
        with self._lock:
            known = self._entries.get(order.id)
            if known is not None and known.order == order:
                known.renew()
                return known.status()
            if known is not None:
                return self.refuse("invalid", "another order has this id")
            entry = self._accepted(order)
        if isinstance(entry, OrderRefused):
            return entry
        if entry.peer is not None:
            self._work.put(lambda: self.run(entry))
        return entry.status()

    def refuse(self, refusal: OrderRefusal, message: str, reason: str = "") -> OrderRefused:
        """The refusal of an order, which is counted."""
        text = f"order refused: {refusal}: {message}"
        self._finished.put(FinishedOrder(outcome="refused", text=text))
        return OrderRefused(refusal=refusal, reason=reason or None, message=message)

    def get(self, identity: str, wait_seconds: float) -> OrderStatus | OrderRefused:
        """The state of an order, when it is done or after so many seconds; renews its lease."""
        entry = self._entries.get(identity)
        if entry is None:
            return _unknown("no such order here, or its result is no longer kept")
        entry.renew()
        return entry.status(min(wait_seconds, MAX_WAIT_SECONDS))

    def cancel(self, identity: str) -> OrderStatus | OrderRefused:
        """End an order. An unknown order is refused if it arrives later."""
        with self._lock:
            entry = self._entries.get(identity)
            if entry is None:
                self._remember(identity)
                return _unknown("no such order here; it will not be accepted later")
        entry.end("canceled")
        self._work.put(self.settle)
        return entry.status(END_SECONDS)

    def active(self, identity: str) -> OrderEntry | None:
        """The current order if it has this identity and has not ended."""
        entry = self._current
        goes_on = entry is not None and entry.order.id == identity and not entry.must_end()
        return entry if goes_on else None

    def close(self, identity: str, is_owner: Callable[[str], bool]) -> bool:
        """End an order whose target is this node, because the source has run all tests; False if
        there is none. `is_owner`: whether the request comes from the node with this name.
        """
        entry = self.active(identity)
        if entry is None or entry.peer is not None or not is_owner(entry.order.source):
            return False
        entry.end()
        self._work.put(self.settle)
        entry.status(END_SECONDS)
        return True

    def settle(self) -> None:
        """Finish the order whose target is this node, if it must end. Called in the runner's thread
        while no test runs.
        """
        entry = self._current
        if entry is not None and entry.peer is None and entry.must_end():
            self.finish(entry)

    def finish(self, entry: OrderEntry) -> None:
        """Record the end of an order. Called in the runner's thread."""
        versions = _tool_versions(entry) if entry.status().state == "running" else {}
        with self._lock:
            self._current = None
        self._occupancy.free(entry.order.id)
        entry.finish(versions)
        outcome = outcome_of(entry.status())
        reason = f": {entry.reason}" if outcome == "skipped" else ""
        text = f"order {entry.order.id} ended: {outcome}{reason}"
        self._finished.put(FinishedOrder(outcome=outcome, text=text))

    def _accepted(self, order: Order) -> OrderEntry | OrderRefused:
        """The entry of a new order, or why it is not accepted."""
        refusal = self._refusal(order)
        if refusal is not None:
            return refusal
        membership = self._lists.membership
        is_source = membership is not None and order.source == membership.name
        peer = membership.members[order.target] if membership and is_source else None
        if not self._occupancy.take(order.id):
            return self.refuse("busy", "a test runs on this node", reason="testing")
        self._remember(order.id)
        entry = self._current = OrderEntry(order, peer, {"nodevitals": __version__})
        self._entries[order.id] = entry
        if len(self._entries) > MAX_RESULTS:
            self._entries.popitem(last=False)
        tools = ", ".join(f"{test.tool} {test.operation}" for test in order.tests[:1])
        text = f"order {order.id} accepted: {tools} from {order.source} to {order.target}"
        self._finished.put(AcceptedOrder(text=text + (", forced" if order.force else "")))
        self.tested |= {(test.tool, test.operation) for test in order.tests}
        return entry

    def _refusal(self, order: Order) -> OrderRefused | None:
        """Why an order cannot be accepted, regardless of what runs."""
        membership = self._lists.membership
        if order.force and not self._settings.force:
            return self.refuse("forbidden", "probes.fabric.hub.force is not set on this node")
        problem = problem_of(order)
        if problem:
            return self.refuse("invalid", problem)
        if membership is None:
            return self.refuse("not_listed", "the lists of peers have not been read")
        if order.node != membership.name or order.node not in (order.source, order.target):
            return self.refuse("not_this_node", f"this is {membership.name}")
        for name in (order.source, order.target):
            if name not in membership.members:
                return self.refuse("not_listed", f"{name[:64]} is not on the lists of this node")
        return self._stale(order)

    def _stale(self, order: Order) -> OrderRefused | None:
        """Refuse an order that may have been executed before. Its age by the present clock
        is compared with the age of this worker, so earlier changes of the clock have no effect.
        """
        now = time.monotonic()
        age = time.time() - order.issued
        while self._identities and next(iter(self._identities.values())) < now - REMEMBERED_SECONDS:
            self._identities.popitem(last=False)
        if order.id in self._identities:
            return self.refuse("stale", "an order with this id was here before")
        if not age >= -CLOCK_SECONDS:
            text = "was issued in the future: check the clocks of the hub and of this node"
            return self.refuse("stale", text)
        if age > MAX_AGE_SECONDS:
            return self.refuse("stale", f"was issued {age:.0f} s ago, over {MAX_AGE_SECONDS:g}")
        if age > now - self._started:
            return self.refuse("stale", "was issued before this agent started")
        if len(self._identities) >= MAX_IDENTITIES:
            return self.refuse("busy", f"over {MAX_IDENTITIES} orders in an hour", reason="orders")
        return None

    def _remember(self, identity: str) -> None:
        if len(self._identities) < MAX_IDENTITIES:
            self._identities[identity] = time.monotonic()


def _tool_versions(entry: OrderEntry) -> dict[str, str]:
    """The versions of the tools of an order, without tools that report none."""
    programs = {test.tool: measurement.argv(test, None, 0)[0] for test in entry.order.tests}
    versions = {tool: version_of(program) for tool, program in programs.items()}
    return {tool: version for tool, version in versions.items() if version}


def _unknown(message: str) -> OrderRefused:
    return OrderRefused(refusal="unknown", message=message)


class OrderPath:
    """The path of a request for an order. Raises ValueError for any other path."""

    def __init__(self, path: str) -> None:
        match = _PATH.fullmatch(path)
        if match is None:
            raise ValueError(f"write {ORDERS_PATH}/ID, or {ORDERS_PATH}/ID?wait=SECONDS")
        self.identity = match[1]
        self.wait_seconds = min(float(match[2] or 0), MAX_WAIT_SECONDS)


def put(orders: OrderBook, path: OrderPath, body: bytes) -> Response:
    """Accept an order, or refuse it."""
    try:
        order = parse(body, Order)
    except ValueError as error:
        return _answer(orders.refuse("invalid", str(error)[:300]))
    if order.id != path.identity:
        return _answer(orders.refuse("invalid", "the path has another id"))
    return _answer(orders.put(order))


def get(orders: OrderBook, path: OrderPath) -> Response:
    """The state of an order; waits for its end if the path contains `wait`."""
    return _answer(orders.get(path.identity, path.wait_seconds))


def delete(orders: OrderBook, path: OrderPath) -> Response:
    """End an order."""
    return _answer(orders.cancel(path.identity))


def _answer(message: Union[OrderStatus, OrderRefused]) -> Response:
    if isinstance(message, OrderStatus):
        return HTTPStatus.OK, message
    forbidden = message.refusal == "forbidden"
    return HTTPStatus.FORBIDDEN if forbidden else HTTPStatus.CONFLICT, message
