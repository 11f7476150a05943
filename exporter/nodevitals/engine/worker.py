"""A worker: a forked child that runs one probe on one target; it may hang or crash alone.

In: a Job, then a Run for each run, on the channel. Out: a ProbeResult frame for each Run. Or in: a
Load, and out: the configuration. The worker sets the limits below itself; the agent enforces the
deadline.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import socket
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from nodevitals.engine.protocol import Job, Load, Run, ToWorker
from nodevitals.engine.worker_end import Outlet, Wakeups, Watch
from nodevitals.errors import Absent, ProbeError
from nodevitals.linux.capabilities import keep_own
from nodevitals.linux.process import WORKER, die_with_parent, set_name, set_nice
from nodevitals.probe import Probe, Readings
from nodevitals.wire import (
    MAX_REASON_CHARACTERS,
    MAX_STATE_BYTES,
    MAX_TRACE_CHARACTERS,
    FrameReader,
    Outcome,
    ProbeResult,
    ProtocolError,
    Sample,
    Wanted,
    decode,
    encode,
    one_line,
)

# RLIMIT_DATA ends a process at 248 MiB and still permits NVML's large reservations, which
# RLIMIT_AS does not.
DATA_LIMIT_BYTES = 256 * 1024 * 1024


# A process that runs one target after the other ends after so many runs: what runs leave behind,
# such as fragmented memory, must not grow for ever.
MAX_SHARED_RUNS = 10_000
MAX_SHARED_KIBIBYTES = 64 * 1024


def prepare() -> None:
    """Decode each type that workers decode once in the fork server. msgspec caches what it needs in
    the type: workers share that memory and need no time for it.
    """
    from nodevitals import catalogue, probes

    _prepare_type(ToWorker)
    for kind in (*probes.registered().values(), catalogue.probe_class("history")):
        # A site's probe with an unusable type fails in its own worker, with a traceback.
        with contextlib.suppress(Exception):
            _prepare_type(kind.TargetSettings or kind.Settings)
            _prepare_type(kind.State)
            _prepare_type(kind.Message)
            encode(kind.State())


def _prepare_type(kind: Any) -> None:
    with contextlib.suppress(ProtocolError):
        decode(b"\xc0", kind)


def become_worker(channel_fd: int, stderr_fd: int, server_pid: int) -> NoReturn:
    """Turn a fresh fork of the fork server into a worker; never returns."""
    status = 1
    try:
        _confine(channel_fd, stderr_fd, server_pid)
        _serve(socket.socket(fileno=channel_fd))
        status = 0
    finally:
        # Does not run the fork server's exit hooks, nor flush its buffers.
        os._exit(status)


def _confine(channel_fd: int, stderr_fd: int, server_pid: int) -> None:
    os.setsid()
    set_nice(0)  # not the fork server's priority
    die_with_parent(signal.SIGKILL)
    if os.getppid() != server_pid:  # it died between fork and prctl
        os._exit(1)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(stderr_fd, 1)
    os.dup2(stderr_fd, 2)
    os.closerange(3, channel_fd)
    os.closerange(channel_fd + 1, 256)
    _set_limit(resource.RLIMIT_DATA, DATA_LIMIT_BYTES)
    _set_limit(resource.RLIMIT_CORE, 0)
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as handle:
        handle.write("1000")  # out of memory, the kernel should kill a probe before any job
    faulthandler.enable(file=2)
    gc.enable()


def _set_limit(which: int, limit: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    # Only the soft limit: a vendor's tool that a probe runs gets the hard one back.
    resource.setrlimit(which, (limit, hard))


def _serve(channel: socket.socket) -> None:
    reader = FrameReader()
    outlet = Outlet(channel)
    jobs = _Jobs(outlet)
    wakeups = Wakeups(channel, outlet)
    while data := wakeups.receive():
        for body in reader.feed(data):
            message = decode(body, ToWorker)
            if isinstance(message, Load):
                _load(message, channel)
                return
            if isinstance(message, Job):
                jobs.take(message)
                continue
            result = jobs.run(message)
            stays = result.stays
            # An agent that is gone may have left runs to execute: the history's last batches.
            with contextlib.suppress(ConnectionError):
                stays &= outlet.send(result)
            if not stays:
                return
            wakeups.after_run(*jobs.wakes_on())
    jobs.close()


def _load(message: Load, channel: socket.socket) -> None:
    from nodevitals.engine.configuration import framed, load  # no probe needs it

    with contextlib.suppress(ConnectionError):
        channel.sendall(framed(load(message.files)))


class _Jobs:
    """Runs jobs: the same one again and again, or in a shared process a new one before each run."""

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._runner: _Runner | None = None

    def take(self, job: Job) -> None:
        """Use this job for the next runs."""
        # The agent has checked the variable, and has logged where the kernel refuses it.
        with contextlib.suppress(OSError, ValueError):
            keep_own(job.probe)
        set_name(f"{WORKER}{job.probe}")
        self.close()
        self._runner = _Runner(job, self._outlet)

    def run(self, run: Run) -> ProbeResult:
        """Run the last job once. Raises ProtocolError where there was none."""
        if self._runner is None:
            raise ProtocolError("a run before its job")
        return self._runner.run(run)

    def wakes_on(self) -> tuple[Wanted, int | None]:
        """The target that has just run, and the descriptor that is readable when it must run."""
        assert self._runner is not None
        job = self._runner.job
        return Wanted(job.probe, job.target), self._runner.wakes_on()

    def close(self) -> None:
        """Release what the probe holds."""
        if self._runner is not None:
            self._runner.close()


class _End(NamedTuple):
    """How a run ended."""

    outcome: Outcome
    reason: str = ""
    text: str = ""
    trace: str = ""
    state: bytes = b""
    stays: bool = False


class _Runner:
    """Runs one target's probe, from its first run in this process to its last."""

    def __init__(self, job: Job, outlet: Outlet) -> None:
        self.job = job
        self._outlet = outlet
        self._probe: Probe | None = None
        self._declared: set[tuple[str, tuple[str, ...]]] = set()

    def run(self, run: Run) -> ProbeResult:
        """Run once. The process is used again only where the run succeeded or allows it: after a
        failure its handles may be broken, and a driver may need a new process.
        """
        started = time.monotonic()
        watch = Watch(self._outlet, run.report_at)
        try:
            end, readings = self._attempt(run, watch)
        finally:
            watch.stop()
        stays = end.stays and not self.job.shared
        if not stays:
            self.close()
        if self.job.shared and end.outcome in ("ok", "absent"):
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            stays = not is_worn(self._outlet.finished() + 1, most)
        return ProbeResult(
            outcome=end.outcome,
            samples=tuple(readings.samples),
            increments=tuple(self._news(readings.increments)),
            conditions=tuple(readings.conditions),
            events=tuple(readings.events),
            messages=tuple(readings.messages),
            notes=tuple(readings.notes),
            reason=one_line(end.reason, MAX_REASON_CHARACTERS),
            text=one_line(end.text),
            trace=end.trace[-MAX_TRACE_CHARACTERS:],
            duration_seconds=time.monotonic() - started,
            state=end.state,
            stays=stays,
        )

    def _attempt(self, run: Run, watch: Watch) -> tuple[_End, Readings]:
        readings = Readings()
        try:
            # Imported only here: the history's writer is a worker too, and needs no probe classes.
            from nodevitals.catalogue import probe_class

            kind = probe_class(self.job.probe)
            readings = _readings(kind, run)
            readings.watch = watch
            if self._probe is None:
                self._probe = self._opened(kind)
            self._probe.state = _decoded(run.state, kind.State)
            try:
                self._probe.run(readings)
            except ProbeError as error:
                state = _changed_state(self._probe, run.state)
                end = _End("error", error.reason, error.message, state=state, stays=error.stays)
                return end, readings
            state = _changed_state(self._probe, run.state)
            return _End("ok", state=state, stays=self._probe.stays()), readings
        except Absent as absent:
            outcome: Outcome = "error" if self.job.required else "absent"
            return _End(outcome, "absent", str(absent)), Readings()
        except ProbeError as error:
            return _End("error", error.reason, error.message), readings
        except Exception as error:
            # Any other exception of a probe is a bug, which is reported with its traceback.
            text = f"{type(error).__name__}: {error} ({_place_of(error)})"
            return _End("error", "exception", text, traceback.format_exc()), Readings()

    def _news(self, increments: Iterable[Sample]) -> Iterator[Sample]:
        """The increments that are not 0, or whose counter is new: most runs of the kernel log
        declare a hundred counters and count nothing.
        """
        for increment in increments:
            key = (increment.family, increment.labels)
            if increment.value or key not in self._declared:
                self._declared.add(key)
                yield increment

    def _opened(self, kind: type[Probe]) -> Probe:
        job = self.job
        settings = decode(job.settings, kind.TargetSettings or kind.Settings)
        probe = kind(job.host, settings, job.target, job.timing)
        probe.open()
        return probe

    def wakes_on(self) -> int | None:
        """The descriptor of an open probe, if it has one."""
        with contextlib.suppress(Exception):
            return None if self._probe is None else self._probe.wakes_on()
        return None

    def close(self) -> None:
        """Release what the probe holds."""
        probe, self._probe = self._probe, None
        if probe is not None:
            with contextlib.suppress(Exception):
                probe.close()


def is_worn(runs: int, kibibytes: int) -> bool:
    """Whether a shared process should end, after so many runs and with this peak memory."""
    return runs >= MAX_SHARED_RUNS or kibibytes > MAX_SHARED_KIBIBYTES


def _readings(kind: type[Probe], run: Run) -> Readings:
    messages = []
    for body in run.received:
        with contextlib.suppress(ProtocolError):  # from a sender of another version
            messages.append(decode(body, kind.Message))
    return Readings(tuple(messages), run.forgotten, kind.families, run.interrupted)


def _decoded(state: bytes, kind: Any) -> Any:
    """The decoded state; a new one where there is none, or where another version's does not fit."""
    try:
        return decode(state, kind) if state else kind()
    except ProtocolError:
        return kind()


def _changed_state(probe: Probe, before: bytes) -> bytes:
    """The state for the next run, or b'' where the run has not changed it: an unchanged new state
    must not replace a stored one that could not be loaded.
    """
    state = encode(probe.state)
    if state == (before or encode(probe.State())):
        return b""
    if len(state) > MAX_STATE_BYTES:
        raise ValueError(f"a state of {len(state)} bytes, over {MAX_STATE_BYTES}")
    return state


def _place_of(error: Exception) -> str:
    """File and line in the probe's code where the error was raised, directly or in a call."""
    frames = traceback.extract_tb(error.__traceback__)
    home = os.sep.join(("", "nodevitals", "probes", ""))
    own = [frame for frame in frames if home in frame.filename]
    frame = own[-1] if own else frames[-1]
    return f"{frame.filename}:{frame.lineno}"
