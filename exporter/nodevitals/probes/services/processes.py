"""Finds zombies, and processes that hang in the kernel.

In: procfs. Out: the number of zombies, and the hung processes by what they wait in. The kernel does
not report since when a process sleeps, so consecutive runs are compared. No file is read here that
waits for a process's memory, as its command line does.

What a process waits in is one word of a closed list, by the kernel function of /proc/PID/wchan. The
kernel's function names are no stable interface, so only their prefixes count, and an unknown one is
`other`.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.process import process_states
from nodevitals.linux.sysfs import parse_integer, read_text
from nodevitals.probe import ProbeError

WAITS = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cifs",
    "fuse",
    "nvidia",
    "ascend",
    "rdma",
    "block",
    "lock",
    "paused",
    "other",
    "unknown",
)
_BLOCK = (
    "io_schedule|blk|bio_|submit_bio|rq_qos|wbt_|nvme|scsi|sd_|md_|raid|dm_|jbd2|ext4|xfs|xlog|"
    "btrfs|f2fs|wait_on_page|__wait_on_page|folio_wait|wait_on_buffer|__wait_on_buffer|"
    "balance_dirty|wait_on_bit_io|bit_wait_io|writeback|wb_wait|__lock_page|__folio_lock|"
    "read_swap|iomap|sync_inodes|do_get_write_access|wait_transaction|wait_current_trans"
)
# The first that matches counts: file systems of the network before what they share with disks.
_PREFIXES = (
    # Functions of a paused container and of the parent of a vfork(2): neither is a fault.
    ("paused", "__refrigerator|get_signal|do_freezer_trap|.*vfork_done|.*_vfork$"),
    ("nfs", "nfs|_?_?rpc_|xprt_|svc_|nlm|lockd"),
    ("lustre", "ll_|ldlm_|ptlrpc|cl_(?:sync|lock|io)|osc_|lov_|mdc_|obd_|lnet|lustre|mgc_|l_wait"),
    ("gpfs", "mm_?fs|gpfs|cxi|_?ZN.*cxi"),
    ("beegfs", "beegfs|Fhgfs|FhgfsOps|MessagingTk|Socket_"),
    ("ceph", "ceph|rbd_|wait_(?:for_)?caps|try_get_cap"),
    ("cifs", "cifs|smb[23]?_|wait_for_response"),
    ("fuse", "fuse_|__fuse|request_wait_answer|wekafs|wekafsio"),
    ("nvidia", "_?nv_|nvidia|uvm|os_acquire|_nv\\d|rm_|nvlink|nvswitch"),
    ("ascend", "devdrv|hisi|drv_|davinci|svm_|tsdrv|hdc"),
    ("rdma", "ib_|rdma|ucma|uverbs|mlx[45]|cm_destroy|cma_|bnxt_re|irdma|cmd_exec"),
    ("block", _BLOCK),
    ("lock", "rwsem_|down_|_?_?mutex|percpu_rwsem|__percpu|call_rwsem|rt_mutex|lock_|__lock"),
)
_EXPRESSIONS = tuple((wait, re.compile(prefixes)) for wait, prefixes in _PREFIXES)
_MAX_CHARACTERS = 200


def wait_of(wchan: str | None) -> str:
    """The word for the text of /proc/PID/wchan; `unknown` where it could not be read or names no
    function: 0 where that is not permitted.
    """
    if not wchan or wchan == "0":
        return "unknown"
    name = wchan[:_MAX_CHARACTERS]
    return next((wait for wait, expression in _EXPRESSIONS if expression.match(name)), "other")


MAX_SLEEPERS = 5000
# A process that waits with a timeout wakes up repeatedly: direct I/O after a minute, Lustre and
# drivers sooner. A process that does slow I/O wakes up far more often.
WAKEUPS_PER_SECOND = 0.2
WAKEUPS_AT_ONCE = 2
# Two looks may be a little closer together than the interval.
_HUNG_SHARE = 0.98
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, linux/sched.h
_FLAGS_FIELD, _START_FIELD = 6, 19  # of /proc/PID/stat, counted after the command
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d{1,20})$", re.MULTILINE)


class Sleeper(msgspec.Struct, array_like=True):
    """A process in uninterruptible sleep: its start in ticks since boot, its context switches when
    it was last seen, and by the monotonic clock the times when it was seen first and last.
    """

    start: int
    switches: int
    since: float
    seen: float


class Look(NamedTuple):
    """The result of one look at all processes."""

    zombies: int
    sleepers: dict[int, Sleeper]


def parse_sleeper(stat: str, status: str, now: float) -> Optional[Sleeper]:
    """A process that still is in uninterruptible sleep; None for others, for the kernel's own
    threads (the kernel reports those that hang, and some always sleep so), and for other text.
    """
    fields = stat.rpartition(")")[2].split()
    if len(fields) <= _START_FIELD or fields[0] != "D":
        return None
    flags, start = parse_integer(fields[_FLAGS_FIELD]), parse_integer(fields[_START_FIELD])
    switches = [int(count) for count in _SWITCHES.findall(status)]
    if flags is None or flags & _KERNEL_THREAD or start is None or len(switches) != 2:
        return None
    return Sleeper(start, sum(switches), now, now)


def continued(before: Optional[Sleeper], now: Sleeper) -> Sleeper:
    """The sleeper of this run; for the same sleep as before, with the earlier start time."""
    if before is not None and before.start == now.start:
        wakeups = now.switches - before.switches
        allowed = WAKEUPS_AT_ONCE + WAKEUPS_PER_SECOND * (now.seen - before.seen)
        if 0 <= wakeups <= allowed and now.seen >= before.seen:
            now.since = before.since
    return now


def look(host: Host, before: dict[int, Sleeper], now: float) -> Look:
    """Look at all processes. Raises ProbeError where they cannot be listed."""
    zombies = 0
    sleepers: dict[int, Sleeper] = {}
    try:
        for pid, state in process_states(host.procfs).items():
            zombies += state == "Z"
            if state == "D" and len(sleepers) < MAX_SLEEPERS:
                folder = host.proc(pid)
                stat, status = read_text(folder / "stat"), read_text(folder / "status")
                sleeper = parse_sleeper(stat or "", status or "", now)
                if sleeper is not None:
                    sleepers[int(pid)] = continued(before.get(int(pid)), sleeper)
    except OSError as error:
        raise ProbeError("procfs", f"{host.procfs}: {error.strerror}") from None
    return Look(zombies, sleepers)


def hung(host: Host, current: Look, after_seconds: float) -> dict[str, int]:
    """Number of processes that have slept for that long, by what they wait in now."""
    counts: dict[str, int] = {}
    for pid, sleeper in current.sleepers.items():
        if sleeper.seen - sleeper.since >= _HUNG_SHARE * after_seconds:
            wait = wait_of(read_text(host.proc(f"{pid}/wchan")))
            counts[wait] = counts.get(wait, 0) + 1
    return counts
