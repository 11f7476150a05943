"""Faults of cables and modules, injected below the agent at one port: each is exposed in the family
that docs/fault-coverage.md names. What looks alike and is none, at another port, is not.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from testbed.mlxlink import COPPER, COUNTERS, EMPTY, OPTICAL, Mlxlink
from testbed.modules import osfp, qsfp
from testbed.netlinkserver import Driver, EthtoolKernel
from testbed.nics import Machine
from testbed.node import ROOT, Node, wait_until

DOCUMENT = (ROOT / "docs/fault-coverage.md").read_text()
CAUSE = "| Network switch or cable |"
P = "nodevitals_"
PROBES = ("rdma", "network", "transceivers")
WEAK = (0.05e-3, 1e-3, 1e-3, 1e-3)


class SimulatedNode(msgspec.Struct):
    """A running agent on a machine with ports, and the parts to break."""

    machine: Machine
    kernel: EthtoolKernel
    mlxlink: Mlxlink
    agent: Node

    def driver(self, device: str, driver: Driver) -> None:
        """Let the interface of a RoCE port have this driver and module."""
        self.kernel.interfaces[self.machine.interfaces[device]] = driver

    def module(self, device: str, **values: object) -> None:
        """Let mlxlink print these values of a port, where they differ from those of a good one."""
        place = (self.machine.folder / f"class/infiniband/{device}/device").resolve().name
        changed = {**OPTICAL, **COUNTERS, **values}
        counters = {key: changed[key] for key in COUNTERS}
        self.mlxlink.set(place, {key: changed[key] for key in OPTICAL}, counters)

    def value(self, family: str, device: str, **labels: str) -> float | None:
        """The value of a port, or of its interface."""
        key = {"device": device}
        if family.startswith("network_"):
            key = {"interface": self.machine.interfaces[device]}
        return self.agent.value(P + family, **key, **labels)

    def runs(self, probe: str) -> float:
        """The number of good runs of a probe."""
        return self.agent.value(P + "probe_runs_total", probe=probe, outcome="ok") or 0


class Fault(msgspec.Struct, frozen=True):
    """A fault at a port, the sample that shows it from `at_least` or `at_most` on, and what must
    not be shown at another port: there the value is out of these bounds, or missing.
    """

    name: str
    inject: Callable[[SimulatedNode, str], object]
    looks_alike: Callable[[SimulatedNode, str], object]
    ports: tuple[str, str]
    family: str
    labels: dict[str, str] = {}
    at_least: float = float("-inf")
    at_most: float = float("inf")

    def shown(self, value: float | None) -> bool:
        return value is not None and self.at_least <= value <= self.at_most


def switch_off(on: SimulatedNode, device: str) -> None:
    """Set the interface of a port down."""
    on.machine.set_interface(on.machine.interfaces[device], flags="0x1002")
    on.machine.down(f"{device}/1", counted=False)


def disable(on: SimulatedNode, device: str) -> None:
    """Disable a port of InfiniBand."""
    on.machine.set(f"{device}/1", phys_state="3: Disabled")
    on.machine.set(f"{device}/1", state="1: DOWN")


def unplug(on: SimulatedNode, device: str) -> None:
    """Take the module out."""
    on.machine.down(f"{device}/1")
    on.driver(device, Driver(None))


def cable_fault(on: SimulatedNode, device: str) -> None:
    """Take the link down."""
    on.machine.down(f"{device}/1")


def millidecibels(*values: float) -> str:
    """Received power as mlxlink prints it."""
    return ",".join(f"{one:.3f}" for one in values) + " [-10.000..6]"


LANE = {"lane": "1"}
INFINIBAND = [f"mlx5_{number}" for number in range(8)]
ROCE = [f"mlx5_{number}" for number in range(8, 20)]
FAULTS = [
    Fault(
        *("outage of an InfiniBand port", cable_fault, disable, (INFINIBAND[0], INFINIBAND[1])),
        *("rdma_port_longest_down_seconds", {}, 0.1),
    ),
    Fault(
        *("outage of a RoCE port", cable_fault, switch_off, (ROCE[0], ROCE[1])),
        *("rdma_port_down_seconds_total", {}, 0.1),
    ),
    Fault(
        *("outage of an interface", cable_fault, switch_off, (ROCE[2], ROCE[3])),
        *("network_longest_down_seconds", {}, 0.1),
    ),
    Fault(
        "weak light",
        lambda on, device: on.driver(device, Driver(osfp(watts=WEAK))),
        lambda on, device: on.driver(device, Driver(qsfp(copper=True))),
        (ROCE[4], ROCE[5]),
        "transceiver_receive_watts",
        LANE,
        at_most=0.1e-3,
    ),
    Fault(
        "weak light at InfiniBand",
        lambda on, device: on.module(
            device, **{"Rx Power Current [dBm]": millidecibels(-12.0, 1.0, 1.0, 1.0)}
        ),
        lambda on, device: on.module(device, **COPPER),
        (INFINIBAND[2], INFINIBAND[3]),
        "transceiver_receive_watts",
        LANE,
        at_most=0.1e-3,
    ),
    Fault(
        "hot module",
        lambda on, device: on.module(device, **{"Temperature [C]": "81 [-5..75]"}),
        lambda on, device: on.module(device, **EMPTY),
        (INFINIBAND[4], INFINIBAND[5]),
        "transceiver_temperature_celsius",
        at_least=75,
    ),
    Fault(
        "uncorrectable blocks",
        lambda on, device: on.driver(device, Driver(qsfp(), {2: 10**6, 3: 77})),
        lambda on, device: on.driver(device, Driver(qsfp(), {2: 10**6})),  # not counted
        (ROCE[6], ROCE[7]),
        "transceiver_uncorrected_blocks_total",
        at_least=77,
    ),
    Fault(
        "errors after correction at InfiniBand",
        lambda on, device: on.module(device, **{"Effective Physical Errors": "12"}),
        lambda on, device: on.module(device, **{"Effective Physical Errors": "N/A"}),
        (INFINIBAND[6], INFINIBAND[7]),
        "transceiver_effective_errors_total",
        at_least=12,
    ),
    Fault(
        "module that cannot be read",
        lambda on, device: on.driver(device, Driver(error=errno.EIO)),
        unplug,
        (ROCE[8], ROCE[9]),
        "transceiver_readable",
        at_most=0,
    ),
]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNode]:
    folder: Path = tmp_path_factory.mktemp("cables")
    machine = Machine(folder / "sys", mlx5_infiniband=len(INFINIBAND), mlx5_roce=len(ROCE))
    mlxlink = Mlxlink(folder)
    timing = {"interval": "2s", "timeout": "2s"}
    probes = {
        **dict.fromkeys(("rdma", "network"), timing),
        "transceivers": {"interval": "5s", "timeout": "5s", "mlxlink": str(mlxlink.program)},
    }
    with EthtoolKernel(folder) as kernel:
        agent = Node(folder, {"probes": probes}, *machine.flags, **kernel.environment)
        on = SimulatedNode(machine, kernel, mlxlink, agent)
        for device in ROCE:
            on.driver(device, Driver(osfp(), {2: 5, 3: 0}))
        for device in INFINIBAND:
            on.module(device)
        with agent:
            ports = {*INFINIBAND, *ROCE}
            wait_until(lambda: all(on.value("transceiver_readable", one) for one in ports), 60)
            wait_until(lambda: all(map(on.runs, PROBES)))
            yield on


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_exposed_and_what_looks_alike_is_not(node: SimulatedNode, fault: Fault) -> None:
    broken, healthy = fault.ports
    for device in fault.ports:
        value = node.value(fault.family, device, **fault.labels)
        assert not fault.shown(value), "exposed before its injection"
    fault.looks_alike(node, healthy)
    fault.inject(node, broken)
    wait_until(lambda: fault.shown(node.value(fault.family, broken, **fault.labels)), 60)
    probe = next(one for one in PROBES if one.startswith(fault.family.partition("_")[0]))
    before = node.runs(probe)
    wait_until(lambda: node.runs(probe) > before, 60)
    assert not fault.shown(node.value(fault.family, healthy, **fault.labels))
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(CAUSE)]
    assert any(f"`{P}{fault.family}" in row for row in rows), "missing in docs/fault-coverage.md"
