"""Probe `nvidia` on simulated machines with eight GPUs: CPU time per run, memory, series.

The CPU time includes that of the stand-in library, which looks up its state at every call; a real
driver needs time of its own, which is not the agent's.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from bench.measure import pss_bytes, table
from testbed.gpus import MODELS, Machine
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, wait_until

SECONDS = 20
RUNS = "nodevitals_probe_runs_total"


def worker(of: Node) -> psutil.Process:
    """Return the process that has loaded the library."""
    for child in of.fork_server().children():
        maps = Path(f"/proc/{child.pid}/maps").read_text()
        if "libnvidia-ml" in maps:
            return child
    raise RuntimeError("no worker has loaded the library")


def row(folder: Path, model: str) -> list[str]:
    """Return one model's figures."""
    folder.mkdir()
    machine = Machine(folder, model).start()
    with KernelLog(folder) as log:
        probes = {
            "nvidia": {"interval": "200ms", "timeout": "200ms", **machine.settings},
            "kernel_log": {"path": str(log.path)},
        }
        node = Node(
            folder,
            {"probes": probes},
            *machine.flags,
            PYTHONPATH=str(ROOT / "exporter"),
            **machine.environment,
        )
        with node as running:

            def runs() -> float:
                return running.value(RUNS, probe="nvidia", outcome="ok") or 0

            xids = "nodevitals_nvidia_xid_errors_total"
            wait_until(lambda: runs() >= 5 and any(name == xids for name, _ in running.samples()))
            process = worker(running)
            before, cpu = runs(), sum(process.cpu_times()[:2])
            time.sleep(SECONDS)
            count, cpu = runs() - before, sum(process.cpu_times()[:2]) - cpu
            lines = running.get("/metrics?collect[]=nvidia&collect[]=kernel_log").text.splitlines()
            own = [line for line in lines if "_nvidia_" in line or "accelerator" in line]
            total = len(running.samples())
            return [
                model,
                f"8 x {MODELS[model].links}",
                f"{cpu / count * 1000:.1f} ms",
                f"{process.memory_full_info().pss / 2**20:.1f} MiB",
                f"{process.memory_full_info().uss / 2**20:.1f} MiB",
                f"{sum(not line.startswith('#') for line in own)}",
                f"{total}",
                f"{pss_bytes(running.process.pid) / 2**20:.0f} MiB",
            ]


def main(folder: Path) -> None:
    """Print the table."""
    rows = [row(folder / model, model) for model in ("A100", "H100", "B200")]
    print("Worker of the probe nvidia; series of nvidia and kernel_log, and of the whole node.\n")
    head = ["GPUs", "links", "CPU per run", "PSS", "USS", "series", "all series", "all PSS"]
    table(head, rows)
