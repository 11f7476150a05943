"""The whole pipeline on this machine: nodevitals, Prometheus, Alertmanager, a webhook, and faults.

In: nothing but this checkout. Out: a table of faults and of the alerts that reached the webhook.
Everything lives in .demo/, listens on loopback, mounts in a namespace of its own, and ends with
this process. `--once`: one scripted tour; exit 0 only if every alert arrived and resolved.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from testbed.faultyfs import FaultyFileSystem
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.nics import Machine as NicMachine
from testbed.node import Node, wait_until
from testbed.npus import Machine as NpuMachine
from testbed.servers import Alertmanager, Prometheus, Receiver

FOLDER = ROOT / ".demo"
# The shipped rules wait minutes, so that nobody is woken for nothing; nobody sleeps here.
SPEED = 60.0
ARRIVAL_SECONDS = 120.0
DONE = "every alert arrived, and resolved where the damage does not last"
OFF_THE_BUS = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


class Fault(msgspec.Struct, frozen=True):
    """Something to break: the key that does it, what it is, and the alert that must come.

    An alert that `lasts` stays for longer than this demo after the fault is mended: damage done
    is not undone.
    """

    key: str
    title: str
    alert: str
    labels: dict[str, str]
    inject: Callable[[], object]
    repair: Callable[[], object]
    lasts: bool = False


def mount_target(point: Path) -> dict[str, str]:
    """Return a target of the mounts probe that writes."""
    return {"path": str(point), "access": "write"}


def tmpfs(stack: ExitStack, folder: Path, name: str, size: str) -> Path:
    """Mount a small memory file system, gone with our mount namespace at the latest."""
    point = folder / name
    point.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", f"scratch-{name}", point], check=True
    )
    stack.callback(lambda: subprocess.run(["umount", "-l", point], check=False, stderr=-3))
    return point


def remount(point: Path, mode: str) -> None:
    """Switch a mount between ro and rw."""
    subprocess.run(["mount", "-o", f"remount,bind,{mode}", point], check=True)


class Demo:
    """Three nodes (this one, and simulated ones with GPUs and NPUs), the servers, the faults."""

    def __init__(self, stack: ExitStack) -> None:
        for name in ("this", "simulated"):
            (FOLDER / name).mkdir(parents=True)
        mounts = Path("/mnt")
        subprocess.run(["mount", "-t", "tmpfs", "demo", mounts], check=True)
        self.data = stack.enter_context(FaultyFileSystem(mounts, "filer-1:/data", "data"))
        self.models = stack.enter_context(FaultyFileSystem(mounts, "filer-2:/models", "models"))
        self.scratch = tmpfs(stack, mounts, "scratch", "1m")
        self.checkpoints = tmpfs(stack, mounts, "checkpoints", "1m")
        self.datasets = tmpfs(stack, mounts, "datasets", "1m")
        points = [self.data.mountpoint, self.models.mountpoint, self.scratch]
        points += [self.checkpoints, self.datasets]
        mount_probe = {"targets": [mount_target(point) for point in points], "timeout": "2s"}
        timing = {"interval": "3s", "timeout": "3s"}
        self.this = Node(
            FOLDER / "this",
            {
                "defaults": timing,
                "labels": {"rack": "demo", "pool": "train"},
                "probes": {
                    "mounts": mount_probe,
                    "node": {"interval": "15s"},
                    "nvidia": {},
                    "kernel_log": {},
                    "network": {},
                    "rdma": {},
                },
            },
            NODE_NAME="this-node",
        )
        self.machine = Machine(FOLDER / "simulated", "H100").start()
        self.kernel_log = stack.enter_context(KernelLog(mounts))
        self.nics = NicMachine(FOLDER / "simulated/sys", mlx5_infiniband=8)
        probes = {
            "nvidia": {**self.machine.settings, "expected": 8},
            "kernel_log": {"path": str(self.kernel_log.path)},
            "rdma": {},
        }
        self.simulated = Node(
            FOLDER / "simulated",
            {"defaults": timing, "probes": probes},
            *self.machine.flags,
            NODE_NAME="gpu-node-1",
            **self.machine.environment,
        )
        (FOLDER / "npus").mkdir()
        self.npus = NpuMachine(FOLDER / "npus").start()
        ascend = {**self.npus.settings, "expected": 8, "interval": "5s", "timeout": "5s"}
        self.npu_node = Node(
            FOLDER / "npus",
            {"defaults": timing, "probes": {"ascend": ascend}},
            *self.npus.flags,
            NODE_NAME="npu-node-1",
        )
        for node in (self.this, self.simulated, self.npu_node):
            stack.enter_context(node)
        self.receiver = stack.enter_context(Receiver())
        self.alertmanager = stack.enter_context(Alertmanager(FOLDER, self.receiver.url, SPEED))
        targets = {
            "this-node": f"127.0.0.1:{self.this.port}",
            "gpu-node-1": f"127.0.0.1:{self.simulated.port}",
            "npu-node-1": f"127.0.0.1:{self.npu_node.port}",
        }
        self.prometheus = stack.enter_context(Prometheus(FOLDER, targets, self.alertmanager, SPEED))

    def card_faults(self) -> list[Fault]:
        """What can be broken on the simulated node's GPUs."""
        machine, log = self.machine, self.kernel_log

        def card(number: int) -> dict[str, str]:
            return {"instance": "gpu-node-1", "uuid": machine.uuid(number)}

        return [
            Fault(
                "g",
                "GPU 2 answers GPU_IS_LOST",
                "AcceleratorLost",
                card(2),
                lambda: machine.lose(2),
                lambda: machine.recover(2),
            ),
            Fault(
                "e",
                "GPU 4 counts an uncorrectable ECC error",
                "EccUncorrectable",
                card(4),
                lambda: machine.set(4, ecc__1__0__2=1),
                lambda: None,
                lasts=True,
            ),
            Fault(
                "x",
                "GPU 6 falls off the bus: Xid 79 in the kernel's log",
                "NvidiaXid",
                card(6) | {"xid": "79", "action": "reboot_node"},
                lambda: log.write(f"NVRM: Xid (PCI:{machine.slots[6]}): 79, {OFF_THE_BUS}"),
                lambda: None,
                lasts=True,
            ),
        ]

    def port_faults(self) -> list[Fault]:
        """What can be broken on the simulated node's RDMA ports."""
        nics = self.nics
        here = {"instance": "gpu-node-1"}
        return [
            Fault(
                "b",
                "RDMA device mlx5_3 falls off the bus",
                "RdmaPortDown",
                {**here, "device": "mlx5_3"},
                lambda: nics.vanish("mlx5_3"),
                lambda: nics.come_back("mlx5_3"),
            ),
            Fault(
                "s",
                "RDMA port mlx5_5 trains at half its rate",
                "RdmaPortRateDegraded",
                {**here, "device": "mlx5_5"},
                lambda: nics.up("mlx5_5/1", "200 Gb/sec (2X NDR)"),
                lambda: nics.up("mlx5_5/1"),
            ),
        ]

    def chip_faults(self) -> list[Fault]:
        """What can be broken on the other simulated node's NPUs."""
        npus = self.npus
        here = {"instance": "npu-node-1"}
        codes = ["80E01801"]
        return [
            Fault(
                "n",
                "NPU 3 reports an alarm: a multi-bit ECC error",
                "NpuUnhealthy",
                {**here, "device": "3"},
                lambda: npus.change(3, health="Alarm", codes=codes),
                lambda: npus.change(3, health="OK", codes=[]),
            ),
            Fault(
                "l",
                "the RoCE port of NPU 5 goes down",
                "NpuLinkDown",
                {**here, "device": "5"},
                lambda: npus.change(5, link="DOWN"),
                lambda: npus.change(5, link="UP"),
            ),
        ]

    def faults(self) -> list[Fault]:
        """What can be broken, and how it is mended."""
        state = self.simulated.folder / "state"
        filler = self.checkpoints / "filler"
        here = {"instance": "this-node"}
        return [
            *self.card_faults(),
            *self.port_faults(),
            *self.chip_faults(),
            Fault(
                "h",
                "filer-1 hangs under data",
                "MountHung",
                {**here, "mountpoint": str(self.data.mountpoint)},
                lambda: self.data.fault("hang"),
                lambda: self.data.fault("none"),
            ),
            Fault(
                "c",
                "filer-2 returns other bytes than written",
                "MountContentMismatch",
                {**here, "mountpoint": str(self.models.mountpoint)},
                lambda: self.models.fault("corrupt"),
                lambda: self.models.fault("none"),
                lasts=True,
            ),
            Fault(
                "r",
                "scratch turns read-only",
                "MountReadOnly",
                {**here, "mountpoint": str(self.scratch)},
                lambda: remount(self.scratch, "ro"),
                lambda: remount(self.scratch, "rw"),
            ),
            Fault(
                "f",
                "checkpoints fills up",
                "FilesystemSpaceLow",
                {**here, "mountpoint": str(self.checkpoints), "severity": "critical"},
                lambda: filler.write_bytes(bytes(900 * 1024 + 90 * 1024)),
                filler.unlink,
            ),
            Fault(
                "u",
                "datasets is unmounted",
                "MountMissing",
                {**here, "mountpoint": str(self.datasets)},
                lambda: subprocess.run(["umount", "-l", self.datasets], check=True),
                lambda: subprocess.run(
                    ["mount", "-t", "tmpfs", "scratch-datasets", self.datasets], check=True
                ),
            ),
            Fault(
                "p",
                "gpu-node-1's state directory is damaged for good",
                "ProbeFailing",
                {"instance": "gpu-node-1", "probe": "history"},
                lambda: damage(state),
                lambda: shutil.rmtree(state),
            ),
            Fault(
                "d",
                "the exporter of gpu-node-1 is killed",
                "ExporterDown",
                {"instance": "gpu-node-1"},
                self.simulated.kill,
                self.simulated.start,
            ),
        ]


def damage(state: Path) -> None:
    """Put a directory where the history's file should be."""
    shutil.rmtree(state)
    (state / "history.db").mkdir(parents=True)


def row(seconds: float, *cells: str) -> None:
    """Print one line of the table."""
    print(f"{seconds:7.1f}s  {cells[0]:<10}{cells[1]:<30}{'  '.join(cells[2:])}", flush=True)


def tour(demo: Demo) -> bool:
    """Break everything in two waves, wait for each alert, mend it, wait until it resolves."""
    started = time.monotonic()
    *first, down = demo.faults()
    complete = True
    for wave in (first, [down]):
        begun = {fault.alert: time.monotonic() for fault in wave}
        for fault in wave:
            fault.inject()
            row(time.monotonic() - started, "fault", "", fault.title)
        complete &= watch(demo, wave, begun, started, "firing")
        ended = {fault.alert: time.monotonic() for fault in wave}
        for fault in wave:
            fault.repair()
        row(time.monotonic() - started, "repaired", "", "everything above")
        passing = [fault for fault in wave if not fault.lasts]
        complete &= watch(demo, passing, ended, started, "resolved")
    return complete


def watch(
    demo: Demo, faults: list[Fault], since: dict[str, float], started: float, status: str
) -> bool:
    """Print each alert as it arrives at the webhook; whether all did in time."""
    waiting = list(faults)
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while waiting and time.monotonic() < deadline:
        for fault in list(waiting):
            found = demo.receiver.arrived(
                status, since[fault.alert], alertname=fault.alert, **fault.labels
            )
            if found is not None:
                waiting.remove(fault)
                moment, alert = found
                after = f"after {moment - since[fault.alert]:.1f} s"
                summary = alert["annotations"]["summary"]
                row(moment - started, status, fault.alert, f"{after}:  {summary}")
        time.sleep(0.1)
    for fault in waiting:
        row(time.monotonic() - started, "MISSING", fault.alert, f"{fault.title}: not {status}")
    return not waiting


def menu(demo: Demo) -> None:
    """Let a person break and mend things until q or ^C."""
    faults = {fault.key: fault for fault in demo.faults()}
    broken: set[str] = set()
    shown, started = len(demo.receiver.alerts), time.monotonic()
    print("\nBreak or mend: " + ", ".join(f"{key} {fault.title}" for key, fault in faults.items()))
    print("q ends everything.", flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], 0.5)
        for _, alert in demo.receiver.alerts[shown:]:
            name = alert["labels"]["alertname"]
            if name != "Watchdog":
                summary = alert["annotations"]["summary"]
                row(time.monotonic() - started, alert["status"], name, summary)
        shown = len(demo.receiver.alerts)
        if not ready:
            continue
        key = sys.stdin.readline()
        if key.strip() == "q" or not key:
            return
        fault = faults.get(key.strip())
        if fault is not None:
            (fault.repair if fault.key in broken else fault.inject)()
            broken ^= {fault.key}
            verb = "broken" if fault.key in broken else "mended"
            row(time.monotonic() - started, verb, "", fault.title)


def main() -> int:
    """Run the demo; 0 when every alert arrived."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--once", action="store_true", help="one scripted tour, then end")
    once = parser.parse_args().once
    if "PRIVATE_MOUNTS" not in os.environ:
        print("run it as: make demo; it mounts things over /mnt, for itself alone", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        with ExitStack() as stack:
            print(
                "starting nodevitals three times, Prometheus, Alertmanager, a webhook …", flush=True
            )
            demo = Demo(stack)
            print(f"  nodevitals    {demo.this.url}/metrics   (this node, real)")
            simulated = "(gpu-node-1, simulated: 8 GPUs, 8 NICs)"
            print(f"                {demo.simulated.url}/metrics   {simulated}")
            print(f"                {demo.npu_node.url}/metrics   (npu-node-1, simulated: 8 NPUs)")
            print(f"  Prometheus    {demo.prometheus.url}/alerts")
            print(f"  Alertmanager  {demo.alertmanager.url}")
            print(f"  rules: as shipped, their waits {SPEED:g} times shorter\n", flush=True)
            wait_until(
                lambda: len(demo.prometheus.query("nodevitals_probe_success == 1")) >= 15,
                60,
                "every probe healthy in Prometheus",
            )
            complete = tour(demo)
            print(DONE if complete else "NOT every alert arrived")
            if not once:
                menu(demo)
            return 0 if complete else 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
