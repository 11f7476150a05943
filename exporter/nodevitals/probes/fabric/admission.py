"""Decides whether a test may run on this node now: the gate, the budget, and the place.

The gate: no test runs while a job uses the node, or the site asked for none. In: procfs (processes
that have an accelerator open), sysfs (traffic), files and a command of the site. Out: the reason in
one word, or None. The checks made during a test take well under 0.1 s.

The budget: seconds and bytes in any hour. The place: at most one planned test, as source or target,
or one order. Nothing waits for the place: the second request is refused, so that two nodes cannot
wait for each other.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Annotated, Literal, Optional, get_args

import msgspec

from nodevitals.document.local import Local
from nodevitals.linux import tool
from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_integer
from nodevitals.probe import ProbeError
from nodevitals.probes.common.device_files import (
    WATCHERS,
    OwnProcesses,
    is_hidden,
    open_accelerators,
    sees_kernel,
)

HOUR = 3600.0

PLANNED = "a planned test"

GateReason = Literal[
    "maintenance", "job_marker", "accelerator_in_use", "processes_unseen", "link_busy"
]
GATE_REASONS: tuple[GateReason, ...] = get_args(GateReason)
COMMAND_SECONDS = 2.0
TRAFFIC_SECONDS = 0.2


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits for any hour. A test is charged to both of its nodes."""

    seconds_per_hour: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 60.0
    """Time for which test tools may run on this node."""
    bytes_per_hour: Annotated[int, msgspec.Meta(ge=1, le=10**15)] = 100_000_000_000
    """Number of bytes that tests may move on this node."""


class Spent(msgspec.Struct, array_like=True, frozen=True):
    """The cost of one test: its start (seconds since the epoch), its duration, its bytes."""

    time: float
    seconds: float
    bytes: float


class Meter:
    """The cost of the tests in the last hour. Setting the clock back frees nothing."""

    def __init__(self, settings: BudgetSettings, spent: tuple[Spent, ...] = ()) -> None:
        self.settings = settings
        self._spent = list(spent)

    def allows(self, now: float, seconds: float, size: float) -> bool:
        """Whether one more test with this highest cost fits."""
        self._spent = [spent for spent in self._spent if now - spent.time < HOUR]
        total_seconds = sum(spent.seconds for spent in self._spent) + seconds
        total_bytes = sum(spent.bytes for spent in self._spent) + size
        return (
            total_seconds <= self.settings.seconds_per_hour
            and total_bytes <= self.settings.bytes_per_hour
        )

    def charge(self, now: float, seconds: float, size: float) -> None:
        """Charge a test that has ended, whatever its outcome."""
        self._spent.append(Spent(now, seconds, size))

    def spent(self) -> tuple[Spent, ...]:
        """The costs, which must be kept over a restart."""
        return tuple(self._spent)


class Occupancy:
    """The place for one test, with the name of its holder."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = ""

    @property
    def holder(self) -> str:
        """The name of the holder; '' if the place is free."""
        return self._holder

    def take(self, holder: str) -> bool:
        """Take the place; False if it is taken."""
        with self._lock:
            if self._holder:
                return False
            self._holder = holder
            return True

    def free(self, holder: str) -> None:
        """Free the place if this holder has it."""
        with self._lock:
            if self._holder == holder:
                self._holder = ""


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions under which no test runs."""

    require_idle: bool = True
    """Whether an accelerator that a process has open keeps tests away."""
    ignore: tuple[str, ...] = WATCHERS
    """Names of processes that may have accelerators open; at most 15 characters each."""
    job_file: Optional[str] = None
    """File that exists while a job runs. Example: `/run/job`"""
    job_command: Annotated[tuple[str, ...], Local("command")] = ()
    """Command that exits with 0 while a job runs, with 1 while none does; executed before each
    test, which any other status keeps away. Example: `[/usr/local/bin/node-has-job]`"""
    maintenance_file: Optional[str] = None
    """File that exists while no tests are wanted. Example: `/run/nodevitals-maintenance`"""
    link_busy_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Share of the link's rate above which its traffic keeps tests away."""


class TestedLink(msgspec.Struct, frozen=True):
    """The link that a test would use: the files that count its traffic (below sysfs), the bytes of
    one count, and its rate in bytes per second (None if unknown: then it is never busy).
    """

    __test__ = False  # not for pytest

    files: tuple[str, ...] = ()
    bytes_per_count: int = 1
    rate: Optional[float] = None


class Gate:
    """The gate of one node. The agent's own processes, children of our parent, are no job."""

    def __init__(self, settings: GateSettings, host: Host, own: OwnProcesses | None = None) -> None:
        self.settings = settings
        self._host = host
        self._own = own or OwnProcesses(host.procfs, settings.ignore)

    def check(self, forced: bool = False) -> GateReason | None:
        """Why no test may run and a running test must stop; cheap. Only maintenance refuses a
        forced test.
        """
        if _exists(self.settings.maintenance_file):
            return "maintenance"
        if forced:
            return None
        if _exists(self.settings.job_file):
            return "job_marker"
        if self.settings.require_idle and self._accelerator_in_use():
            return "accelerator_in_use"
        return None

    def check_before_start(self, link: TestedLink, forced: bool = False) -> GateReason | None:
        """The same, with the checks that are made only before a test starts: whether processes can
        be seen, the site's command, and the traffic of the link.
        """
        reason = self.check(forced)
        if forced:
            return reason
        if reason is None and self.settings.require_idle and not self._sees_processes():
            reason = "processes_unseen"
        if reason is None and self._command_reports_job():
            reason = "job_marker"
        if reason is None and link.rate:
            share = self._traffic(link) / link.rate
            reason = "link_busy" if share > self.settings.link_busy_share else None
        return reason

    def _command_reports_job(self) -> bool:
        if not self.settings.job_command:
            return False
        try:
            return tool.run(self.settings.job_command, COMMAND_SECONDS).status != 1
        except ProbeError:
            return True  # if that is unknown, no test runs

    def _traffic(self, link: TestedLink) -> float:
        """Bytes per second, both directions together."""
        before = self._count(link)
        time.sleep(TRAFFIC_SECONDS)
        return (self._count(link) - before) * link.bytes_per_count / TRAFFIC_SECONDS

    def _count(self, link: TestedLink) -> int:
        return sum(read_integer(self._host.sys(file)) or 0 for file in link.files)

    def _sees_processes(self) -> bool:
        """Whether all processes of the node can be seen, with their open files. Not in a PID
        namespace of its own, nor without CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH.
        """
        procfs = self._host.procfs
        return sees_kernel(procfs) and not any(is_hidden(procfs, pid) for pid in self._pids())

    def _accelerator_in_use(self) -> bool:
        return any(
            open_accelerators(self._host.procfs, pid).files and not self._own.include(pid)
            for pid in self._pids()
        )

    def _pids(self) -> list[str]:
        return [name for name in list_names(self._host.procfs) if name.isdecimal()]


def _exists(path: str | None) -> bool:
    return path is not None and os.path.lexists(path)
