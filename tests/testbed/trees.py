"""procfs and sysfs of simulated nodes, as directories of small files."""

from __future__ import annotations

from pathlib import Path

PROC_STAT = """\
cpu  1000 50 300 8000 200 10 20 20 0 0
cpu0 500 25 150 4000 100 5 10 10 0 0
cpu1 500 25 150 4000 100 5 10 10 0 0
ctxt 123456
btime 1699990000
processes 4321
procs_running 2
procs_blocked 1
"""
MEMINFO = """\
MemTotal:       131072000 kB
MemFree:        10000000 kB
MemAvailable:   98304000 kB
Buffers:         1000000 kB
Cached:         80000000 kB
SwapCached:            0 kB
Active:         60000000 kB
Inactive:       40000000 kB
Shmem:            500000 kB
Slab:            2000000 kB
SReclaimable:    1500000 kB
SUnreclaim:       500000 kB
SwapTotal:             0 kB
SwapFree:              0 kB
"""


def write(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root, and create their directories."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def procfs(root: Path, mountinfo: str = "") -> Path:
    """Build a procfs of a two-core node with three processes, one of them in state D."""
    names = {1: "S", 42: "D", 77: "S"}
    stats = {
        f"{pid}/stat": f"{pid} (a b) c) {state} 1 {pid} {pid} 0 -1 4194560 1 0 0 0 0 0 0 0\n"
        for pid, state in names.items()
    }
    return write(
        root,
        {
            "stat": PROC_STAT,
            "meminfo": MEMINFO,
            "loadavg": "1.50 2.25 3.00 2/345 6789\n",
            "vmstat": "nr_free_pages 2500000\noom_kill 3\npgfault 1\n",
            "sys/fs/file-nr": "2048\t0\t9223372036854775807\n",
            "sys/kernel/random/boot_id": "11111111-2222-4333-8444-555555555555\n",
            "self/mountinfo": mountinfo,
        }
        | stats,
    )


def sysfs(root: Path) -> Path:
    """Build a sysfs with one memory controller and two NVMe controllers, one of them dead."""
    return write(
        root,
        {
            "devices/system/edac/mc/mc0/ce_count": "7\n",
            "devices/system/edac/mc/mc0/ue_count": "1\n",
            "class/nvme/nvme0/state": "live\n",
            "class/nvme/nvme0/model": "Example NVMe 4TB   \n",
            "class/nvme/nvme0/serial": "EX0001        \n",
            "class/nvme/nvme0/firmware_rev": "1.0\n",
            "class/nvme/nvme1/state": "dead\n",
            "class/nvme/nvme1/model": "Example NVMe 4TB\n",
            "class/nvme/nvme1/serial": "EX0002\n",
            "class/nvme/nvme1/firmware_rev": "1.0\n",
        },
    )
