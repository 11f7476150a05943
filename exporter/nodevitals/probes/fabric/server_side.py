"""The server sides of tests that peers open on this node, one at a time: planned ones, and those of
the order that runs.

`open` and `close` run in the threads of connections, which only wait. They put functions into the
queue `work`; the runner's thread calls these to start, watch and end the tool. Both sides of a test
use the guard.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from typing import Callable

from nodevitals.linux.host import Host
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.admission import PLANNED, Gate, Meter, Occupancy
from nodevitals.probes.fabric.measurement import FinishedTest, ServedTest
from nodevitals.probes.fabric.members import MemberLists, Pairing
from nodevitals.probes.fabric.node.addresses import own_address
from nodevitals.probes.fabric.node.cpus import cpus_near, pinned
from nodevitals.probes.fabric.node.governors import Governors
from nodevitals.probes.fabric.node.port import facts_here, limit_of, link_of, promised
from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.orders import OrderEntry
from nodevitals.probes.fabric.protocol import Closed, Opened, OpenRequest, Refused
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tools.process import ToolMissingError, ToolProcess, listens
from nodevitals.probes.fabric.tools.report import Report

CHECK_SECONDS = 0.1

START_SECONDS = 3.0
OPEN_SECONDS = 8.0
"""Time for opening a test: checking the traffic, running the site's command, starting the tool."""
CLOSE_SECONDS = 3.0
# How far the clocks of two nodes may differ; a slot is accepted so long before and after.
SKEW_SECONDS = 30.0
MAX_ENDED = 64


class Guard:
    """The gate and the budget: whether a test may start here, and when its tool must stop."""

    def __init__(self, settings: FabricSettings, host: Host, meter: Meter) -> None:
        self._host = host
        self._meter = meter
        self._gate = Gate(settings.gate, host)
        self.governors = Governors(host, settings.governor)

    def refusal(self, test: TestSettings, order: OrderEntry | None = None) -> str:
        """Why this test, planned or ordered, may not start now; '' if it may."""
        forced = order is not None and order.order.force
        reason = self._gate.check_before_start(link_of(test, self._host), forced)
        if reason:
            return reason
        size = measurement.bytes_of(test, self._host)
        return "" if self._meter.allows(time.time(), test.timeout, size) else "budget"

    def watch(
        self,
        process: ToolProcess,
        seconds: float,
        closing: threading.Event | None = None,
        order: OrderEntry | None = None,
    ) -> str:
        """Wait until the tool ends or `closing` is set, and return ''; or return why it must stop:
        `timeout`, a reason of the gate, or the reason for the end of its order.
        """
        deadline = time.monotonic() + seconds
        closing = closing or threading.Event()
        forced = order is not None and order.order.force
        while process.status() is None and not closing.wait(CHECK_SECONDS):
            reason = self._gate.check(forced)
            if reason:
                return reason
            if order is not None and order.must_end():
                return order.reason
            if time.monotonic() > deadline:
                return "timeout"
        return ""

    def govern(self, order: OrderEntry | None) -> None:
        """Set the processors' governors for a test, if that is wanted."""
        governor = self.governors.hold()
        if order is not None:
            order.govern(governor)

    def charge(self, test: TestSettings, started: float, seconds: float) -> float:
        """Charge a test that ran here from `started` (seconds since the epoch) to the budget.
        Returns its bytes.
        """
        size = measurement.bytes_of(test, self._host, seconds)
        self._meter.charge(started, seconds, size)
        return size


class _Session:
    """The state of one server side: opened, ready, closing, ended."""

    def __init__(self, request: OpenRequest, test: TestSettings, order: OrderEntry | None) -> None:
        self.request = request
        self.test = test.on_target()
        self.order = order
        self.response: Opened | Refused = Refused(refusal="failed", reason="harness")
        self.ready = threading.Event()
        self.closing = threading.Event()
        self.ended = threading.Event()
        self.reason = ""


class ServerSide:
    """Opens and closes server sides for peers."""

    def __init__(
        self,
        settings: FabricSettings,
        host: Host,
        guard: Guard,
        lists: MemberLists,
        occupancy: Occupancy,
        work: queue.SimpleQueue[Callable[[], None]],
        finished: queue.SimpleQueue[FinishedTest],
        orders: OrderBook | None = None,
    ) -> None:
        self._settings = settings
        self._host = host
        self._guard = guard
        self._lists = lists
        self._occupancy = occupancy
        self._work = work
        self._finished = finished
        self._orders = orders
        self._tests = {test.key: test for test in settings.tests}
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._ended: OrderedDict[str, _Session] = OrderedDict()
        self._opened: set[tuple[int, str, str]] = set()
        self._port = settings.tool_ports[0]

    def open(self, request: OpenRequest) -> Opened | Refused:
        """Start the server side of a test, and wait until the tool listens. Each test of a slot or
        of an order can be opened once, so that a source cannot use up the budget of this node.
        """
        with self._lock:
            session = self._ended.get(request.id) or self._session
            if session is None:
                made = self._ordered(request) if request.order else self._planned(request)
                if isinstance(made, Refused):
                    return made
                session = self._session = made
                self._work.put(lambda: self._serve(made))
            elif session.request != request:
                return Refused(refusal="busy", reason="testing")
        if not session.ready.wait(OPEN_SECONDS):
            session.closing.set()
            return Refused(refusal="failed", reason="timeout", message="the tool did not start")
        return session.response

    def close(self, identity: str) -> Closed:
        """End a server side. Returns why it had ended before, if it had."""
        with self._lock:
            session = self._session
            if session is None or session.request.id != identity:
                ended = self._ended.get(identity)
                return Closed(ended=ended.reason if ended else "")
        session.closing.set()
        session.ended.wait(CLOSE_SECONDS)
        return Closed(ended=session.reason)

    def _planned(self, request: OpenRequest) -> _Session | Refused:
        """A session of a planned test, which occupies the node."""
        test = self._tests.get(request.test)
        if test is None:
            return Refused(refusal="test_differs", message=f"no test {request.test!r} here")
        if not self._is_planned(request):
            return Refused(refusal="plan_differs", message="not by our list, or not in this slot")
        if not self._occupancy.take(PLANNED):
            return Refused(refusal="busy", reason="testing")
        if not self._is_first(request):
            self._occupancy.free(PLANNED)
            return Refused(refusal="busy", reason="repeated", message="opened before")
        return _Session(request, test, None)

    def _ordered(self, request: OpenRequest) -> _Session | Refused:
        """A session of a test that the hub has also ordered here."""
        order = self._orders.active(request.order) if self._orders else None
        if order is None or order.peer is not None or order.order.source != request.source:
            text = "no such order here: it has ended, or this agent was restarted"
            return Refused(refusal="plan_differs", message=text)
        test = order.test(request.test)
        if test is None:
            return Refused(refusal="test_differs", message="the order here has not this test")
        if not order.open_once(request.test):
            return Refused(refusal="busy", reason="repeated", message="opened before")
        return _Session(request, test, order)

    def _is_planned(self, request: OpenRequest) -> bool:
        """Whether our own lists plan this pairing at about this time."""
        own, length, now = self._lists.membership, self._settings.slot, time.time()
        if own is None or request.source not in own.roster:
            return False
        begin = request.slot * length
        if not begin - SKEW_SECONDS <= now <= begin + length + SKEW_SECONDS:
            return False
        return own.roster.pairing(own.name, request.slot) == Pairing(request.source, own.name)

    def _is_first(self, request: OpenRequest) -> bool:
        """Whether this test was not opened before in this slot; remembers it until the slot is past
        and no longer planned.
        """
        oldest = (time.time() - SKEW_SECONDS) / self._settings.slot - 1
        self._opened = {opened for opened in self._opened if opened[0] >= oldest}
        key = (request.slot, request.source, request.test)
        if key in self._opened:
            return False
        self._opened.add(key)
        return True

    def _serve(self, session: _Session) -> None:
        process: ToolProcess | None = None
        started, clock = time.time(), time.monotonic()
        try:
            reason = self._reason_against(session)
            if reason:
                session.reason = reason
                session.response = Refused(refusal="busy", reason=reason)
                return
            problem = measurement.problem_of(session.test, self._host, self._name)
            if problem is not None:
                session.response = _failed(problem)
                return
            self._guard.govern(session.order)
            process, session.response = self._start(session.test)
            if process is None or isinstance(session.response, Refused):
                return
            session.ready.set()
            limit = session.test.timeout + OPEN_SECONDS
            session.reason = self._guard.watch(process, limit, session.closing, session.order)
        finally:
            if process is not None:
                if session.order is not None:
                    argv = pinned(process.argv, process.cpus)
                    session.order.keep(session.request.test, argv, process.text())
                process.end()
                seconds = time.monotonic() - clock
                size = self._guard.charge(session.test, started, seconds)
                self._finished.put(ServedTest(test=session.test, seconds=seconds, bytes=size))
            self._end(session)

    @property
    def _name(self) -> str:
        """The name of this node on the lists."""
        membership = self._lists.membership
        return membership.name if membership else "this node"

    def _reason_against(self, session: _Session) -> str:
        """Why the tool may not start; '' if it may."""
        order = session.order
        if order is not None:
            if order.must_end():
                return order.reason or "ended"
            facts = facts_here(session.test, self._host)
            rate, limit = promised(session.test, facts), limit_of(session.test, facts)
            order.start(session.request.test, rate, limit)
        return self._guard.refusal(session.test, order)

    def _start(self, test: TestSettings) -> tuple[ToolProcess | None, Opened | Refused]:
        """The tool's process, and the response to the peer."""
        port = self._next_port()
        try:
            argv = measurement.command(test, self._host, port)
            process = ToolProcess(argv, cpus_near(test, self._host))
        except ToolMissingError as error:
            return None, Refused(refusal="failed", reason="tool_missing", message=str(error))
        deadline = time.monotonic() + START_SECONDS
        while not listens(port):
            if process.status() is not None or time.monotonic() > deadline:
                report = measurement.judge(test, process.text(), process.status() or 0)
                return process, _failed(report)
            time.sleep(0.02)
        return process, Opened(port=port, address=own_address(test))

    def _next_port(self) -> int:
        """A different port for each test, so that no client reaches the server of an earlier
        test.
        """
        first, last = self._settings.tool_ports
        for _ in range(last - first + 1):
            self._port = first if self._port >= last else self._port + 1
            if not listens(self._port):
                break
        return self._port

    def _end(self, session: _Session) -> None:
        with self._lock:
            self._ended[session.request.id] = session
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
            self._session = None
        if session.order is None:
            self._occupancy.free(PLANNED)
        elif session.reason not in ("", "timeout"):
            session.order.end(session.reason)
        session.ready.set()
        session.ended.set()


def _failed(report: Report) -> Refused:
    """The response for a test that failed before its tool listened."""
    return Refused(refusal="failed", reason=report.reason or "harness", message=report.message)
