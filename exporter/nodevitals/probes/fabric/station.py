"""One node's part in the fabric's tests: at most one at a time, as source or as target.

One thread, the lane, does all of it: it waits for this node's meeting of the slot, or for a peer
that opens a test here, starts the tool, looks at the gate ten times a second, and ends it. Tools
die with the lane, and the lane with the worker. Answers to peers come from their connections'
threads, which only wait.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import msgspec

from nodevitals.linux.host import Host, stable_fraction
from nodevitals.probe import ProbeError
from nodevitals.probes.fabric import kind
from nodevitals.probes.fabric.budget import Meter
from nodevitals.probes.fabric.gate import WHY, Gate
from nodevitals.probes.fabric.members import Member
from nodevitals.probes.fabric.plan import Meeting, Roster
from nodevitals.probes.fabric.process import Process, ToolMissingError, listens
from nodevitals.probes.fabric.protocol import Caller, Closed, Open, Opened, Refused, TransportError
from nodevitals.probes.fabric.report import REASONS, Reason, Report, failed
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings

LOOK_SECONDS = 0.1
START_SECONDS = 3.0
OPEN_SECONDS = 8.0
"""What opening may take: the peer's look at its traffic, its command, its tool's start."""
CLOSE_SECONDS = 3.0
# How far apart clocks may be: a slot is accepted so long before and after.
SKEW_SECONDS = 30.0
ENDED_REMEMBERED = 64
# Of a slot: who has only just begun, or had to wait, begins no test later than this.
LATEST = 0.9


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test that was ours to start. `skipped` is a word of SKIPS, or ''."""

    test: TestSettings
    source: str
    peer: str
    time: float
    seconds: float = 0.0
    skipped: str = ""
    report: Report | None = None


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A server side that ran here: what it cost."""

    test: TestSettings
    seconds: float


class Roll(msgspec.Struct, frozen=True):
    """Who takes part, and who of them we are."""

    name: str
    members: dict[str, Member]
    roster: Roster


class _Serving:
    """A server side: opened, started, closed, ended."""

    def __init__(self, request: Open, test: TestSettings) -> None:
        self.request = request
        self.test = test
        self.answer: Opened | Refused = Refused(refusal="failed", reason="harness")
        self.answered = threading.Event()
        self.closing = threading.Event()
        self.ended = threading.Event()
        self.why = ""


class Station:
    """The lane, and what others may ask of it."""

    def __init__(
        self,
        settings: FabricSettings,
        host: Host,
        caller: Caller,
        meter: Meter,
        load: Callable[[], Roll],
    ) -> None:
        self._settings = settings
        self._host = host
        self._caller = caller
        self._meter = meter
        self._load = load
        self._gate = Gate(settings.gate, host)
        self._tests = {test.key: test for test in settings.tests}
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Serving] = queue.SimpleQueue()
        self._serving: _Serving | None = None
        self._visiting = False
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._results: queue.SimpleQueue[Result | Served] = queue.SimpleQueue()
        self.roll: Roll | None = None
        self._slot = self._called = -1
        self._port = settings.tool_ports[0]
        self.trouble = ""
        """Why the members are not known as they should be, in one line."""
        self.broken: Exception | None = None
        """Why the lane has ended."""

    def start(self) -> None:
        """Begin; the roll is called once before, so that its trouble is told at once."""
        self.roll = self._load()
        threading.Thread(target=self._live, name="lane", daemon=True).start()

    def results(self) -> list[Result | Served]:
        """What has happened since the last call."""
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._results.get_nowait())
        return found

    # What peers ask, each from a thread of its own.

    def open(self, request: Open) -> Opened | Refused:
        """Start the server side of a test, and wait until it listens."""
        test = self._tests.get(request.test)
        if test is None:
            return Refused(refusal="test_differs", message=f"no test {request.test!r} here")
        if not self._is_planned(request):
            return Refused(refusal="plan_differs", message="not by our list, or not in this slot")
        with self._lock:
            serving = self._serving
            if serving is None and not self._visiting:
                serving = self._serving = _Serving(request, test)
                self._jobs.put(serving)
            elif serving is None or serving.request.id != request.id:
                return Refused(refusal="busy", reason="testing")
        if not serving.answered.wait(OPEN_SECONDS):
            serving.closing.set()
            return Refused(refusal="failed", reason="timeout", message="the tool did not start")
        return serving.answer

    def close(self, identity: str) -> Closed:
        """End a server side; says why it had ended before, if it had."""
        with self._lock:
            serving = self._serving
        if serving is not None and serving.request.id == identity:
            serving.closing.set()
            serving.ended.wait(CLOSE_SECONDS)
            return Closed(ended=serving.why)
        return Closed(ended=self._ended.get(identity, ""))

    def _is_planned(self, request: Open) -> bool:
        """Whether our own list has this meeting, about now."""
        roll, length = self.roll, self._settings.slot
        now = time.time()
        if roll is None or request.source not in roll.roster:
            return False
        begin = request.slot * length
        if not begin - SKEW_SECONDS <= now <= begin + length + SKEW_SECONDS:
            return False
        return roll.roster.meeting(roll.name, request.slot) == Meeting(request.source, roll.name)

    # The lane.

    def _live(self) -> None:
        try:
            while True:
                self._step()
        except Exception as error:  # noqa: BLE001 - the boundary: the next run raises it
            self.broken = error

    def _step(self) -> None:
        """Serve a peer, or begin our own meeting when it is due; wait half a second at most."""
        with suppress(queue.Empty):
            self._serve(self._jobs.get(timeout=min(0.5, self._settings.slot / 60)))
        slot = int(time.time() // self._settings.slot)
        meeting = self._due(slot)
        if meeting is None or not self._may_visit():
            return
        self._slot = slot
        try:
            for test in self._settings.tests:
                self._results.put(self._measure(test, meeting, slot))
        finally:
            with self._lock:
                self._visiting = False

    def _due(self, slot: int) -> Meeting | None:
        """Our meeting of this slot, once, when it is time to begin it."""
        self._call_roll(slot)
        if slot == self._slot or self.roll is None:
            return None
        meeting = self.roll.roster.meeting(self.roll.name, slot)
        if meeting is None or meeting.source != self.roll.name:
            self._slot = slot
            return None
        # In the middle half of the slot: a clock that is off by a quarter of it does no harm.
        fraction = stable_fraction(meeting.source, meeting.target, str(slot))
        into = time.time() / self._settings.slot - slot
        if into > LATEST:
            self._slot = slot
        return meeting if 0.25 + 0.5 * fraction <= into <= LATEST else None

    def _may_visit(self) -> bool:
        """Unless a peer has come first; while it is true, none does."""
        with self._lock:
            self._visiting = self._serving is None
            return self._visiting

    def _call_roll(self, slot: int) -> None:
        """Read the lists again, once a slot; the last good ones stand while these are not."""
        if slot == self._called:
            return
        self._called = slot
        try:
            self.roll = self._load()
            self.trouble = ""
        except ProbeError as error:
            self.trouble = error.message

    def _measure(self, test: TestSettings, meeting: Meeting, slot: int) -> Result:
        """One test, from the gate to the figure."""
        assert self.roll is not None
        peer = self.roll.members[meeting.target]
        began = time.time()
        result = Result(test=test, source=meeting.source, peer=meeting.target, time=began)
        why = self._refusal(test)
        if why:
            return msgspec.structs.replace(result, skipped=why)
        identity = uuid.uuid4().hex
        request = Open(id=identity, source=meeting.source, slot=slot, test=test.key)
        try:
            opened = self._opened(peer, request)
        except TransportError as error:
            if error.connected:
                self._close(peer, identity)
            return msgspec.structs.replace(result, report=failed(error.reason, str(error)))
        if isinstance(opened, Refused):
            return _refused(result, opened)
        clock = time.monotonic()
        report, stopped = self._run_client(test, peer, opened.port)
        seconds = time.monotonic() - clock
        ended = self._close(peer, identity)
        self._meter.charge(began, seconds, test.total_bytes)
        if ended in WHY and report is not None and report.outcome != "ok":
            stopped = "peer_busy"  # its gate closed, and the tool with it
        return msgspec.structs.replace(
            result, seconds=seconds, skipped=stopped, report=None if stopped else report
        )

    def _refusal(self, test: TestSettings) -> str:
        """Why we do not test now; '' for go."""
        why = self._gate.before(kind.link_of(test, self._host))
        if why:
            return why
        fits = self._meter.allows(time.time(), test.timeout, test.total_bytes)
        return "" if fits else "budget"

    def _opened(self, peer: Member, request: Open) -> Opened | Refused:
        """Ask twice where an answer got lost: the second is answered like the first. TCP itself
        has asked several times for a connection.
        """
        try:
            return self._caller.open(peer.host, peer.port, request, OPEN_SECONDS + 1)
        except TransportError as error:
            if error.reason == "harness" or not error.connected:
                raise
            return self._caller.open(peer.host, peer.port, request, OPEN_SECONDS + 1)

    def _close(self, peer: Member, identity: str) -> str:
        """Say that we are done. Where that is lost, the peer's own deadline ends it."""
        for _ in range(2):
            try:
                return self._caller.close(peer.host, peer.port, identity, CLOSE_SECONDS + 1).ended
            except TransportError as error:
                if not error.connected:
                    break
        return ""

    def _run_client(self, test: TestSettings, peer: Member, port: int) -> tuple[Report | None, str]:
        """The report, or why it was stopped."""
        try:
            process = Process(kind.command(test, self._host, port, peer.host))
        except ToolMissingError as error:
            return failed("tool_missing", str(error)), ""
        try:
            why = self._watch(process, test.timeout, threading.Event())
            if why == "timeout":
                return failed("timeout", f"no result in {test.timeout:g} s"), ""
            if why:
                return None, why
            return kind.judge(test, process.text(), process.status() or 0), ""
        finally:
            process.end()

    def _watch(self, process: Process, seconds: float, closing: threading.Event) -> str:
        """Wait for the end: '' where it came, else `timeout`, or a word of the gate."""
        deadline = time.monotonic() + seconds
        while process.status() is None and not closing.wait(LOOK_SECONDS):
            why = self._gate.look()
            if why:
                return why
            if time.monotonic() > deadline:
                return "timeout"
        return ""

    def _serve(self, serving: _Serving) -> None:
        """The server side of a peer's test."""
        process: Process | None = None
        began, clock = time.time(), time.monotonic()
        try:
            why = self._refusal(serving.test)
            if why:
                serving.answer = Refused(refusal="busy", reason=why)
                return
            process, serving.answer = self._start_server(serving.test)
            if process is None or isinstance(serving.answer, Refused):
                return
            serving.answered.set()
            limit = serving.test.timeout + OPEN_SECONDS
            serving.why = self._watch(process, limit, serving.closing)
        finally:
            if process is not None:
                process.end()
                seconds = time.monotonic() - clock
                self._meter.charge(began, seconds, serving.test.total_bytes)
                self._results.put(Served(test=serving.test, seconds=seconds))
            self._forget(serving)

    def _start_server(self, test: TestSettings) -> tuple[Process | None, Opened | Refused]:
        port = self._next_port()
        try:
            process = Process(kind.command(test, self._host, port))
        except ToolMissingError as error:
            return None, Refused(refusal="failed", reason="tool_missing", message=str(error))
        deadline = time.monotonic() + START_SECONDS
        while not listens(port):
            if process.status() is not None or time.monotonic() > deadline:
                report = kind.judge(test, process.text(), process.status() or 0)
                return process, Refused(
                    refusal="failed", reason=report.reason or "harness", message=report.message
                )
            time.sleep(0.02)
        return process, Opened(port=port)

    def _next_port(self) -> int:
        """Another one each time: a stale server must not take the wrong client."""
        first, last = self._settings.tool_ports
        for _ in range(last - first + 1):
            self._port = first if self._port >= last else self._port + 1
            if not listens(self._port):
                break
        return self._port

    def _forget(self, serving: _Serving) -> None:
        with self._lock:
            self._ended[serving.request.id] = serving.why
            if len(self._ended) > ENDED_REMEMBERED:
                self._ended.popitem(last=False)
            self._serving = None
        serving.answered.set()
        serving.ended.set()


def _refused(result: Result, refusal: Refused) -> Result:
    """What a refusal means: not now, not by their list, or their tool has failed."""
    if refusal.refusal == "busy":
        return msgspec.structs.replace(result, skipped="peer_busy")
    if refusal.refusal == "plan_differs":
        return msgspec.structs.replace(result, skipped="plan_differs")
    # A peer of another version may have words that we do not know.
    fallback: Reason = "harness"
    reason = next((one for one in REASONS if one == refusal.reason), fallback)
    return msgspec.structs.replace(result, report=failed(reason, refusal.message))
