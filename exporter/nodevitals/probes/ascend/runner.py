"""Runs the vendor's tools one at a time on the whole node, within one time budget per run.

npu-smi and hccn_tool take locks of the driver: two at once make both slow, and some versions fail.
A lock file (flock) separates agents and scripts that use it; a tool that runs without the lock is
found among the processes. Neither can block the probe for ever, unless it is a tool that hangs in
the driver: a second one beside it would hang as well. Without the tool there is no lock file.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence

from nodevitals.linux.host import Host
from nodevitals.linux.locks import LockFile
from nodevitals.linux.process import processes, seconds_since_start
from nodevitals.linux.sysfs import read_text
from nodevitals.linux.tool import run
from nodevitals.probe import ProbeError

TOOLS = ("npu-smi", "hccn_tool")
POLL_SECONDS = 0.05
# No call takes so long. A process that holds the lock for longer hangs elsewhere, and a tool that
# runs for longer is a watch (npu-smi info watch) or was stopped.
HOLD_SECONDS = 120.0


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

        Raises ProbeError: `busy`, `lock`, `crashed`, or as `tool.run`.
        """
        if shutil.which(argv[0], os.F_OK) is None:
            raise ProbeError("missing", f"{argv[0]}: No such file or directory")
        lock = self._acquire_lock()
        started = time.monotonic()
        try:
            output = run(argv, max(0.0, self.left_seconds), keep=(lock.descriptor,))
            if output.status < 0:  # what it printed may be a part
                text = f"{' '.join(argv)} was ended by signal {-output.status}"
                raise ProbeError("crashed", text)
            return output.text
        finally:
            lock.close()
            duration = time.monotonic() - started
            self.used_seconds += duration
            self.slowest_seconds = max(self.slowest_seconds, duration)

    def _acquire_lock(self) -> LockFile:
        while True:
            lock = LockFile(self._lock_path)
            running = tool_is_running(self._host)
            if not running and lock.try_lock():
                return lock
            try:
                problem = f"another process runs {' or '.join(TOOLS)}"
                if not running:
                    problem = self._held(lock)
            finally:
                lock.close()
            if problem and self.left_seconds <= 0:
                raise ProbeError("busy", problem)
            time.sleep(POLL_SECONDS)

    def _held(self, lock: LockFile) -> str:
        """Who holds the lock; '' where it was removed from a process that has hung with it."""
        holder = lock.holder(self._host)
        if holder is None:
            return f"{self._lock_path} is held, by a process of another pid namespace"
        if holder.seconds > HOLD_SECONDS:
            lock.remove()
            return ""
        return f"process {holder.pid} holds {self._lock_path}"


def tool_is_running(host: Host) -> bool:
    """Whether one of the tools runs beside which no second one may start: it started within
    HOLD_SECONDS, or it hangs in the kernel.
    """
    try:
        running = list(processes(host.procfs))
    except OSError:
        return False  # the lock is what remains
    for process in running:
        command = read_text(host.proc(f"{process.pid}/comm"))
        if command not in TOOLS or process.state == "Z":
            continue
        age = seconds_since_start(host.procfs, process.pid)
        if process.state == "D" or age is None or age < HOLD_SECONDS:
            return True
    return False
