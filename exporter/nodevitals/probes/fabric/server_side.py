"""The server sides of tests that peers open on this node, one at a time.

`open` and `close` run in the threads of connections, which only wait. `serve_next` runs in the
runner's thread: it starts the tool, watches it, and ends it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from contextlib import suppress

from nodevitals.linux.host import Host
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.guard import Guard
from nodevitals.probes.fabric.members import MemberLists
from nodevitals.probes.fabric.plan import Pairing
from nodevitals.probes.fabric.protocol import Closed, Opened, OpenRequest, Refused
from nodevitals.probes.fabric.results import FinishedTest, ServedTest
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tool_process import ToolMissingError, ToolProcess, listens

START_SECONDS = 3.0
OPEN_SECONDS = 8.0
"""Time that opening may take: checking the traffic, the site's command, starting the tool."""
CLOSE_SECONDS = 3.0
# How far the clocks of two nodes may differ: a slot is accepted so long before and after.
SKEW_SECONDS = 30.0
MAX_ENDED = 64


class _Session:
    """One server side: opened, ready, closing, ended."""

    def __init__(self, request: OpenRequest, test: TestSettings) -> None:
        self.request = request
        self.test = test
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
        finished: queue.SimpleQueue[FinishedTest],
    ) -> None:
        self._settings = settings
        self._host = host
        self._guard = guard
        self._lists = lists
        self._finished = finished
        self._tests = {test.key: test for test in settings.tests}
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Session] = queue.SimpleQueue()
        self._session: _Session | None = None
        self._reserved = False
        self._ended: OrderedDict[str, _Session] = OrderedDict()
        self._opened: set[tuple[int, str, str]] = set()
        self._port = settings.tool_ports[0]

    def open(self, request: OpenRequest) -> Opened | Refused:
        """Start the server side of a test, and wait until the tool listens. Each test of a slot is
        opened once, so that a source cannot spend more of the budget here than is planned.
        """
        test = self._tests.get(request.test)
        if test is None:
            return Refused(refusal="test_differs", message=f"no test {request.test!r} here")
        if not self._is_planned(request):
            return Refused(refusal="plan_differs", message="not by our list, or not in this slot")
        with self._lock:
            session = self._ended.get(request.id) or self._session
            if session is None and not self._reserved:
                if not self._is_first(request):
                    return Refused(refusal="busy", reason="repeated", message="opened before")
                session = self._session = _Session(request, test)
                self._waiting.put(session)
            elif session is None or session.request.id != request.id:
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

    def reserve(self) -> bool:
        """Refuse peers until `release`, for a test of our own; False where a peer was first."""
        with self._lock:
            self._reserved = self._session is None
            return self._reserved

    def release(self) -> None:
        """Accept peers again."""
        with self._lock:
            self._reserved = False

    def serve_next(self, seconds: float) -> None:
        """Serve the next peer that opens a test within so many seconds."""
        with suppress(queue.Empty):
            self._serve(self._waiting.get(timeout=seconds))

    def _is_planned(self, request: OpenRequest) -> bool:
        """Whether our own lists have this pairing, about now."""
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
        self._opened = {one for one in self._opened if one[0] >= oldest}
        key = (request.slot, request.source, request.test)
        if key in self._opened:
            return False
        self._opened.add(key)
        return True

    def _serve(self, session: _Session) -> None:
        process: ToolProcess | None = None
        started, clock = time.time(), time.monotonic()
        try:
            reason = self._guard.refusal(session.test)
            if reason:
                session.response = Refused(refusal="busy", reason=reason)
                return
            process, session.response = self._start(session.test)
            if process is None or isinstance(session.response, Refused):
                return
            session.ready.set()
            limit = session.test.timeout + OPEN_SECONDS
            session.reason = self._guard.watch(process, limit, session.closing)
        finally:
            if process is not None:
                process.end()
                seconds = time.monotonic() - clock
                self._guard.charge(session.test, started, seconds)
                self._finished.put(ServedTest(test=session.test, seconds=seconds))
            self._end(session)

    def _start(self, test: TestSettings) -> tuple[ToolProcess | None, Opened | Refused]:
        """The tool's process, and the response to the peer."""
        port = self._next_port()
        try:
            process = ToolProcess(measurement.command(test, self._host, port))
        except ToolMissingError as error:
            return None, Refused(refusal="failed", reason="tool_missing", message=str(error))
        deadline = time.monotonic() + START_SECONDS
        while not listens(port):
            if process.status() is not None or time.monotonic() > deadline:
                report = measurement.judge(test, process.text(), process.status() or 0)
                return process, Refused(
                    refusal="failed", reason=report.reason or "harness", message=report.message
                )
            time.sleep(0.02)
        return process, Opened(port=port)

    def _next_port(self) -> int:
        """Another port each time: a client must not reach the server of an earlier test."""
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
        session.ready.set()
        session.ended.set()
