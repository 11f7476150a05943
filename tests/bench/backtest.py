"""A back-test of a day of a synthetic fleet with the shipped rules, for docs/backtest.md.

The rates of its faults are invented; the cost on the server is measured.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from testbed.history import HistoricPrometheus, History, Steps
from testbed.node import ROOT
from testbed.servers import BINARIES

START = 1_780_272_000.0  # Monday 2026-06-01 00:00 UTC
DAYS = 1
NODES = 12
# Faults: metric, label that chooses a device, good and bad value, per node and week, minutes.
FAULTS = (
    ("nodevitals_accelerator_up", 1.0, 0.0, 0.8, (30, 300)),
    ("nodevitals_nvidia_row_remap_pending", 0.0, 1.0, 1, (60, 2000)),
    ("nodevitals_rdma_port_up", 1.0, 0.0, 3, (1, 40)),
    ("nodevitals_mount_writable", 1.0, 0.0, 1, (1, 30)),
    ("nodevitals_node_clock_synchronized", 1.0, 0.0, 2, (1, 60)),
    ("nodevitals_probe_success", 1.0, 0.0, 3, (1, 20)),
    ("nodevitals_nvidia_nvlink_up", 1.0, 0.0, 0.5, (5, 200)),
    ("nodevitals_network_bond_member_up", 1.0, 0.0, 1, (1, 400)),
)
CONSTANTS = {
    "nodevitals_build_info": 1.0,
    "nodevitals_config_last_reload_successful": 1.0,
    "nodevitals_node_cpu_utilization_ratio": 0.6,
    "nodevitals_node_memory_total_bytes": 2e12,
    "nodevitals_node_memory_available_bytes": 1e12,
    "nodevitals_node_clock_offset_seconds": 0.001,
}
DEVICES: dict[str, dict[str, str]] = {
    "nodevitals_accelerator_up": {"vendor": "nvidia"},
    "nodevitals_nvidia_row_remap_pending": {},
    "nodevitals_nvidia_nvlink_up": {"link": "0"},
    "nodevitals_nvidia_nvlinks_expected": {},
}
MOUNT = {"mountpoint": "/data", "fstype": "nfs4", "source": "filer:/x"}
PORT = {"device": "mlx5_0", "port": "1"}
LABELS: dict[str, dict[str, str]] = {
    "nodevitals_rdma_port_up": PORT,
    "nodevitals_rdma_port_rate_bytes_per_second": PORT,
    "nodevitals_rdma_port_expected_rate_bytes_per_second": PORT,
    "nodevitals_mount_present": MOUNT,
    "nodevitals_mount_writable": MOUNT,
    "nodevitals_mount_readable": MOUNT,
    "nodevitals_mount_size_bytes": MOUNT,
    "nodevitals_mount_free_bytes": MOUNT,
    "nodevitals_probe_success": {"probe": "rdma", "target": "rdma"},
    "nodevitals_network_bond_member_up": {"interface": "bond0", "member": "ens1"},
}
VALUES = {
    "nodevitals_rdma_port_rate_bytes_per_second": 50e9,
    "nodevitals_rdma_port_expected_rate_bytes_per_second": 50e9,
    "nodevitals_mount_size_bytes": 1e15,
    "nodevitals_mount_free_bytes": 5e14,
}
WEEK_SECONDS = 7 * 86400.0


def pulses(rng: random.Random, good: float, bad: float, rate: float, minutes: range) -> Steps:
    """Return a value that is bad at random times, `rate` times a week."""
    steps: list[tuple[float, float | None]] = [(0.0, good)]
    time_now = rng.expovariate(rate / WEEK_SECONDS)
    while time_now < DAYS * 86400:
        end = time_now + 60 * rng.choice(minutes)
        steps += [(time_now // 60 * 60, bad), (end // 60 * 60, good)]
        time_now = end + rng.expovariate(rate / WEEK_SECONDS)
    return steps


def fleet(seed: int = 1) -> History:
    """Return the history: single faults, a leaf that reboots, nodes that go away."""
    rng = random.Random(seed)
    history = History(START, DAYS * 86400)
    rates = {metric: (good, bad, rate, range(*span)) for metric, good, bad, rate, span in FAULTS}
    leaf_reboot = (10 * 3600.0, 10 * 3600.0 + 240)
    for number in range(NODES):
        node = {"job": "nodevitals", "cluster": "c", "instance": f"node-{number:02}"}
        history.add("up", pulses(rng, 1, 0, 1, range(1, 30)), **node)
        domains = {"leaf": f"leaf-{number // 6}", "rack": f"rack-{number // 3}", "pool": "p"}
        history.add("nodevitals_node_info", 1, **node, **domains)
        for metric, value in CONSTANTS.items():
            history.add(metric, value, **node)
        for metric, labels in {**LABELS, "nodevitals_node_clock_synchronized": {}}.items():
            value = VALUES.get(metric, 1.0)
            steps = pulses(rng, *rates[metric]) if metric in rates else [(0.0, value)]
            if metric == "nodevitals_rdma_port_up" and number // 6 == 1:
                steps = [(0.0, 1), (leaf_reboot[0], 0), (leaf_reboot[1], 1)]
            history.add(metric, steps, **node, **labels)
        for device in ("0", "1"):
            gpu = {"device": device, "uuid": f"GPU-{number}-{device}"}
            for metric, labels in DEVICES.items():
                steps = pulses(rng, *rates[metric]) if metric in rates else [(0.0, 1.0)]
                history.add(metric, steps, **node, **gpu, **labels)
        for name in ("expected", "present", "baseline"):
            history.add(f"nodevitals_accelerators_{name}", 2, **node, vendor="nvidia")
    return history


def main(folder: Path) -> None:
    """Print the table and what it cost."""
    blocks = fleet().write(folder / "blocks")
    with HistoricPrometheus(folder, blocks) as prometheus:
        argv = [sys.executable, "-m", "nodevitals", "rules", "backtest"]
        argv += ["--prometheus", prometheus.url, "--days", str(DAYS)]
        argv += ["--alertmanager-config", "alertmanager/alertmanager.yaml"]
        argv += ["--amtool", str(BINARIES / "amtool")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        subprocess.run([*argv, "--end", "2026-06-02T00:00Z"], cwd=ROOT, check=True)
        wall = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        stat = Path(f"/proc/{prometheus.process.pid}/stat").read_text().rpartition(") ")[2]
        ticks = sum(map(int, stat.split()[11:13]))
    print(
        f"\n{NODES} nodes, {DAYS} days: {wall:.0f} s; processor {ticks / 100:.1f} s of server, "
        f"{after.ru_utime - before.ru_utime:.1f} s of the command"
    )
