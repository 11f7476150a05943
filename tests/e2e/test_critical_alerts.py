"""Critical alerts, from a fault below the agent to a notification at a webhook.

Agents on simulated machines, real Prometheus and Alertmanager with the shipped rules and routes.
Probes, scrapes and evaluations run every three seconds instead of every 15 s, so that a busy
machine keeps up with them, and all waits are shorter. Prints how long each alert took beyond its
own wait, times 5 (docs/alert-latency.md).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

import msgspec
import pytest
import yaml

from testbed import gpus
from testbed.cluster import SimulatedCluster
from testbed.conditions import ROOT_BROKEN, mounts
from testbed.node import ROOT, wait_until
from testbed.servers import Alertmanager, Prometheus
from testbed.trees import write
from testbed.waits import seconds
from testbed.webhook import Receiver

SPEED = 5.0
# An alert's own wait is not measured: whole evaluations, but as few as possible.
WAITS_SPEED = 60.0
LONGEST_WAIT = 5.0
# MountHung has another wait, in its expression.
HUNG_LIMIT = 30.0


class CriticalFault(msgspec.Struct, frozen=True):
    """A critical alert, the node and the labels it must have, and the fault that must cause it.

    An alert on what all nodes share has no node. `variant` separates faults of one alert.
    """

    alert: str
    instance: str
    inject: Callable[[], object]
    labels: dict[str, str] = {}
    variant: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What no other fault has."""
        return self.alert, self.variant


def gpu_faults(cluster: SimulatedCluster) -> list[CriticalFault]:
    machine, log = cluster.gpus, cluster.log

    def fault(alert: str, number: int, inject: Callable[[], object], **more: str) -> CriticalFault:
        return CriticalFault(alert, "gpu-1", inject, {"uuid": machine.uuid(number), **more})

    xid = f"NVRM: Xid (PCI:{machine.slots[5]}): 79, fallen off"
    sxid = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Fatal, Link 30 egress"
    return [
        fault("AcceleratorLost", 0, lambda: machine.lose(0)),
        fault("EccUncorrectable", 1, lambda: machine.set(1, ecc__1__0__2=1)),
        fault("RowRemapFailure", 2, lambda: machine.set(2, remapped="0 1 1 1")),
        fault(
            "AcceleratorRecoveryAction", 3, lambda: machine.set_field(3, gpus.RECOVERY_ACTION, 2)
        ),
        fault("NvlinkDown", 4, lambda: machine.set(4, nvlink__3=0)),
        fault("NvidiaXid", 5, lambda: log.write(xid), xid="79"),
        fault("AcceleratorUnreadable", 6, lambda: machine.lose(6, 999)),
        CriticalFault(
            "NvidiaSxid", "gpu-1", lambda: log.write(sxid), {"device": "nvswitch3", "sxid": "12028"}
        ),
        CriticalFault("AcceleratorsUnseen", "gpu-2", cluster.hanging_gpus.hang),
    ]


def node_faults(cluster: SimulatedCluster) -> list[CriticalFault]:
    nics, npus = cluster.nics, cluster.npus
    errors = "counters/local_link_integrity_errors"
    memory = {"devices/system/edac/mc/mc0/ue_count": "2\n"}
    compromised = "mlx5_core 0000:41:00.0: device's health compromised - reached miss count"
    nvme = {"class/nvme/nvme0/state": "dead\n"}

    def fault(alert: str, inject: Callable[[], object], **labels: str) -> CriticalFault:
        return CriticalFault(alert, "gpu-1", inject, labels)

    return [
        fault("RdmaPortDown", lambda: nics.vanish("mlx5_0"), device="mlx5_0"),
        fault("RdmaPortFatalErrors", lambda: nics.count("mlx5_1/1", errors), device="mlx5_1"),
        fault("NicFailed", lambda: cluster.log.write(compromised), pci_bus_id="0000:41:00.0"),
        fault("NodeMemoryUncorrectable", lambda: write(cluster.sysfs, memory)),
        fault("FilesystemReadOnly", lambda: mounts(cluster.procfs, ROOT_BROKEN), mountpoint="/"),
        fault("NvmeFailed", lambda: write(cluster.sysfs, nvme), device="nvme0"),
        CriticalFault("NpuUnhealthy", "npu-1", lambda: npus.change(3, health="Alarm")),
        CriticalFault("NpuLinkDown", "npu-1", lambda: npus.change(5, link="DOWN")),
        CriticalFault("NodeDown", "idle-1", cluster.agents["idle-1"].kill),
    ]


def storage_faults(cluster: SimulatedCluster) -> list[CriticalFault]:
    mounts, small, absent = cluster.mounts, cluster.small, cluster.absent

    def fault(alert: str, point: Path, inject: Callable[[], object]) -> CriticalFault:
        return CriticalFault(alert, "storage-1", inject, {"mountpoint": str(point)})

    def faulty(alert: str, mount: str, kind: str) -> CriticalFault:
        return fault(alert, mounts[mount].mountpoint, lambda: mounts[mount].fault(kind))

    stopped = fault("MountHung", mounts["stops"].mountpoint, mounts["stops"].stop)
    return [
        faulty("MountHung", "hangs", "hang"),
        msgspec.structs.replace(stopped, variant="calls that SIGTERM ends"),
        faulty("MountContentMismatch", "corrupts", "corrupt"),
        faulty("MountReadOnly", "refuses", "enospc"),
        faulty("MountNotReadable", "unreadable", "eio"),
        fault("MountMissing", absent, lambda: subprocess.run(["umount", "-l", absent], check=True)),
        CriticalFault(
            "FilesystemSpaceLow",
            "",
            lambda: (small / "filler").write_bytes(bytes(1000 * 1024)),
            {"source": "filer:/s", "scope": "fleet"},
        ),
    ]


def critical_alerts() -> dict[str, float]:
    """Return the wait in seconds of each critical alert on what agents expose."""
    documents = [yaml.safe_load(file.read_text()) for file in (ROOT / "rules").glob("*.yaml")]
    rules = [
        rule for document in documents for group in document["groups"] for rule in group["rules"]
    ]
    faults = {
        (rule["labels"]["fault"], rule["labels"]["scope"])
        for rule in rules
        if rule.get("record") == "nodevitals:fault" and rule["labels"]["severity"] == "critical"
    }
    waits: dict[str, float] = {}
    for rule in rules:
        expression = rule["expr"]
        other = {"node": 'scope="fleet"', "device": 'scope="fleet"', "fleet": 'scope="node"'}
        if "alert" in rule and any(
            f'"{fault}' in expression and other[scope] not in expression for fault, scope in faults
        ):
            waits.setdefault(rule["alert"], seconds(rule.get("for", "0s")))
    return waits


def scrapes(prometheus: Prometheus) -> dict[str, int]:
    """Return the number of successful scrapes by instance."""
    found = prometheus.query('sum_over_time(up{job="nodevitals"}[10m])')
    return {one["metric"]["instance"]: int(one["value"][1]) for one in found}


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SimulatedCluster, Receiver]]:
    folder = tmp_path_factory.mktemp("critical")
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        alertmanager = Alertmanager(folder, receiver.url, SPEED, ungrouped=True)
        stack.enter_context(alertmanager)
        made = SimulatedCluster(stack, folder)
        targets = {name: f"127.0.0.1:{node.port}" for name, node in made.agents.items()}
        # Before the agents: it scrapes its first target after five seconds.
        prometheus = Prometheus(
            folder,
            targets,
            alertmanager,
            SPEED,
            waits_speed=WAITS_SPEED,
            longest_wait=LONGEST_WAIT,
        )
        stack.enter_context(prometheus)
        made.start()
        # Every target has succeeded once. One whose hardware is absent may have been scraped before
        # its first run: it is gone.
        succeeded = "max_over_time(nodevitals_probe_success[5m]) and nodevitals_probe_success"
        healthy = f"min by (instance) ({succeeded}) == 1"
        wait_until(lambda: len(prometheus.query(healthy)) == len(targets), 120, "all healthy")
        # Two more scrapes: a counter whose first value is raised already shows no increase.
        before = scrapes(prometheus)
        wait_until(lambda: all(scrapes(prometheus)[one] >= before[one] + 2 for one in targets))
        yield made, receiver


def test_every_critical_alert_is_notified(
    cluster: tuple[SimulatedCluster, Receiver], capsys: pytest.CaptureFixture[str]
) -> None:
    made, receiver = cluster
    faults = [*gpu_faults(made), *node_faults(made), *storage_faults(made)]
    waits = critical_alerts()
    # A new alert need not be here: it has its promtool test, and the way of these.
    assert {fault.alert for fault in faults} <= waits.keys()
    began = {}
    for fault in faults:
        began[fault.key] = monotonic()
        fault.inject()
    took: dict[tuple[str, str], float] = {}

    def all_arrived() -> bool:
        for fault in faults:
            labels = {"alertname": fault.alert, **fault.labels}
            labels |= {"instance": fault.instance} if fault.instance else {}
            since = began[fault.key]
            found = receiver.arrived("firing", since, severity="critical", **labels)
            if found is not None:
                took.setdefault(fault.key, found[0] - since)
        return len(took) == len(faults)

    with suppress(AssertionError):  # the next line shows which are missing
        wait_until(all_arrived)
    assert took.keys() == began.keys()
    with capsys.disabled():
        print_table(took, waits)


def print_table(took: dict[tuple[str, str], float], waits: dict[str, float]) -> None:
    """Print the seconds that each alert took beyond its own wait, at the usual speed."""
    print("\n| alert | its own wait | to the message, beyond it |\n|---|---:|---:|")
    for (alert, variant), elapsed in sorted(took.items()):
        limit = HUNG_LIMIT if alert == "MountHung" else 0
        waited = min(waits[alert] / WAITS_SPEED, LONGEST_WAIT) + limit / SPEED
        beyond = (elapsed - waited) * SPEED
        name = f"{alert}, {variant}" if variant else alert
        print(f"| {name} | {waits[alert] + limit:.0f} s | {beyond:.0f} s |")
