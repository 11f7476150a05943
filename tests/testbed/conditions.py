"""Conditions of a simulated node: mounts of its first process, processes that sleep or ended."""

from __future__ import annotations

from pathlib import Path

from testbed import processes
from testbed.trees import write

ROOT_MOUNT = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro\n"
# What the kernel leaves after an error: the mount is still rw.
ROOT_BROKEN = ROOT_MOUNT.replace(" rw,errors", " ro,errors")
DATA_MOUNT = "40 29 259:5 / /data rw,relatime shared:2 - xfs /dev/nvme1n1 rw,attr2,inode64\n"
SYSTEM_MOUNTS = (
    "23 29 0:22 / /proc rw,nosuid shared:13 - proc proc rw\n"
    "50 29 7:1 / /snap/core/1 ro,nodev shared:30 - squashfs /dev/loop1 ro\n"
    "51 29 259:1 / /boot/efi rw shared:31 - vfat /dev/nvme0n1p1 rw\n"
    "52 29 0:45 / /home rw shared:32 - nfs4 filer:/home ro,vers=4.2\n"
)


def healthy(root: Path) -> Path:
    """Write a node without a bad condition below `root`; its procfs is `root`/proc."""
    procfs = processes.kernel(root / "proc")
    write(
        procfs,
        {
            "1/stat": "1 (systemd) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 0\n",
            "1/mountinfo": ROOT_MOUNT + DATA_MOUNT + SYSTEM_MOUNTS,
            "loadavg": "1.50 2.25 3.00 2/3450 6789\n",
            "sys/kernel/threads-max": "4125790\n",
            "sys/kernel/pid_max": "4194304\n",
        },
    )
    return procfs


def mounts(procfs: Path, *lines: str) -> None:
    """Replace the mounts."""
    write(procfs, {"1/mountinfo": "".join(lines)})


def process(
    procfs: Path,
    pid: int,
    state: str = "D",
    wchan: str = "nfs_wait_bit_killable",
    switches: int = 7,
    start: int = 4711,
    flags: int = 0x400000,
) -> None:
    """Write a process. Its command has what breaks a parser that counts from the left."""
    tail = f"{flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0"
    text = f"{pid} (a) D 9 (b) {state} 1 {pid} {pid} 0 -1 {tail}\n"
    status = f"Name:\tx\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t3\n"
    write(procfs / str(pid), {"stat": text, "status": status, "wchan": wchan})
