"""Lines of the kernel log about a device, a file system, or a process that ran out of memory.

Drivers of GPUs and NICs log the health of a device: each line becomes an event with a PCI bus id.
To add a pattern, add it below and a sample to `tests/unit/driver_messages.txt`. Sources:
- nvidia: open-gpu-kernel-modules 595, `osinit.c`, `osapi.c`, and kernel-open's `nv.c`, `nv-pci.c`.
  Only lines without an Xid; those with one are parsed in `xid.py`.
- mlx5_core, mlx4_core: drivers/net/ethernet/mellanox, `mlx5/core/health.c`, `cmd.c`, `main.c` and
  `mlx4/catas.c`, `cmd.c`. mlx5 puts `function:line:(pid N): ` before warnings and errors.
- bnxt_en: drivers/net/ethernet/broadcom/bnxt, `bnxt.c` and `bnxt_hwrm.c`.
- ice: drivers/net/ethernet/intel/ice, `ice_main.c`.
- hns3: drivers/net/ethernet/hisilicon/hns3, `hclge_main.c`; drivers/infiniband/hw/hns,
  `hns_roce_hw_v2.c`, which logs under the same name.
- The watchdog of every driver: net/sched/sch_generic.c, in the forms before and since Linux 6.4.
Not among them, because healthy devices log it too: mlx5's `Detected insufficient power on the PCIe
slot`.

A file system that accepts no writes until it is mounted again is identified by the kernel's name of
its block device. With XFS, and with ext4 on some kernels
(nodevitals/probes/services/filesystems.py), the mount options do not show that state.

The OOM killer's line contains the cgroup of the process that it ends:
`oom-kill:constraint=…,task_memcg=<cgroup>,task=…` since Linux 5.0 (dump_oom_summary() in
mm/oom_kill.c), before that `Task in <cgroup> killed as a result of limit of …`. A kubelet names the
cgroups `…/kubepods/burstable/pod<uid>/<container id>`, with systemd
`…/kubepods-burstable-pod<uid, - as _>.slice/<runtime>-<container id>.scope`, below a root of its
own (`--cgroup-root`, as in kind) `…/kubelet-kubepods-burstable-pod….slice/…`.

Users choose the names of their own cgroups, which are below a systemd service: these belong to no
pod, whatever their names look like.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nodevitals.probes.common.nvidia import normal_bus_id
from nodevitals.probes.kubernetes.messages import OomKill

DRIVERS = ("nvidia", "mlx5_core", "mlx4_core", "bnxt_en", "ice", "hns3")
DRIVER_EVENTS = (
    *("init_failed", "probe_failed", "fallen_off_bus", "not_supported"),
    *("firmware_error", "firmware_unresponsive", "fatal_error", "command_timeout"),
    *("recovery_failed", "recovered", "transmit_timeout"),
)
# A loaded driver, or a link that came up: not an event, but the end of a failure.
STARTED = "started"
# After these events, a NIC works again only when its driver has logged one of RECOVERIES.
FAILURES = ("init_failed", "firmware_unresponsive", "fatal_error", "recovery_failed")
RECOVERIES = ("recovered", STARTED)


class DriverEvent(NamedTuple):
    """One event; `pci_bus_id` is '' if the message does not name the device."""

    driver: str
    pci_bus_id: str
    event: str


_BUS = r"(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
# `driver bus: `, or with the interface's name as netdev_err(9) prints it.
_NIC = re.compile(
    rf"(?P<driver>mlx5_core|mlx4_core|mlx4_en|bnxt_en|ice|hns3) {_BUS}"
    r"(?: (?:\(unnamed net_device\)|[^\s:]{1,15})(?: \(\w{1,20}\))?)?: "
    r"(?:\w{1,64}:\d{1,6}:(?:\(pid \d{1,10}\):)? )?"
)
_OLD_WATCHDOG = re.compile(
    r"NETDEV WATCHDOG: \S{1,32} \((?P<driver>\w{1,32})\): transmit queue \d{1,6} timed out"
)
_DRIVER_NAMES = {"mlx4_en": "mlx4_core"}
_STARTS = ("NVRM: ", "mlx5_core ", "mlx4_", "bnxt_en ", "ice ", "hns3 ", "NETDEV WATCHDOG: ")


def _patterns(*pairs: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((event, re.compile(expression)) for event, expression in pairs)


_EVERY_NIC = _patterns(
    ("transmit_timeout", r"NETDEV WATCHDOG: (?:CPU: \d+: )?transmit queue \d+ timed out"),
    (STARTED, r"(?:NIC )?[Ll]ink (?:is )?[Uu]p\b"),
)
_BY_DRIVER = {
    "mlx5_core": _patterns(
        ("firmware_unresponsive", r"device's health compromised"),
        ("fatal_error", r"Fatal error \d+ detected"),
        ("firmware_error", r"Health issue observed, [^,]{1,64}, severity\([0-3]\)"),
        ("command_timeout", r"(?:cmd\[-?\d+\]: )?\w{1,64}\(0x\w+\) (?:Async, )?timeout\. Will"),
        ("recovery_failed", r"health recovery (?:failed|flow aborted)"),
        ("recovery_failed", r"Driver is in error state\. Unloading"),
        ("recovered", r"health (?:recovery succeeded|revovery succeded)"),
        ("init_failed", r"mlx5_(?:init|load)_one failed with error code"),
        (STARTED, r"firmware version: "),
    ),
    "mlx4_core": _patterns(
        ("fatal_error", r"Internal error (?:mark was )?detected"),
        ("command_timeout", r"command 0x[0-9a-f]+ timed out \(go bit not cleared\)"),
        ("recovered", r"device was reset successfully"),
    ),
    "bnxt_en": _patterns(
        ("firmware_unresponsive", r"Firmware not responding, status: 0x"),
        ("firmware_error", r"(?:Firmware fatal|Fatal firmware) reset event"),
        ("command_timeout", r"Error \(timeout: \d+\) msg \{"),
        ("command_timeout", r"Abandoning msg \{"),
        ("recovery_failed", r"Firmware reset aborted"),
        (STARTED, r"Broadcom .{1,80} found at mem "),
    ),
    "ice": _patterns(
        ("fatal_error", r"Firmware recovery mode detected"),
        ("recovery_failed", r"Rebuild failed, unload and reload driver"),
        ("recovery_failed", r"Unhandled error during VSI rebuild"),
        ("recovery_failed", r"tx_timeout recovery unsuccessful"),
        ("recovery_failed", r"reset \d+ failed$"),
        (STARTED, r"The DDP package was successfully loaded"),
        (STARTED, r"fw \d+\.\d+\.\d+ api "),
    ),
    "hns3": _patterns(
        ("recovery_failed", r"Reset fail!"),
        ("recovery_failed", r"In reset process RoCE reinit failed"),
        ("recovered", r"Reset done, \w+ driver initialization finished"),
        (STARTED, r"\w+ driver initialization finished"),
    ),
}  # fmt: skip
_NVIDIA = _patterns(
    ("init_failed", rf"NVRM: (?:GPU {_BUS}: )?RmInitAdapter failed!"),
    ("init_failed", rf"NVRM: GPU {_BUS}: (?:rm_init_private_state|request_irq)\(\) failed"),
    ("init_failed", rf"NVRM: GPU {_BUS}: No interrupts of any type are available"),
    ("init_failed", rf"NVRM: Device start failed for {_BUS}"),
    (
        "init_failed",
        rf"NVRM: This PCI I/O region .* is invalid:\nNVRM: BAR\d is [^(\n]*\(PCI:{_BUS}\)",
    ),
    ("probe_failed", r"NVRM: The NVIDIA probe routine failed for "),
    ("fallen_off_bus", rf"NVRM: GPU {_BUS}: GPU has fallen off the bus"),
    (
        "fallen_off_bus",
        rf"NVRM: The NVIDIA GPU {_BUS}\nNVRM: \(PCI ID: [^)\n]*\) installed in this system has\n",
    ),
    (
        "not_supported",
        rf"NVRM: The NVIDIA GPU {_BUS} \(PCI ID: [^)\n]*\)\nNVRM: installed in this system is not",
    ),
)


def parse_driver_event(text: str) -> DriverEvent | None:
    """The event that a message reports; None for most."""
    if not text.startswith(_STARTS):
        return None
    if text.startswith("NVRM: "):
        return _parse_nvidia(text)
    match = _OLD_WATCHDOG.match(text)
    if match is not None:
        driver = _DRIVER_NAMES.get(match["driver"], match["driver"])
        return DriverEvent(driver, "", "transmit_timeout") if driver in DRIVERS else None
    match = _NIC.match(text)
    if match is None:
        return None
    driver = _DRIVER_NAMES.get(match["driver"], match["driver"])
    for event, expression in (*_BY_DRIVER[driver], *_EVERY_NIC):
        if expression.match(text, match.end()):
            return DriverEvent(driver, match["bus"], event)
    return None


def _parse_nvidia(text: str) -> DriverEvent | None:
    for event, expression in _NVIDIA:
        match = expression.match(text)
        if match is not None:
            bus = match.groupdict().get("bus")
            return DriverEvent("nvidia", normal_bus_id(bus) if bus else "", event)
    return None


MAX_FILESYSTEMS = 64
_STOPPED = re.compile(
    r"EXT4-fs \((\S+)\): (?:Remounting filesystem read-only|shut down requested)"
    r"|XFS \((\S+)\): .*(?:Shutting down filesystem|has been shut down)"
)
# A stopped file system can only be unmounted: the kernel refuses a remount.
_MOUNTED = re.compile(r"(?:EXT4-fs|XFS) \((\S+)\): (?:mounted|Mounting|unmounting|Unmounting) ")


class FilesystemEvent(NamedTuple):
    """A device, and whether its file system was stopped; if not, it was mounted or unmounted."""

    device: str
    stopped: bool


def parse_filesystem_event(text: str) -> FilesystemEvent | None:
    """The event that a message reports; None for most."""
    if not text.startswith(("EXT4-fs (", "XFS (")):
        return None
    match = _STOPPED.match(text)
    if match is not None:
        return FilesystemEvent(match[1] or match[2], stopped=True)
    match = _MOUNTED.match(text)
    return None if match is None else FilesystemEvent(match[1], stopped=False)


def follow(stopped: list[str], event: FilesystemEvent) -> None:
    """Bring a list of devices up to date."""
    if event.stopped:
        if event.device not in stopped and len(stopped) < MAX_FILESYSTEMS:
            stopped.append(event.device)
    elif event.device in stopped:
        stopped.remove(event.device)


_TASK = re.compile(r"oom-kill:[^\n]{0,900}?,task_memcg=(/[^,\s]*)")
# The first path of the line: users cannot influence it, and the process is in it or below it.
_FIRST = re.compile(r"[^\n]{0,900}?_memcg=(/[^,\s]*)")
_OLD_TASK = re.compile(r"Task in (/\S*) killed as a result of limit of ")
_GROUP = re.compile(r"Tasks in (/\S*) are going to be killed due to memory.oom.group set")
GROUP_SECONDS = 1.0
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(
    rf"/(?:(?:[\w.-]{{1,64}}-)?kubepods[a-z-]{{0,24}}-)?pod({_UID})(?:\.slice)?(?:/|$)"
)
_CONTAINER = re.compile(r"[0-9a-f]{64}")


class OomKillTally:
    """The kills of a run. With `memory.oom.group`, which the kubelet sets since 1.28, the line
    about one process is followed by a line about its cgroup, and then by lines about its processes.
    Kills before `since`, on the kernel's clock, are left out.
    """

    def __init__(self, since: float = 0.0) -> None:
        self._since = since
        self.kills: list[OomKill] = []
        self._group: OomKill | None = None
        self._until = 0.0

    def add(self, text: str, seconds: float) -> None:
        """Add the process or the cgroup of a message; `seconds` is the kernel's clock."""
        if seconds < self._since:
            return
        if text.startswith(("oom-kill:", "Task in ")):
            self._group = None
            kill = parse_oom_kill(text)
            if kill is not None:
                self.kills.append(kill)
        elif text.startswith("Tasks in "):
            self._group, self._until = parse_oom_kill(text), seconds + GROUP_SECONDS

    def add_process(self, seconds: float) -> None:
        """Add a process that was killed: the first one of each kill was added by its cgroup."""
        if self._group is not None and seconds <= self._until:
            self.kills.append(self._group)


def parse_oom_kill(text: str) -> OomKill | None:
    """The pod and the container in a message about a killed process; None for another message, and
    for a process that belongs to no pod.
    """
    match = _TASK.match(text) or _OLD_TASK.match(text) or _GROUP.match(text)
    if match is None or "kubepods" not in match[1]:
        return None
    paths = [match[1], *(first[1] for first in [_FIRST.match(text)] if first)]
    pod = _POD.search(match[1])
    if pod is None or any(map(_is_below_service, paths)):
        return None
    container = _CONTAINER.search(match[1], pod.end(1))
    return OomKill(pod[1].replace("_", "-"), container[0] if container else "")


def _is_below_service(cgroup: str) -> bool:
    """Whether a cgroup is a systemd service or below one; services within a pod do not count."""
    return ".service" in cgroup.partition("kubepods")[0]
