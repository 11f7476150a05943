"""The time from a fault to its notification, with every interval as shipped, and where it goes.

Five real agents on simulated machines with their default intervals, a real Prometheus and a real
Alertmanager with the shipped rules and routes. Faults whose alerts have no wait of their own are
injected at random within SPREAD_SECONDS; each alert has a group of its own, as the first one of a
node. Every GPU node is a cluster of its own: what happens on many nodes is another alert.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.measure import percentile, table
from testbed import gpus, nics
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import KernelLog
from testbed.node import Node, wait_until
from testbed.servers import Alertmanager, Prometheus
from testbed.stages import STAGES, Stages, Watched
from testbed.trees import write
from testbed.webhook import Receiver

GPU_NODES = 4
# Every GPU falls off the bus, and some have memory errors at another time.
XIDS = range(8)
MEMORY = range(4)
MOUNTS = 6
SPREAD_SECONDS = 150.0
LIMIT_SECONDS = 100.0
SEED = 20
MEANINGS = {
    "exposed": "the agent reads it and exposes it",
    "scraped": "the next scrape",
    "active": "the next evaluation",
    "sent": "Prometheus sends it",
    "notified": "Alertmanager waits (group_wait) and notifies",
}


class GpuNode:
    """A node with GPUs, RDMA ports, memory controllers and a kernel log."""

    def __init__(self, stack: ExitStack, folder: Path, name: str) -> None:
        folder.mkdir()
        self.name = name
        self.log = stack.enter_context(KernelLog(folder))
        self.gpus = gpus.Machine(folder, "H100").start()
        self.sysfs = folder / "sys"
        self.nics = nics.Machine(self.sysfs, mlx5_infiniband=2)
        write(self.sysfs, {"devices/system/edac/mc/mc0/ue_count": "0\n"})
        probes = {
            "nvidia": self.gpus.settings,
            "kernel_log": {"path": str(self.log.path)},
            "rdma": {},
            "node": {},
        }
        self.agent = Node(folder, {"probes": probes}, *self.gpus.flags, **self.gpus.environment)

    def faults(self) -> list[Watched]:
        """Return what can happen to it."""
        found = [self._xid(number) for number in XIDS]
        for number in MEMORY:
            ecc = partial(self.gpus.set, number, ecc__1__0__2=1)
            remapped = partial(self.gpus.set, number, remapped="0 1 1 1")
            errors = "nodevitals_accelerator_ecc_errors_total"
            kinds = {"kind": "uncorrected", "lifetime": "volatile"}
            uuid = {"uuid": self.gpus.uuid(number)}
            found.append(self._fault("EccUncorrectable", errors, ecc, uuid, **kinds))
            family = "nodevitals_nvidia_row_remap_failure"
            found.append(self._fault("RowRemapFailure", family, remapped, uuid))
        for number in range(2):
            port = {"device": f"mlx5_{number}", "port": "1"}
            counter = "local_link_integrity_errors"
            count = partial(self.nics.count, f"mlx5_{number}/1", f"counters/{counter}")
            family = "nodevitals_rdma_port_errors_total"
            found.append(self._fault("RdmaPortFatalErrors", family, count, port, counter=counter))
        memory = partial(write, self.sysfs, {"devices/system/edac/mc/mc0/ue_count": "2\n"})
        family = "nodevitals_node_memory_errors_total"
        found.append(self._fault("NodeMemoryUncorrectable", family, memory, {}, kind="uncorrected"))
        return found

    def _xid(self, number: int) -> Watched:
        record = f"NVRM: Xid (PCI:{self.gpus.slots[number]}): 79, GPU has fallen off the bus."
        labels = {"uuid": self.gpus.uuid(number), "xid": "79"}
        family = "nodevitals_nvidia_xid_last_timestamp_seconds"
        return self._fault("NvidiaXid", family, partial(self.log.write, record), labels)

    def _fault(
        self, alert: str, family: str, inject: Any, labels: dict[str, str], **more: str
    ) -> Watched:
        return Watched(alert, self.name, family, labels | more, inject, labels)


def storage(stack: ExitStack, folder: Path, name: str) -> tuple[Node, list[Watched]]:
    """Return an agent with mounts, and their faults."""
    folder.mkdir()
    mounts = [
        stack.enter_context(FaultyFileSystem(folder, f"filer:/{number}", f"mount-{number}"))
        for number in range(MOUNTS)
    ]
    targets = [{"path": str(one.mountpoint), "access": "write"} for one in mounts]
    family = "nodevitals_mount_content_mismatches_total"
    found = []
    for one in mounts:
        labels = {"mountpoint": str(one.mountpoint)}
        corrupt = partial(one.fault, "corrupt")
        found.append(Watched("MountContentMismatch", name, family, labels, corrupt, labels))
    return Node(folder, {"probes": {"mounts": {"targets": targets}}}), found


def main(folder: Path) -> None:
    """Print the tables."""
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        alertmanager = Alertmanager(folder, receiver.url, 1.0, ungrouped=True)
        stack.enter_context(alertmanager)
        nodes = [GpuNode(stack, folder / f"gpu-{one}", f"gpu-{one}") for one in range(GPU_NODES)]
        agents = {node.name: node.agent for node in nodes}
        agents["storage"], faults = storage(stack, folder / "storage", "storage")
        faults += [fault for node in nodes for fault in node.faults()]
        for agent in agents.values():
            stack.enter_context(agent)
        prometheus = in_clusters(Prometheus(folder, _addresses(agents), alertmanager, 1.0))
        stack.enter_context(prometheus)
        settle(prometheus, len(agents))
        stages = Stages(agents, prometheus, alertmanager, receiver)
        inject(faults, stages)
        stages.finish(faults)
    report(faults)


def _addresses(agents: dict[str, Node]) -> dict[str, str]:
    return {name: f"127.0.0.1:{agent.port}" for name, agent in agents.items()}


def in_clusters(prometheus: Prometheus) -> Prometheus:
    """Give each target a cluster of its own, in a Prometheus that is not started."""
    file = prometheus.folder / "prometheus.yaml"
    config = yaml.safe_load(file.read_text())
    for target in config["scrape_configs"][0]["static_configs"]:
        target["labels"]["cluster"] = target["labels"]["instance"]
    file.write_text(yaml.safe_dump(config))
    return prometheus


def settle(prometheus: Prometheus, targets: int) -> None:
    """Wait until three scrapes of every target were complete."""
    ready = "sum by (instance) (sum_over_time(nodevitals_probe_success[5m])) >= bool 3"
    healthy = 'count(count_over_time(up{job="nodevitals"}[5m]) >= 3)'
    wait_until(lambda: len(prometheus.query(ready)) == targets, 120)
    wait_until(lambda: prometheus.query(f"{healthy} == {targets}"), 120)


def inject(faults: list[Watched], stages: Stages) -> None:
    """Inject every fault at its random time; return when all are notified, or at the limit."""
    chance = random.Random(SEED)
    began = time.monotonic()
    due = sorted((chance.uniform(0, SPREAD_SECONDS), number) for number in range(len(faults)))
    while time.monotonic() < began + SPREAD_SECONDS + LIMIT_SECONDS:
        while due and began + due[0][0] <= time.monotonic():
            fault = faults[due.pop(0)[1]]
            fault.written = time.time()
            fault.inject()
        stages.look(faults)
        if not due and all("notified" in one.at for one in faults):
            break
        time.sleep(0.2)


def report(faults: list[Watched]) -> None:
    """Print the time of each alert, and that of each stage of Xid 79."""
    rows = []
    for alert in sorted({one.alert for one in faults}):
        mine = [one for one in faults if one.alert == alert]
        took = [one.at["notified"] - one.written for one in mine if "notified" in one.at]
        cells = [alert, str(len(mine)), str(len(mine) - len(took))]
        for share in (0.5, 0.95, 1.0):
            cells.append(f"{percentile(took, share):.1f} s" if took else "-")
        rows.append(cells)
    table(["alert", "faults", "lost", "median", "95th percentile", "longest"], rows)
    complete = [one for one in faults if one.alert == "NvidiaXid" and len(one.at) == len(STAGES)]
    total = sum(one.at["notified"] - one.written for one in complete)
    rows, before = [], {id(one): one.written for one in complete}
    for stage in STAGES:
        took = [max(0.0, one.at[stage] - before[id(one)]) for one in complete]
        before = {id(one): one.at[stage] for one in complete}
        shares = (f"{percentile(took, share):.1f} s" for share in (0.5, 0.95, 1.0))
        rows.append([MEANINGS[stage], *shares, f"{sum(took) / total:.0%}"])
    print(f"Stages of {len(complete)} Xids 79\n")
    table(["stage", "median", "95th percentile", "longest", "share of the time"], rows)
