"""Runs one check behind the gate, and judges what its tool printed.

In: a `Check`. Out: its results, and for how long tools ran. A job that starts ends the tool within
a second; so does the end of this process, however it ends: `timeout` watches over the tool in a
session of its own, gets SIGTERM from the kernel when this process dies, also by SIGKILL, and then
ends the tool's whole process group. The output goes through pipes that are read here: a limit on
the size of files would also hold for the shared memory of NCCL.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.process import die_with_parent
from nodevitals.probes.common.device_files import OwnProcesses
from nodevitals.probes.fabric.admission import GATE_REASONS, Gate, GateSettings
from nodevitals.probes.fabric.tools import nccl, perftest
from nodevitals.probes.fabric.tools.process import listens
from nodevitals.probes.fabric.tools.report import Report
from nodevitals.probes.selfcheck.checks import Check, has_memory
from nodevitals.probes.selfcheck.results import Outcome, Result, for_all, measured
from nodevitals.probes.selfcheck.tools import ascend_dmi, dcgm, mbw, nvbandwidth

MAX_OUTPUT_BYTES = 1024 * 1024
# From SIGTERM to SIGKILL: dcgmi passes it on to the host engine. A job must not wait for a second.
GRACE_SECONDS = 0.4
REAP_SECONDS = 0.5
KILL_AFTER = "2"
"""If `timeout` must end the tool, this process is dead or hangs."""
# Exit statuses of `timeout` for programs that it could not execute.
NOT_STARTED = (125, 126, 127)


class ChildError(Exception):
    """The tool could not be started."""


class Child:
    """One run of a tool, ended by `timeout` at the latest after `seconds`."""

    def __init__(self, argv: Sequence[str], seconds: float, more: Mapping[str, str]) -> None:
        self._chunks: tuple[list[bytes], list[bytes]] = ([], [])
        self._size = 0
        self._status: int | None = None
        try:
            self._process = subprocess.Popen(
                ["timeout", f"--kill-after={KILL_AFTER}", f"{seconds:.3f}", *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=_prepare,
                env={**os.environ, "LC_ALL": "C", **more},
            )
        except (OSError, subprocess.SubprocessError) as error:
            text = error.strerror if isinstance(error, OSError) else error
            raise ChildError(f"timeout: {text}") from None
        self._selector = selectors.DefaultSelector()
        for number, stream in enumerate((self._process.stdout, self._process.stderr)):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, number)

    @property
    def session(self) -> int:
        """The session, and the process group, of all processes that the run started."""
        return self._process.pid

    @property
    def too_long(self) -> bool:
        """Whether the tool printed more than is kept."""
        return self._size > MAX_OUTPUT_BYTES

    def wait(self, seconds: float) -> int | None:
        """Read the output for at most so many seconds. Returns the status if the tool has ended:
        negative if a signal ended it.
        """
        if self._status is not None:
            return self._status
        if not self._selector.get_map():
            time.sleep(seconds)  # the tool has closed its output
        for key, _ in self._selector.select(seconds):
            self._read(key)
        if not self._ended():
            return None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.session, signal.SIGKILL)  # processes left in its group
        self._drain()
        self._status = self._process.wait()
        return self._status

    def text(self) -> str:
        """The output so far, standard error after standard output."""
        output = b"".join(self._chunks[0]) + b"\n" + b"".join(self._chunks[1])
        return output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")

    def end(self) -> None:
        """End the tool and all processes that it started. A process that hangs in the kernel is
        left behind: no signal reaches it.
        """
        if self._status is None:
            for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 0.0)):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.session, number)
                self._wait_until_ended(seconds)
            with suppress(subprocess.TimeoutExpired):
                self._status = self._process.wait(REAP_SECONDS)
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _ended(self) -> bool:
        """Whether the tool has ended. It is not reaped, so that its group number stays reserved."""
        return os.waitid(os.P_PID, self.session, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _wait_until_ended(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._ended():
            time.sleep(0.01)

    def _read(self, key: selectors.SelectorKey) -> bool:
        try:
            data = os.read(key.fd, 65536)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(key.fileobj)
            return False
        if not self.too_long:
            self._chunks[key.data].append(data)
        self._size += len(data)
        return True

    def _drain(self) -> None:
        """Read what is in the pipes, without waiting: a process in another session may hold
        them open.
        """
        for key in list(self._selector.get_map().values()):
            while self._read(key) and not self.too_long:
                pass


def _prepare() -> None:
    die_with_parent(signal.SIGTERM)
    # The worker's memory limit does not apply to a tool.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


CHECK_SECONDS = 0.1
LISTEN_SECONDS = 10.0
LOOPBACK = "127.0.0.1"
REFUSALS = (*GATE_REASONS, "memory_short", "budget")
"""Why a check was not started, or was stopped. A command has `time_limit`, too."""


class Finished(msgspec.Struct, frozen=True):
    """The end of a check: its results, the time for which a tool ran, and why it was refused or
    stopped ('' if it was not).
    """

    results: tuple[Result, ...]
    seconds: float = 0.0
    refused: str = ""


class _StoppedError(Exception):
    """The tool must stop now; the text is the reason."""


class Execution:
    """Runs checks, one at a time."""

    def __init__(
        self, host: Host, settings: GateSettings, parents: frozenset[int] | None = None
    ) -> None:
        """`parents` are the processes whose children are no job: by default our own parent."""
        self._names = settings.ignore
        self._host = host
        self._own = OwnProcesses(host.procfs, self._names, parents)
        self._gate = Gate(settings, host, self._own)
        self.closing = threading.Event()
        """Set by another thread: the check that runs is ended, as `closing`."""

    def run(self, check: Check, seconds: float, forced: bool = False) -> Finished:
        """Run a check for at most so many seconds."""
        self._own.names = self._names
        refused: str = self._gate.check_before_start(check.link, forced) or ""
        if not refused and check.mebibytes and not has_memory(check, self._host):
            refused = "memory_short"
        if refused:
            return _refused(check, refused, 0.0)
        started = time.monotonic()
        deadline = started + min(seconds, check.seconds)
        if check.kind == "dcgm":
            self._own.names = (*self._names, dcgm.HELPER)
        try:
            if check.rdma is not None:
                results = self._loopback(check, check.rdma, deadline, forced)
            else:
                text, status = self._tool(check.argv, check, deadline, forced)
                results = _judged(check, text, status)
        except _StoppedError as error:
            return _refused(check, str(error), time.monotonic() - started)
        except ChildError as error:
            results = _all(check, "harness", str(error))
        finally:
            self._own.session = 0
        return Finished(tuple(results), time.monotonic() - started)

    def _tool(
        self, argv: Sequence[str], check: Check, deadline: float, forced: bool
    ) -> tuple[str, int]:
        """The output of a tool and its status. Raises ChildError if it has none."""
        child = Child(argv, max(deadline - time.monotonic(), 0.1) + 2, check.environment)
        self._own.session = child.session
        try:
            status = self._watch(child, deadline, forced)
            if child.too_long:
                raise ChildError(f"{argv[0]} printed too much")
            if status in NOT_STARTED:
                raise ChildError(f"{argv[0]} could not be started: {child.text()}")
            return child.text(), status
        finally:
            child.end()

    def _watch(self, child: Child, deadline: float, forced: bool) -> int:
        next_check = 0.0
        while (status := child.wait(CHECK_SECONDS)) is None:
            now = time.monotonic()
            if now >= deadline:
                raise ChildError("no result in time")
            if child.too_long:
                raise ChildError("it printed too much")
            if now >= next_check:
                self._look(forced)
                next_check = time.monotonic() + CHECK_SECONDS
        return status

    def _look(self, forced: bool) -> None:
        reason = self._gate.check(forced)
        if reason or self.closing.is_set():
            raise _StoppedError(reason or "closing")

    def _loopback(
        self,
        check: Check,
        options: perftest.PerftestOptions,
        deadline: float,
        forced: bool,
    ) -> list[Result]:
        """Run the server and the client of perftest on the same port. They open no accelerator, so
        the gate need not know them.
        """
        tcp_port = _free_port()
        limit = deadline - time.monotonic() + 2
        server = Child(perftest.argv(options, tcp_port), limit, {})
        try:
            listening = time.monotonic() + LISTEN_SECONDS
            while not listens(tcp_port):
                if server.wait(CHECK_SECONDS) is not None:
                    break
                self._look(forced)
                if time.monotonic() > min(listening, deadline):
                    raise ChildError("the server did not listen in time")
            if server.too_long:
                raise ChildError("the server printed too much")
            ended = server.wait(0.0)
            if ended is not None:
                report = perftest.parse(server.text())
                raise ChildError(f"the server ended with status {ended}: {report.message}")
            client = perftest.argv(options, tcp_port, LOOPBACK)
            text, status = self._tool(client, check, deadline, forced)
        finally:
            server.end()
        return _of_report(check, perftest.parse(text), status)


def _judged(check: Check, text: str, status: int) -> list[Result]:
    if status < 0:
        return _all(check, "harness", f"{check.tool} was killed by signal {-status}")
    if check.kind == "memory":
        return mbw.parse(text, status, check.mebibytes, check.expected)
    if check.kind == "dcgm":
        return dcgm.parse(text, status, check.devices)
    if check.kind == "collective":
        return _of_report(check, nccl.parse(text), status)
    if check.tool == "ascend-dmi":
        return ascend_dmi.parse(text, status, check.kind, check.devices[0], check.expected)
    return nvbandwidth.parse(text, status, check.kind, check.devices, check.expected)


def _of_report(check: Check, report: Report, status: int) -> list[Result]:
    """The result of a tool that fabric tests use, too. Only wrong data is a failure."""
    if report.outcome != "ok":
        outcome: Outcome = "failed" if report.reason == "corruption" else "harness"
        return _all(check, outcome, f"{report.reason}: {report.message}")
    if status != 0:
        return _all(check, "harness", f"{check.tool} ended with status {status}")
    row = report.rows[-1]
    bandwidth = row.bandwidth_bytes_per_second
    if check.kind == "collective":
        bandwidth = row.bus_bandwidth_bytes_per_second
    if bandwidth is None:
        return _all(check, "harness", f"{check.tool} printed no bandwidth")
    device = check.devices[0] if check.devices else ""
    return [measured(check.kind, device, check.port, bandwidth, check.expected)]


def _all(check: Check, outcome: Outcome, message: str) -> list[Result]:
    return for_all(check.kind, check.devices, check.port, outcome, message)


def _refused(check: Check, reason: str, seconds: float) -> Finished:
    return Finished(tuple(_all(check, "refused", reason)), seconds, reason)


def _free_port() -> int:
    """A TCP port of the loopback address. Another process may take it before the server does: then
    the server fails, and the check has no result.
    """
    with socket.socket() as sock:
        sock.bind((LOOPBACK, 0))
        port: int = sock.getsockname()[1]
        return port
