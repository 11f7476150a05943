"""The families of the probe `kernel_log`, and the patterns of events in the kernel's own messages.

At most one event per message. To add a pattern, add a line here and a sample to `tests/unit/kernel_messages.txt`. Patterns are
matched at the start of the message, because a user may control what follows: the name of a
command or a file. Kernel versions differ in their texts; the patterns cover 4.18 to 6.x.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from nodevitals.probe import Families
from nodevitals.probes.common.accelerators import ACTIONS
from nodevitals.probes.kernel_log.lines import DRIVER_EVENTS, DRIVERS


class Pattern(NamedTuple):
    """`hint` is part of every message that can match; it is checked first because that is cheap."""

    event: str
    hint: str
    expression: re.Pattern[str]


def _pattern(event: str, hint: str, expression: str) -> Pattern:
    return Pattern(event, hint, re.compile(expression))


_GHES = r"(?:\{\d+\})?\[Hardware Error\]: "  # firmware-first error reports
_AER = r"\S+ [0-9a-f:.]+: AER: "
_DISK = r"(?!fd\d|sr\d|loop\d)"  # reads of an empty drive or a detached image fail without a fault
PATTERNS = (
    _pattern("oom_kill", "of memory", r"(?:Memory cgroup out|Out) of memory.*: Kill(?:ed)? process"),
    _pattern("hung_task", "blocked ", r"INFO: task .+ blocked (?:for more than|in I/O wait) "),
    _pattern("lockup", "soft lockup", r"(?:watchdog: )?BUG: soft lockup - CPU#"),
    _pattern("lockup", "hard LOCKUP", r"(?:NMI )?watchdog: Watchdog detected hard LOCKUP"),
    _pattern("lockup", "detected", r"(?:rcu: )?INFO: rcu_\w+ (?:self-)?detected (?:expedited )?stall"),
    _pattern("kernel_bug", "BUG", r"(?:kernel BUG at |BUG: (?:unable to handle|kernel NULL))"),
    _pattern("kernel_bug", "protection fault", r"general protection fault"),
    _pattern("nfs_timeout", "not responding", r"nfs: server .+ not responding, "),
    _pattern("io_error", " error, dev ", rf"(?:\w+: )?(?:I/O|critical \w+) error, dev {_DISK}"),
    _pattern("io_error", "Buffer I/O", rf"Buffer I/O error on dev(?:ice)? {_DISK}"),
    _pattern("filesystem_error", "EXT4-fs", r"EXT4-fs (?:error \(|\(.+\): Remounting filesystem r)"),
    _pattern("filesystem_error", "XFS (", r"XFS \(\S+\): .*(?:[Cc]orrupt|log I/O error|[Ss]hut)"),
    _pattern("filesystem_error", "BTRFS", r"BTRFS:? (?:error|critical)"),
    _pattern("memory_corrected", "EDAC", r"EDAC [\w ]+: \d+ CE "),
    _pattern("memory_error", "EDAC", r"EDAC [\w ]+: \d+ UE "),
    _pattern("memory_error", "Memory failure", r"Memory failure: 0x"),
    _pattern("memory_error", "memory error", _GHES + r"(?: *section_type: memory error|.* error_type:)"),
    _pattern("machine_check", "Machine Check", r"(?:mce: )?\[Hardware Error\]: CPU \d+: Machine Check"),
    _pattern("pcie_corrected", "AER: ", rf"{_AER}(?:Multiple )?Correct(?:ed|able) error "),
    _pattern("pcie_error", "AER: ", rf"{_AER}.*\berror (?:message )?received"),
    _pattern("pcie_error", "DPC: ", r"\S+ [0-9a-f:.]+: DPC: containment event"),
    _pattern("pcie_error", "pciehp: ", r"\S+ [0-9a-f:.]+: pciehp: Slot\(.+\): (?:Link|Card) (?:D|not)"),
    _pattern("nvme_error", "nvme", r"nvme nvme\d+: .*(?:timeout|controller is down|not ready)"),
    _pattern("nvme_error", "nvme", r"nvme nvme\d+: Removing after probe failure"),
    _pattern("nvme_error", "nvme", r"nvme\d+n\d+: .{1,300} @ LBA .{1,300} I/O Error"),
    _pattern("cpu_throttled", "above threshold", r"(?:mce: )?CPU\d+: (?:Core|Package) temp.* above"),
)  # fmt: skip
EVENTS = tuple(dict.fromkeys(pattern.event for pattern in PATTERNS))

_SUPPRESSED = re.compile(r"\S.*: (\d{1,12}) (?:\w+ )?(?:callbacks|messages|lines) suppressed")


def event_of(text: str) -> str | None:
    """The event that a kernel message reports; None for most."""
    for pattern in PATTERNS:
        if pattern.hint in text and pattern.expression.match(text):
            return pattern.event
    return None


def suppressed(text: str) -> int:
    """Number of messages that the kernel's rate limits kept out of the log, as this one reports."""
    if "suppressed" not in text:
        return 0
    match = _SUPPRESSED.match(text)
    return int(match[1]) if match else 0


_nvidia = Families("nvidia")
XID_ERRORS = _nvidia.counter(
    "xid_errors_total",
    "Number of GPU errors (Xid) since boot, from the kernel log or NVML, each counted once.",
    *("device", "uuid", "xid"),
    action=ACTIONS,
)
XID_LAST = _nvidia.gauge(
    "xid_last_timestamp_seconds",
    "Unix time of the last Xid of this code in this boot, by the node's clock as it is set now.",
    *("device", "uuid", "xid"),
    action=ACTIONS,
)
SXID_ERRORS = _nvidia.counter(
    "sxid_errors_total",
    "Number of NVSwitch errors (SXid) in the kernel log since boot.",
    *("device", "pci_bus_id", "sxid"),
    action=ACTIONS,
)
SXID_LAST = _nvidia.gauge(
    "sxid_last_timestamp_seconds",
    "Unix time of the last SXid of this code in this boot, by the node's clock as it is set now.",
    *("device", "pci_bus_id", "sxid"),
    action=ACTIONS,
)

_kernel = Families("kernel")
KERNEL_EVENTS = _kernel.counter(
    "events_total",
    "Number of kernel messages since boot that report one of these events.",
    event=EVENTS,
)
DEVICE_EVENTS = _kernel.counter(
    "device_events_total",
    "Number of messages since boot in which a GPU's or NIC's driver reports one of these events.",
    "pci_bus_id",
    driver=DRIVERS,
    event=DRIVER_EVENTS,
)
DEVICE_EVENT_LAST = _kernel.gauge(
    "device_event_last_timestamp_seconds",
    "Unix time of the last such message in this boot, by the node's clock as it is set now.",
    "pci_bus_id",
    driver=DRIVERS,
    event=DRIVER_EVENTS,
)
NIC_FAILED = _kernel.gauge(
    "nic_failed",
    "Whether the NIC's driver has reported a failure in this boot and no recovery or start since.",
    "pci_bus_id",
    driver=DRIVERS,
)
LOST = _kernel.counter(
    "log_lost_total",
    "Number of records since boot that the kernel overwrote before they were read.",
)
SUPPRESSED = _kernel.counter(
    "log_suppressed_total",
    "Number of messages since boot that the kernel's rate limits kept out of its log.",
)

FAMILIES = (*_nvidia, *_kernel)
