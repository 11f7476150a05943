"""One call of a vendor's tool at a time on the whole node, within one budget of time a run.

npu-smi and hccn_tool take the driver's own locks: two at once make both slow, and some versions
fail. A lock file keeps agents and other users of it apart; whoever runs the tools without it is
waited for by looking at the processes. Neither can keep us out for ever, unless it is one of the
tools that hangs in the driver: a second one beside it would hang as well.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence

from nodevitals.linux.host import Host
from nodevitals.linux.process import processes
from nodevitals.linux.tool import Output, run
from nodevitals.probe import ProbeError

TOOLS = ("npu-smi", "hccn_tool")
POLL_SECONDS = 0.05
# No call takes so long. Who still holds the lock hangs elsewhere with the lock in its hand, and a
# tool that still runs is one that somebody watches (npu-smi info watch) or has stopped.
HOLD_SECONDS = 120.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_START_FIELD = 19  # of /proc/PID/stat, counted after the command


class Caller:
    """Calls tools until the budget is spent."""

    def __init__(self, host: Host, lock_path: str, budget_seconds: float) -> None:
        self._host = host
        self._lock_path = lock_path
        self._deadline = time.monotonic() + budget_seconds
        self.used_seconds = 0.0
        """For how long a tool of ours has run."""
        self.slowest_seconds = 0.0

    @property
    def left_seconds(self) -> float:
        """What is left of the budget."""
        return self._deadline - time.monotonic()

    def call(self, argv: Sequence[str]) -> Output:
        """Wait for the lock, then run. Raises ProbeError."""
        lock = self._locked()
        started = time.monotonic()
        try:
            return run(argv, max(0.0, self.left_seconds), keep=(lock,))
        finally:
            os.close(lock)
            took = time.monotonic() - started
            self.used_seconds += took
            self.slowest_seconds = max(self.slowest_seconds, took)

    def _locked(self) -> int:
        while True:
            descriptor = self._open()
            if self._take(descriptor):
                return descriptor
            held_since = os.fstat(descriptor).st_mtime
            os.close(descriptor)
            if time.time() - held_since > HOLD_SECONDS and not tool_at_work(self._host):
                os.unlink(self._lock_path)  # whoever holds it holds a file without a name
                continue
            if self.left_seconds <= 0:
                raise ProbeError("busy", f"another caller has held {self._lock_path} all the time")
            time.sleep(POLL_SECONDS)

    def _open(self) -> int:
        try:
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ProbeError("lock", f"{self._lock_path}: {error.strerror}") from None

    def _take(self, descriptor: int) -> bool:
        if tool_at_work(self._host):
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        same = os.path.exists(self._lock_path) and os.path.samestat(
            os.stat(self._lock_path), os.fstat(descriptor)
        )
        if same:
            os.utime(descriptor)
        return same


def tool_at_work(host: Host) -> bool:
    """Whether one of the tools runs that a second one should not join: it is young, or it hangs
    in the kernel.
    """
    uptime = _text(host, "uptime").split()
    for process in processes(host.procfs):
        if _text(host, f"{process.pid}/comm").strip() not in TOOLS or process.state == "Z":
            continue
        fields = _text(host, f"{process.pid}/stat").rpartition(")")[2].split()
        if process.state == "D" or len(fields) <= _START_FIELD or not uptime:
            return True
        if float(uptime[0]) - int(fields[_START_FIELD]) / _TICKS_A_SECOND < HOLD_SECONDS:
            return True
    return False


def _text(host: Host, path: str) -> str:
    try:
        return host.proc(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
