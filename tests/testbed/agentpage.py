"""What a real agent exposes on a node with eight GPUs, RDMA ports, mounts and fabric tests.

The parts come from agents with simulated hardware: GPUs and ports have trees of their own, mounts
are real FUSE mounts, and fabric tests need several agents.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from testbed import gpus, nics
from testbed.faultyfs import FaultyFileSystem
from testbed.kmsg import KernelLog
from testbed.loopback import Loopback
from testbed.node import Node, wait_until
from testbed.trees import write

PARTNERS = 4
SUCCESS = "nodevitals_probe_success"
_LABELS = {"leaf": "leaf", "rack": "rack", "pool": "pool"}


def read(folder: Path, ports: int) -> str:
    """Return the page of a node with this number of RDMA ports; its GPUs and links are well."""
    (folder / "page").mkdir()
    with ExitStack() as stack:
        node = _node(stack, folder / "page", ports)
        storage = _storage(stack, folder)
        fabric = stack.enter_context(Loopback(folder, PARTNERS + 1))
        for one in (node, storage):
            stack.enter_context(one)
            wait_until(lambda one=one: one.get("/readyz").ok)  # type: ignore[misc]
        fabric.start()
        tester = fabric.nodes[fabric.names[0]]

        def tested() -> bool:
            return _part(tester, "nodevitals_fabric_bandwidth_bytes_per").count("\n") >= PARTNERS

        def well() -> bool:
            return all(line.endswith(" 1\n") for line in _part(node, SUCCESS).splitlines(True))

        wait_until(tested, 90, "a test with every partner")
        wait_until(well, 90, "a success of every probe")
        # Messages from probe to probe: the names of the GPUs.
        time.sleep(5)
        # The clock is that of this machine, of which nothing is known.
        return (
            _part(node, "").replace("clock_synchronized 0", "clock_synchronized 1")
            + _part(storage, "nodevitals_mount_")
            + _part(tester, "nodevitals_fabric_")
        )


def _part(node: Node, prefix: str) -> str:
    lines = node.get().text.splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(prefix) and line[0] != "#")


def _node(stack: ExitStack, folder: Path, ports: int) -> Node:
    log = stack.enter_context(KernelLog(folder))
    machine = gpus.Machine(folder, "H100").start()
    nics.Machine(folder / "sys", mlx5_infiniband=ports)
    write(folder / "sys", {"class/nvme/nvme1/state": "live\n"})
    switches = {f"mlx5_{port}/1": f"rail-{port}" for port in range(ports)}
    probes = {
        "nvidia": {**machine.settings, "expected": len(machine.slots)},
        "kernel_log": {"path": str(log.path)},
        "rdma": {},
        "network": {},
        "node": {},
        "switches": {"lldp": False, "ports": switches},
    }
    config = {"labels": _LABELS, "probes": probes}
    return Node(folder, config, *machine.flags, **machine.environment)


def _storage(stack: ExitStack, folder: Path) -> Node:
    """Return an agent that watches two mounts of one filer."""
    mounts = [
        stack.enter_context(FaultyFileSystem(folder, f"filer:/{name}", name))
        for name in ("data", "scratch")
    ]
    targets = [{"path": str(one.mountpoint), "access": "write"} for one in mounts]
    (folder / "storage").mkdir()
    return Node(folder / "storage", {"probes": {"mounts": {"targets": targets}}})
