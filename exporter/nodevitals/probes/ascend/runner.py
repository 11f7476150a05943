"""Runs the vendor's tools one at a time on the whole node, within one time budget per run.

npu-smi and hccn_tool take locks of the driver: two at once make both slow, and some versions fail.
A lock file (flock) separates agents and scripts that use it; a tool that runs without the lock is
found among the processes. Neither can block the probe for ever, unless it is a tool that hangs in
the driver: a second one beside it would hang as well.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence

from nodevitals.linux.host import Host
from nodevitals.linux.process import processes
from nodevitals.linux.sysfs import read_text
from nodevitals.linux.tool import run
from nodevitals.probe import ProbeError

TOOLS = ("npu-smi", "hccn_tool")
POLL_SECONDS = 0.05
# No call takes so long. A process that holds the lock for longer hangs elsewhere, and a tool that
# runs for longer is a watch (npu-smi info watch) or was stopped.
HOLD_SECONDS = 120.0
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_START_FIELD = 19  # of /proc/PID/stat, counted after the command


class ToolRunner:
    """Runs tools until the budget is spent."""

    def __init__(self, host: Host, lock_path: str, budget_seconds: float) -> None:
        self._host = host
        self._lock_path = lock_path
        self._deadline = time.monotonic() + budget_seconds
        self.used_seconds = 0.0
        """Time during which a tool of this runner has run."""
        self.slowest_seconds = 0.0
        """Duration of the slowest tool."""

    @property
    def left_seconds(self) -> float:
        """What is left of the budget."""
        return self._deadline - time.monotonic()

    def run(self, argv: Sequence[str]) -> str:
        """Wait for the lock, then run the program and return what it printed.

        Raises ProbeError: `busy`, `lock`, or as `tool.run`.
        """
        lock = self._acquire_lock()
        started = time.monotonic()
        try:
            return run(argv, max(0.0, self.left_seconds), keep=(lock,)).text
        finally:
            os.close(lock)
            duration = time.monotonic() - started
            self.used_seconds += duration
            self.slowest_seconds = max(self.slowest_seconds, duration)

    def _acquire_lock(self) -> int:
        while True:
            descriptor = self._open_lock()
            if self._try_lock(descriptor):
                return descriptor
            held_since = os.fstat(descriptor).st_mtime
            os.close(descriptor)
            if time.time() - held_since > HOLD_SECONDS and not tool_is_running(self._host):
                os.unlink(self._lock_path)  # its holder keeps a file without a name
                continue
            if self.left_seconds <= 0:
                text = f"another process runs {' or '.join(TOOLS)}, or holds {self._lock_path}"
                raise ProbeError("busy", text)
            time.sleep(POLL_SECONDS)

    def _open_lock(self) -> int:
        try:
            return os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ProbeError("lock", f"{self._lock_path}: {error.strerror}") from None

    def _try_lock(self, descriptor: int) -> bool:
        if tool_is_running(self._host):
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


def tool_is_running(host: Host) -> bool:
    """Whether one of the tools runs beside which no second one may start: it started within
    HOLD_SECONDS, or it hangs in the kernel.
    """
    uptime = (read_text(host.proc("uptime")) or "").split()
    for process in processes(host.procfs):
        command = read_text(host.proc(f"{process.pid}/comm"))
        if command not in TOOLS or process.state == "Z":
            continue
        stat = read_text(host.proc(f"{process.pid}/stat")) or ""
        fields = stat.rpartition(")")[2].split()
        if process.state == "D" or len(fields) <= _START_FIELD or not uptime:
            return True
        if float(uptime[0]) - int(fields[_START_FIELD]) / _TICKS_PER_SECOND < HOLD_SECONDS:
            return True
    return False
