"""The findings about the permissions of the running agent: what it lacks, and what that costs.

In: /proc of the process that listens on the agent's port, the unit's list, device files.
"""

from __future__ import annotations

import grp
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodevitals.commands.doctor.findings import OFF, OK, PROBLEM, UNKNOWN, Finding, listed
from nodevitals.commands.shipped import shipped
from nodevitals.linux import capabilities

_LISTENING = "0A"
_BOUNDING_SET = re.compile(r"^CapabilityBoundingSet=(.*)$", re.MULTILINE)
NUMBERS = {f"CAP_{name}": number for name, number in capabilities.NUMBERS.items()}
# The values that are lost without each capability that the unit grants.
COSTS = {
    "CAP_DAC_READ_SEARCH": "mounts closed to others are not read; fabric tests nothing; jobs fails",
    "CAP_SYS_PTRACE": "fabric cannot see who uses an accelerator, and tests nothing; jobs fails",
    "CAP_SYSLOG": "kernel_log cannot read /dev/kmsg where kernel.dmesg_restrict is 1",
    "CAP_SYS_NICE": "the process that ends hanging workers has no priority over a fork bomb",
}
_DEVICES = ("davinci*", "nvidia[0-9]*", "nvidiactl")


class Credentials(NamedTuple):
    """A process's effective user, all its groups, and its effective capabilities as bits."""

    user: int
    groups: frozenset[int]
    capabilities: int

    def has(self, capability: str) -> bool:
        """Whether the process has a capability."""
        return bool(self.capabilities >> NUMBERS[capability] & 1)


def parse_status(text: str) -> Credentials:
    """Parse /proc/PID/status (proc_pid_status(5)). Raises ValueError."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        user, group = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
        groups = frozenset(map(int, fields["Groups"].split())) | {group}
        return Credentials(user, groups, int(fields["CapEff"], 16))
    except (KeyError, IndexError) as error:
        raise ValueError(f"no {error}") from None


def granted_by_unit() -> list[str]:
    """The capabilities that the shipped unit grants."""
    unit = (shipped("packaging") / "nodevitals.service").read_text(encoding="utf-8")
    match = _BOUNDING_SET.search(unit)
    return match[1].split() if match else []


def may_open(mode: int, owner: int, group: int, process: Credentials) -> bool:
    """Whether a process may read and write a file."""
    if process.has("CAP_DAC_OVERRIDE"):
        return True
    shift = 6 if process.user == owner else 3 if group in process.groups else 0
    return (mode >> shift & 6) == 6


def permission_findings(procfs: str, port: int) -> Iterator[Finding]:
    """The permissions that the agent on a port of this machine lacks."""
    try:
        pid = listening_process(procfs, port)
        process = (
            None
            if pid is None
            else parse_status(Path(procfs, pid, "status").read_text(encoding="utf-8"))
        )
    except (OSError, ValueError):
        process = None
    if process is None:
        text = f"the process that listens on port {port} cannot be seen from here"
        yield Finding("permissions", UNKNOWN, text, "run doctor as root, on the node itself")
        return
    granted = granted_by_unit()
    lacking = [name for name in granted if not process.has(name)]
    for name in lacking:
        text = f"the agent has no {name}: {COSTS.get(name, 'see the unit')}"
        remedy = "if you need that, grant it: systemctl edit nodevitals: CapabilityBoundingSet="
        yield Finding("permissions", OFF, text, remedy + name)
    if not lacking:
        yield Finding("permissions", OK, f"the agent has the unit's {listed(granted)}")
    yield from device_findings(process)


def device_findings(process: Credentials) -> Iterator[Finding]:
    """The device files that a process may not open."""
    closed: dict[int, list[str]] = {}
    for pattern in _DEVICES:
        for path in sorted(Path("/dev").glob(pattern)):
            try:
                status = path.stat()
            except OSError:  # removed meanwhile
                continue
            is_device = stat.S_ISCHR(status.st_mode)
            if is_device and not may_open(status.st_mode, status.st_uid, status.st_gid, process):
                closed.setdefault(status.st_gid, []).append(str(path))
    for group, paths in closed.items():
        name = _group_name(group)
        text = f"the agent may not open {listed(paths, 3)}: its probe reads nothing of these"
        remedy = f"systemctl edit nodevitals: [Service] SupplementaryGroups={name}; restart it"
        yield Finding("permissions", PROBLEM, text, remedy)


def _group_name(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def listening_process(procfs: str, port: int) -> str | None:
    """The process that listens on a TCP port; None where none is visible. Raises OSError."""
    sockets = {
        f"socket:[{inode}]"
        for table in ("tcp", "tcp6")
        for inode in _listening_inodes(Path(procfs, "self/net", table), port)
    }
    for name in os.listdir(procfs) if sockets else ():
        if name.isdecimal() and not sockets.isdisjoint(_files_of(f"{procfs}/{name}/fd")):
            return name
    return None


def _listening_inodes(table: Path, port: int) -> Iterator[str]:
    if table.exists():
        for row in table.read_text(encoding="utf-8").splitlines()[1:]:
            fields = row.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _files_of(folder: str) -> Iterator[str]:
    try:
        for name in os.listdir(folder):
            yield os.readlink(f"{folder}/{name}")
    except OSError:  # another user's process, or it has ended
        return
