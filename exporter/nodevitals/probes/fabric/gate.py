"""The gate: no test runs while a job uses the node, or the site asked for none.

In: procfs (processes that have an accelerator open), sysfs (traffic), files and a command of the
site. Out: the reason in one word, or None. The checks made during a test take well under 0.1 s.
"""

from __future__ import annotations

import os
import re
import time
from typing import Annotated, Literal, get_args

import msgspec

from nodevitals.linux import tool
from nodevitals.linux.host import Host
from nodevitals.linux.process import parse_process_stat
from nodevitals.linux.sysfs import list_names, read_integer, read_text
from nodevitals.probe import ProbeError

GateReason = Literal[
    "maintenance", "job_marker", "accelerator_in_use", "processes_unseen", "link_busy"
]
GATE_REASONS: tuple[GateReason, ...] = get_args(GateReason)

_ACCELERATOR = re.compile(r"/dev/(?:nvidia|davinci)\d+")
COMMAND_SECONDS = 2.0
TRAFFIC_SECONDS = 0.2
# Monitoring programs keep the devices open for as long as they run. The kernel cuts the names of
# processes after 15 characters.
WATCHERS = (
    "nvidia-persiste",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-smi",
    "nvidia-fabricma",
    "npu-exporter",
    "npu-smi",
    "dcmi",
)


class GateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions under which no test runs."""

    require_idle: bool = True
    """Whether an accelerator that a process has open keeps tests away."""
    ignore: tuple[str, ...] = WATCHERS
    """Names of processes that may have accelerators open; at most 15 characters each."""
    job_file: str | None = None
    """File that exists while a job runs. Example: `/run/job`"""
    job_command: tuple[str, ...] = ()
    """Command that exits with 0 while a job runs, with 1 while none does; executed before each
    test, which any other status keeps away. Example: `[/usr/local/bin/node-has-job]`"""
    maintenance_file: str | None = None
    """File that exists while no tests are wanted. Example: `/run/nodevitals-maintenance`"""
    link_busy_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    """Share of the link's rate above which its traffic keeps tests away."""


class TestedLink(msgspec.Struct, frozen=True):
    """The link that a test would use: the files that count its traffic (below sysfs), the bytes of
    one count, and its rate in bytes per second (None where unknown: then it is never busy).
    """

    __test__ = False  # not for pytest

    files: tuple[str, ...] = ()
    bytes_per_count: int = 1
    rate: float | None = None


class Gate:
    """The gate of one node. Processes of this agent, children of our parent, are no job."""

    def __init__(self, settings: GateSettings, host: Host) -> None:
        self.settings = settings
        self._host = host
        self._parent = os.getppid()

    def check(self) -> GateReason | None:
        """Why no test may run, and a running one must stop; cheap."""
        if _exists(self.settings.maintenance_file):
            return "maintenance"
        if _exists(self.settings.job_file):
            return "job_marker"
        if self.settings.require_idle and self._accelerator_in_use():
            return "accelerator_in_use"
        return None

    def check_before_start(self, link: TestedLink) -> GateReason | None:
        """The same, with the checks that are made only before a test starts: whether processes can
        be seen, the site's command, and the traffic of the link.
        """
        found = self.check()
        if found is None and self.settings.require_idle and not self._sees_processes():
            found = "processes_unseen"
        if found is None and self._command_reports_job():
            found = "job_marker"
        if found is None and link.rate:
            share = self._traffic(link) / link.rate
            found = "link_busy" if share > self.settings.link_busy_share else None
        return found

    def _command_reports_job(self) -> bool:
        if not self.settings.job_command:
            return False
        try:
            return tool.run(self.settings.job_command, COMMAND_SECONDS).status != 1
        except ProbeError:
            return True  # unknown: then no test runs

    def _traffic(self, link: TestedLink) -> float:
        """Bytes per second, both directions together."""
        before = self._count(link)
        time.sleep(TRAFFIC_SECONDS)
        return (self._count(link) - before) * link.bytes_per_count / TRAFFIC_SECONDS

    def _count(self, link: TestedLink) -> int:
        return sum(read_integer(self._host.sys(file)) or 0 for file in link.files)

    def _sees_processes(self) -> bool:
        """Whether all processes of the node can be seen, with their open files. Not in a PID
        namespace of its own, where there is no kthreadd, nor without CAP_SYS_PTRACE and
        CAP_DAC_READ_SEARCH.
        """
        kthreadd = read_text(self._host.proc("2/stat")) or ""
        names = list_names(self._host.procfs)
        return "(kthreadd)" in kthreadd and not any(
            self._is_hidden(name) for name in names if name.isdecimal()
        )

    def _is_hidden(self, pid: str) -> bool:
        """Whether its open files may not be seen: their names, or what they are."""
        folder = os.path.join(self._host.procfs, pid, "fd")
        try:
            for name in os.listdir(folder)[:1]:
                os.readlink(os.path.join(folder, name))
        except PermissionError:  # also for one that ends meanwhile
            return os.path.exists(os.path.join(self._host.procfs, pid))
        except OSError:
            return False
        return False

    def _accelerator_in_use(self) -> bool:
        names = list_names(self._host.procfs)
        return any(self._has_accelerator(name) for name in names if name.isdecimal())

    def _has_accelerator(self, pid: str) -> bool:
        folder = os.path.join(self._host.procfs, pid, "fd")
        return any(
            _ACCELERATOR.fullmatch(_target_of(os.path.join(folder, name)))
            for name in list_names(folder)
        ) and not self._is_ignored(pid)

    def _is_ignored(self, pid: str) -> bool:
        """Whether this process is no job: one of the agent's, or a monitoring program."""
        try:
            with open(os.path.join(self._host.procfs, pid, "stat"), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return True  # it has ended
        stat = parse_process_stat(text)
        name = text.partition("(")[2].rpartition(")")[0]
        return name in self.settings.ignore or (stat is not None and stat.parent == self._parent)


def _target_of(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile, or not readable
        return ""


def _exists(path: str | None) -> bool:
    return path is not None and os.path.lexists(path)
