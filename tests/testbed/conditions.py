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
UPTIME_SECONDS = 50_000
JOURNAL_THREAD = 90


def healthy(root: Path) -> Path:
    """Write a node without a bad condition below `root`; its procfs is `root`/proc, its sysfs
    `root`/sys.
    """
    procfs = processes.kernel(root / "proc")
    write(
        procfs,
        {
            "1/stat": "1 (systemd) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5 0\n",
            "1/mountinfo": ROOT_MOUNT + DATA_MOUNT + SYSTEM_MOUNTS,
            "loadavg": "1.50 2.25 3.00 2/3450 6789\n",
            "uptime": f"{UPTIME_SECONDS}.00 1.00\n",
            "sys/kernel/threads-max": "4125790\n",
            "sys/kernel/pid_max": "4194304\n",
        },
    )
    block_device(root / "sys", "259:2", "nvme0n1p2")
    block_device(root / "sys", "259:5", "nvme1n1")
    ext4_errors(root, "nvme0n1p2", 0, 0, None)
    return procfs


def mounts(procfs: Path, *lines: str) -> None:
    """Replace the mounts."""
    write(procfs, {"1/mountinfo": "".join(lines)})


def block_device(sysfs: Path, number: str, name: str) -> None:
    """Write the kernel's name of a block device."""
    link = sysfs / "dev/block" / number
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../devices/pci0000:00/0000:00:04.0/block/{name}")


def ext4_errors(
    root: Path,
    name: str,
    count: int,
    last: int,
    mounted_ticks: int | None,
    on_error: str = "remount-ro",
) -> None:
    """Write what ext4 exposes of the file system on a device, as Linux 6.1 and 6.18 do: its errors,
    and the thread of its journal, which was started with the mount (ticks since boot); None for
    one without a journal.
    """
    thread = "<none>" if mounted_ticks is None else str(JOURNAL_THREAD)
    folder = root / "sys/fs/ext4" / name
    files = {"errors_count": count, "last_error_time": last, "journal_task": thread}
    write(folder, {file: f"{text}\n" for file, text in files.items()})
    options = f"rw\nbsddf\nuser_xattr\nnowarn_on_error\nerrors={on_error}\ndata=ordered\n"
    write(root / "proc/fs/ext4" / name, {"options": options})
    if mounted_ticks is not None:
        process(root / "proc", JOURNAL_THREAD, "S", start=mounted_ticks)


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
