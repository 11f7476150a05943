"""May we test? Not while anybody computes, moves data, or asked for quiet.

In: procfs (who has an accelerator open), sysfs (traffic), files and a command of the site. Out: why
not, in one word, or None. What is asked during a test takes well under a tenth of a second.
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
from nodevitals.linux.sysfs import list_names, read_integer
from nodevitals.probe import ProbeError

Why = Literal["maintenance", "job_marker", "accelerator_in_use", "processes_unseen", "link_busy"]
WHY: tuple[Why, ...] = get_args(Why)

_ACCELERATOR = re.compile(r"/dev/(?:nvidia|davinci)\d+")
COMMAND_SECONDS = 2.0
TRAFFIC_SECONDS = 0.2
# Watchers, which have the devices open for as long as they run: names as the kernel has them,
# which cuts them after 15 characters.
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
    """What keeps tests away. `command` says by exit status 0 that a job is there."""

    require_idle: bool = True
    ignore: tuple[str, ...] = WATCHERS
    job_file: str | None = None
    job_command: tuple[str, ...] = ()
    maintenance_file: str | None = None
    link_busy_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1


class Link(msgspec.Struct, frozen=True):
    """The link that a test would use: files that count what it carries (below sysfs), how many
    bytes one count is, and its bytes a second (None where unknown: then it is never busy).
    """

    files: tuple[str, ...] = ()
    bytes_per_count: int = 1
    rate: float | None = None


class Gate:
    """Looks on one node. Our own processes are no job: those of our parent, the fork server."""

    def __init__(self, settings: GateSettings, host: Host) -> None:
        self.settings = settings
        self._host = host
        self._parent = os.getppid()

    def look(self) -> Why | None:
        """Why a test may not run, or must stop; cheap."""
        if _is_there(self.settings.maintenance_file):
            return "maintenance"
        if _is_there(self.settings.job_file):
            return "job_marker"
        if self.settings.require_idle and self._accelerator_in_use():
            return "accelerator_in_use"
        return None

    def before(self, link: Link) -> Why | None:
        """The same, and what is asked only before a test begins: the site's command, and what the
        link carries.
        """
        found = self.look()
        if found is None and self.settings.require_idle and not self._sees_processes():
            found = "processes_unseen"
        if found is None and self._command_says_job():
            found = "job_marker"
        if found is None and link.rate:
            share = self._traffic(link) / link.rate
            found = "link_busy" if share > self.settings.link_busy_share else None
        return found

    def _command_says_job(self) -> bool:
        if not self.settings.job_command:
            return False
        try:
            return tool.run(self.settings.job_command, COMMAND_SECONDS).status == 0
        except ProbeError:
            return True  # nobody knows: then we do not test

    def _traffic(self, link: Link) -> float:
        """Bytes a second, both directions together."""
        before = self._count(link)
        time.sleep(TRAFFIC_SECONDS)
        return (self._count(link) - before) * link.bytes_per_count / TRAFFIC_SECONDS

    def _count(self, link: Link) -> int:
        return sum(read_integer(self._host.sys(file)) or 0 for file in link.files)

    def _sees_processes(self) -> bool:
        """Whether all of the node's processes can be seen, with their files. Not in a PID namespace
        of its own, where there is no kthreadd, nor without the right to look (CAP_SYS_PTRACE).
        """
        try:
            kthreadd = self._host.proc("2/stat").read_text(encoding="utf-8")
            os.listdir(self._host.proc("1/fd"))
        except OSError:
            return False
        return "(kthreadd)" in kthreadd

    def _accelerator_in_use(self) -> bool:
        names = list_names(self._host.procfs)
        return any(self._has_accelerator(name) for name in names if name.isdecimal())

    def _has_accelerator(self, pid: str) -> bool:
        folder = os.path.join(self._host.procfs, pid, "fd")
        return any(
            _ACCELERATOR.fullmatch(_link(os.path.join(folder, name))) for name in list_names(folder)
        ) and not self._is_ours(pid)

    def _is_ours(self, pid: str) -> bool:
        """Whether this process only watches."""
        try:
            with open(os.path.join(self._host.procfs, pid, "stat"), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return True  # it has ended
        stat = parse_process_stat(text)
        name = text.partition("(")[2].rpartition(")")[0]
        return name in self.settings.ignore or (stat is not None and stat.parent == self._parent)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile, or not ours to see
        return ""


def _is_there(path: str | None) -> bool:
    return path is not None and os.path.lexists(path)
