"""Every critical alert, from the fault below the agent to the message of a webhook.

Real agents on simulated machines, real Prometheus and Alertmanager with what is shipped; every
wait is a fifteenth: probes, scrapes and evaluations every second instead of every 15 s. Ends by
printing how long each took, times fifteen (docs/alert-latency.md).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest
import yaml

from testbed import gpus, nics, npus
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, wait_until
from testbed.servers import Alertmanager, Prometheus, Receiver, divided
from testbed.trees import write

SPEED = 15.0
# The alerts' own waits are shorter still: what is asked is the time beyond them.
WAITS_SPEED = 60.0
# So long a call must hang before the mount does; the agent's clock runs at its usual speed.
HUNG_SECONDS = 30.0
TIMING = {"interval": "1s", "timeout": "1s"}


class Fault(msgspec.Struct, frozen=True):
    """The alert that must come, on which node and of what, and how its fault is injected."""

    alert: str
    instance: str
    inject: Callable[[], object]
    labels: dict[str, str] = {}


def critical() -> dict[str, float]:
    """Return each critical alert's wait in seconds, of those that speak of one node."""
    documents = [yaml.safe_load(file.read_text()) for file in (ROOT / "rules").glob("*.yaml")]
    rules = [
        rule for document in documents for group in document["groups"] for rule in group["rules"]
    ]
    faults = {
        rule["labels"]["fault"]
        for rule in rules
        if rule.get("record") == "nodevitals:fault" and rule["labels"]["severity"] == "critical"
    }
    waits: dict[str, float] = {}
    for rule in rules:
        if "alert" in rule and any(f'"{fault}' in rule["expr"] for fault in faults):
            scaled = divided(rule.get("for", "0s"), 1)
            waits.setdefault(rule["alert"], float(scaled.removesuffix("ms")) / 1000)
    return waits


def unmount(point: Path) -> None:
    """Take a mount away, if it is still there."""
    subprocess.run(["umount", "-l", str(point)], stderr=subprocess.DEVNULL, check=False)


class Site:
    """Three GPU nodes (one for each way in which a driver fails), an NPU node, a storage node."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.agents: dict[str, Node] = {}
        self._stack = stack
        self.log = stack.enter_context(KernelLog(folder))
        (folder / "gpu").mkdir()
        self.gpus = gpus.Machine(folder / "gpu", "H100").start()
        self.sysfs = folder / "gpu/sys"
        self.nics = nics.Machine(self.sysfs, mlx5_infiniband=2)
        self._start(
            folder / "gpu",
            "gpu-1",
            {
                "nvidia": {**self.gpus.settings, "expected": 8},
                "kernel_log": {"path": str(self.log.path), "interval": "200ms"},
                "rdma": {},
                "node": {},
            },
            self.gpus,
        )
        (folder / "hung").mkdir()
        self.hung = gpus.Machine(folder / "hung", "H100").start()
        self._start(folder / "hung", "gpu-2", {"nvidia": self.hung.settings}, self.hung)
        (folder / "npu").mkdir()
        self.npus = npus.Machine(folder / "npu").start()
        ascend = {**self.npus.settings, "interval": "2s", "timeout": "2s"}
        self._start(folder / "npu", "npu-1", {"ascend": ascend}, self.npus)
        self._storage(folder)

    def _storage(self, folder: Path) -> None:
        names = ("hangs", "corrupts", "refuses", "unreadable")
        self.mounts = {
            name: self._stack.enter_context(FaultyFileSystem(folder, f"{name}:/x", name))
            for name in names
        }
        self.small, self.absent = folder / "small", folder / "absent"
        for point in (self.small, self.absent):
            point.mkdir()
            size = "-osize=1m"
            subprocess.run(["mount", "-t", "tmpfs", size, point.name, point], check=True)
            self._stack.callback(unmount, point)
        targets = [
            {"path": str(mount.mountpoint), "access": "read" if name == "unreadable" else "write"}
            for name, mount in self.mounts.items()
        ]
        targets += [{"path": str(point)} for point in (self.small, self.absent)]
        (folder / "storage").mkdir()
        self._start(folder / "storage", "storage-1", {"mounts": {"targets": targets}}, None)

    def _start(
        self,
        folder: Path,
        name: str,
        probes: dict[str, object],
        machine: gpus.Machine | npus.Machine | None,
    ) -> None:
        flags = machine.flags if machine else ()
        more = machine.environment if isinstance(machine, gpus.Machine) else {}
        config = {"defaults": TIMING, "probes": probes}
        node = Node(folder, config, *flags, NODE_NAME=name, **more)
        self.agents[name] = self._stack.enter_context(node)

    def fill(self) -> None:
        """Leave under a twentieth free."""
        (self.small / "filler").write_bytes(bytes(1000 * 1024))

    def faults(self) -> list[Fault]:
        """One for every critical alert."""
        machine, cards = self.gpus, self.nics
        uuid = {number: {"uuid": machine.uuid(number)} for number in range(8)}
        edac = {"devices/system/edac/mc/mc0/ue_count": "2\n"}
        mounts = {name: {"mountpoint": str(m.mountpoint)} for name, m in self.mounts.items()}
        point = str(self.absent)
        return [
            Fault("AcceleratorLost", "gpu-1", lambda: machine.lose(0), uuid[0]),
            Fault("EccUncorrectable", "gpu-1", lambda: machine.set(1, ecc__1__0__2=1), uuid[1]),
            Fault("RowRemapFailure", "gpu-1", lambda: machine.set(2, remapped="0 1 1 1"), uuid[2]),
            Fault(
                "AcceleratorRecoveryAction",
                "gpu-1",
                lambda: machine.set_field(3, gpus.RECOVERY_ACTION, 2),
                uuid[3],
            ),
            Fault(
                "NvlinkDown",
                "gpu-1",
                lambda: machine.set(4, nvlink__3=0),
                uuid[4],
            ),
            Fault(
                "NvidiaXid",
                "gpu-1",
                lambda: self.log.write(f"NVRM: Xid (PCI:{machine.slots[5]}): 79, fallen off"),
                {**uuid[5], "xid": "79"},
            ),
            Fault("AcceleratorsUnseen", "gpu-2", lambda: self.hung.set(2, temperature="@hang")),
            Fault("RdmaPortDown", "gpu-1", lambda: cards.vanish("mlx5_0"), {"device": "mlx5_0"}),
            Fault(
                "RdmaPortFatalErrors",
                "gpu-1",
                lambda: cards.count("mlx5_1/1", "counters/local_link_integrity_errors"),
                {"device": "mlx5_1"},
            ),
            Fault("NodeMemoryUncorrectable", "gpu-1", lambda: write(self.sysfs, edac)),
            Fault(
                "NvmeFailed",
                "gpu-1",
                lambda: write(self.sysfs, {"class/nvme/nvme0/state": "dead\n"}),
                {"device": "nvme0"},
            ),
            Fault("NpuUnhealthy", "npu-1", lambda: self.npus.change(3, health="Alarm")),
            Fault("NpuLinkDown", "npu-1", lambda: self.npus.change(5, link="DOWN")),
            Fault("MountHung", "storage-1", lambda: self.mounts["hangs"].fault("hang")),
            Fault(
                "MountContentMismatch",
                "storage-1",
                lambda: self.mounts["corrupts"].fault("corrupt"),
                mounts["corrupts"],
            ),
            Fault(
                "MountReadOnly",
                "storage-1",
                lambda: self.mounts["refuses"].fault("enospc"),
                mounts["refuses"],
            ),
            Fault(
                "MountNotReadable",
                "storage-1",
                lambda: self.mounts["unreadable"].fault("eio"),
                mounts["unreadable"],
            ),
            Fault(
                "MountMissing",
                "storage-1",
                lambda: subprocess.run(["umount", "-l", point], check=True),
                {"mountpoint": point},
            ),
            Fault("FilesystemSpaceLow", "storage-1", self.fill, {"mountpoint": str(self.small)}),
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Receiver]]:
    folder = tmp_path_factory.mktemp("critical")
    with ExitStack() as stack:
        made = Site(stack, folder)
        receiver = stack.enter_context(Receiver())
        alertmanager = stack.enter_context(Alertmanager(folder, receiver.url, SPEED, alone=True))
        targets = {name: f"127.0.0.1:{node.port}" for name, node in made.agents.items()}
        prometheus = Prometheus(folder, targets, alertmanager, SPEED, waits_speed=WAITS_SPEED)
        stack.enter_context(prometheus)
        ready = "count by (instance) (nodevitals_probe_success == 1)"
        wait_until(lambda: len(prometheus.query(ready)) == len(targets), 60)
        time.sleep(5)  # two scrapes of every counter: one that is born raised shows no increase
        yield made, receiver


@pytest.mark.timeout(400)
def test_every_critical_alert_arrives_from_below(
    site: tuple[Site, Receiver], capsys: pytest.CaptureFixture[str]
) -> None:
    made, receiver = site
    faults, waits = made.faults(), critical()
    assert {fault.alert for fault in faults} == waits.keys()
    began = {}
    for fault in faults:
        began[fault.alert] = time.monotonic()
        fault.inject()
    took: dict[str, float] = {}

    def arrived() -> bool:
        for fault in faults:
            found = receiver.arrived(
                "firing",
                began[fault.alert],
                alertname=fault.alert,
                instance=fault.instance,
                severity="critical",
                **fault.labels,
            )
            if found is not None:
                took.setdefault(fault.alert, found[0] - began[fault.alert])
        return len(took) == len(faults)

    with suppress(AssertionError):
        wait_until(arrived, max(waits.values()) / WAITS_SPEED + 45)
    assert took.keys() == waits.keys()
    with capsys.disabled():
        print("\n| alert | its own wait | to the message, beyond it |\n|---|---:|---:|")
        for alert, seconds in sorted(took.items()):
            limit = HUNG_SECONDS if alert == "MountHung" else 0
            beyond = (seconds - limit - waits[alert] / WAITS_SPEED) * SPEED
            print(f"| {alert} | {waits[alert] + limit:.0f} s | {beyond:.0f} s |")
