"""Every root cause of "The Llama 3 Herd of Models", Table 5, that a node can detect: injected below
the agent, it is exposed in the family that docs/fault-coverage.md names, within two runs of its
probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from testbed import gpus, nics
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, wait_until
from testbed.trees import write

DOCUMENT = (ROOT / "docs/fault-coverage.md").read_text()
# A run may have started just before the fault; the page is rendered ten times per second.
RUNS = 3
RUNS_TOTAL = "nodevitals_probe_runs_total"
NOTHING_READ = {("outcome", "timeout"), ("outcome", "stuck")}
P = "nodevitals_"


class SimulatedNode(msgspec.Struct):
    """A running agent on a simulated machine with eight GPUs, and the parts to break."""

    machine: Machine
    log: KernelLog
    agent: Node
    nics: nics.Machine

    def xid(self, code: int, text: str = "something") -> None:
        """Let the driver log an Xid of GPU 1."""
        self.log.write(f"NVRM: Xid (PCI:{self.machine.slots[1]}): {code}, pid=7, name=x, {text}")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedNode]:
    folder: Path = tmp_path_factory.mktemp("taxonomy")
    machine = Machine(folder, "H100").start()
    adapters = nics.Machine(folder / "sys", mlx5_infiniband=4, mlx5_roce=2)
    with KernelLog(folder) as log:
        probes = {
            "nvidia": {"interval": "500ms", "timeout": "500ms", **machine.settings},
            "kernel_log": {"interval": "500ms", "path": str(log.path)},
            "node": {"interval": "500ms"},
            "rdma": {"interval": "500ms"},
            "network": {"interval": "500ms"},
        }
        agent = Node(
            folder,
            {"probes": probes},
            *machine.flags,
            PYTHONPATH=str(ROOT / "exporter"),
            **machine.environment,
        )
        with agent as running:
            wait_until(
                lambda: running.value(f"{P}nvidia_xid_errors_total", device="1", xid="79") == 0
            )
            yield SimulatedNode(machine, log, running, adapters)


class Fault(msgspec.Struct, frozen=True):
    """A root cause, how it is injected, and the sample that must show it; the value None means
    that the sample must be missing.
    """

    cause: str
    inject: Callable[[SimulatedNode], object]
    probe: str
    family: str
    labels: dict[str, str]
    value: float | None = 1


def xid_fault(cause: str, code: int, action: str) -> Fault:
    """Return a fault that the driver logs as an Xid."""
    labels = {"device": "1", "xid": str(code), "action": action}
    return Fault(
        cause, lambda on: on.xid(code), "kernel_log", f"{P}nvidia_xid_errors_total", labels
    )


def logged_fault(cause: str, text: str, event: str) -> Fault:
    """Return a fault that the kernel logs with another message."""
    family, labels = f"{P}kernel_events_total", {"event": event}
    return Fault(cause, lambda on: on.log.write(text), "kernel_log", family, labels)


def gpu_fault(
    cause: str,
    number: int,
    inject: Callable[[Machine], object],
    family: str,
    value: float | None = 1,
    **labels: str,
) -> Fault:
    """Return a fault of one GPU that NVML reports."""
    labels = {"device": str(number), **labels}
    return Fault(cause, lambda on: inject(on.machine), "nvidia", P + family, labels, value)


def port_fault(
    cause: str,
    number: int,
    inject: Callable[[nics.Machine, str], object],
    family: str,
    value: float = 1,
    **labels: str,
) -> Fault:
    """Return a fault of one RDMA port that sysfs reports."""
    device = f"mlx5_{number}"
    labels = {"device": device, **labels}
    return Fault(
        cause, lambda on: inject(on.nics, f"{device}/1"), "rdma", P + family, labels, value
    )


CABLE = "Network switch or cable"
FAULTS = [
    xid_fault("Faulty GPU", 79, "reboot_node"),
    xid_fault("Faulty GPU", 143, "reset_device"),
    gpu_fault("Faulty GPU", 0, lambda on: on.lose(0, 15), "accelerator_up", 0),
    gpu_fault("Faulty GPU", 7, lambda on: on.lose(7, 999), "accelerator_error_info", code="999"),
    gpu_fault("Faulty GPU", 7, lambda on: on.lose(7, 15), "accelerator_up", 0),
    gpu_fault("Faulty GPU", 6, lambda on: on.vanish(6), "accelerator_up", 0),
    gpu_fault(
        "Faulty GPU",
        5,
        lambda on: on.set_field(5, gpus.RECOVERY_ACTION, 2),
        "nvidia_recovery_action",
        action="reboot_node",
    ),
    *(xid_fault("GPU HBM3 memory", code, "reset_device") for code in (48, 64, 95, 140)),
    xid_fault("GPU HBM3 memory", 94, "restart_app"),
    gpu_fault(
        "GPU HBM3 memory",
        2,
        lambda on: on.set(2, ecc__1__0__2=1),
        "accelerator_ecc_errors_total",
        kind="uncorrected",
        lifetime="volatile",
        location="dram",
    ),
    gpu_fault(
        "GPU HBM3 memory",
        2,
        lambda on: on.set(2, remapped="0 1 1 0"),
        "nvidia_row_remap_pending",
    ),
    gpu_fault(
        "GPU HBM3 memory",
        2,
        lambda on: on.set(2, remapped="0 1 1 1"),
        "nvidia_row_remap_failure",
    ),
    gpu_fault(
        "GPU HBM3 memory",
        2,
        lambda on: on.set(2, remap_banks="639 0 0 0 1"),
        "nvidia_remap_banks",
        spare_rows="none",
    ),
    xid_fault("Software bug", 13, "restart_app"),
    xid_fault("Software bug", 31, "restart_app"),
    xid_fault("Software bug", 43, "none"),
    gpu_fault(
        "GPU SRAM memory",
        3,
        lambda on: on.set(3, ecc__1__0__7=1),
        "accelerator_ecc_errors_total",
        kind="uncorrected",
        lifetime="volatile",
        location="sram",
    ),
    gpu_fault(
        "GPU SRAM memory",
        3,
        lambda on: on.set(3, sram_threshold=1),
        "nvidia_sram_threshold_exceeded",
    ),
    xid_fault("GPU system processor", 119, "reset_device"),
    xid_fault("GPU system processor", 120, "reset_device"),
    gpu_fault(
        "GPU thermal interface and sensor",
        4,
        lambda on: on.set(4, clock_reasons=0x48),
        "nvidia_slowdown_active",
        reason="hw_thermal",
    ),
    gpu_fault(
        "GPU thermal interface and sensor",
        4,
        lambda on: on.set(4, margin=-2),
        "nvidia_temperature_margin_celsius",
        -2,
    ),
    gpu_fault(
        "GPU thermal interface and sensor",
        4,
        lambda on: on.remove("4.temperature"),
        "accelerator_temperature_celsius",
        None,
    ),
    gpu_fault(
        "Power supply",
        4,
        lambda on: on.set(4, clock_reasons=0x88),
        "nvidia_slowdown_active",
        reason="hw_power_brake",
    ),
    gpu_fault(
        "IO expansion board", 4, lambda on: on.set(4, pcie_width=8), "nvidia_pcie_link_width", 8
    ),
    logged_fault(
        "IO expansion board", "pcieport 0000:17:01.0: DPC: containment event, x", "pcie_error"
    ),
    logged_fault(
        "SSD", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff", "nvme_error"
    ),
    logged_fault("SSD", "I/O error, dev nvme0n1, sector 8 op 0x0:(READ)", "io_error"),
    Fault(
        "SSD",
        lambda on: write(on.machine.folder / "sys", {"class/nvme/nvme0/state": "dead\n"}),
        "node",
        f"{P}node_nvme_live",
        {"device": "nvme0"},
        0,
    ),
    logged_fault("System memory", "EDAC MC0: 1 UE memory read error on DIMM", "memory_error"),
    Fault(
        "System memory",
        lambda on: write(on.machine.folder / "sys", {"devices/system/edac/mc/mc0/ue_count": "9\n"}),
        "node",
        f"{P}node_memory_errors_total",
        {"controller": "mc0", "kind": "uncorrected"},
        9,
    ),
    logged_fault(
        "CPU", "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: bd", "machine_check"
    ),
    port_fault("NIC", 0, lambda on, port: on.vanish("mlx5_0"), "rdma_port_up", 0),
    port_fault(CABLE, 1, lambda on, port: on.down(port), "rdma_port_up", 0),
    port_fault(CABLE, 2, lambda on, port: on.flap(port), "rdma_port_flaps_total"),
    port_fault(
        CABLE,
        2,
        lambda on, port: on.up(port, "200 Gb/sec (2X NDR)"),
        "rdma_port_rate_bytes_per_second",
        25e9,
    ),
    port_fault(
        CABLE,
        3,
        lambda on, port: on.count(port, "counters/symbol_error", 50),
        "rdma_port_errors_total",
        50,
        counter="symbol_error",
    ),
    Fault(
        CABLE,
        lambda on: on.nics.down("mlx5_4/1"),
        "network",
        f"{P}network_up",
        {"interface": "ens56f0np0"},
        0,
    ),
    Fault(  # the last: the library hangs
        "GPU system processor",
        lambda on: on.machine.set(2, temperature="@hang"),
        "nvidia",
        f"{P}probe_success",
        {"probe": "nvidia"},
        0,
    ),
]


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: f"{fault.cause}: {fault.family.removeprefix(P)}"
)
def test_fault_is_exposed_within_two_runs(node: SimulatedNode, fault: Fault) -> None:
    def look() -> tuple[float | None, float]:
        """The value of the fault's sample and the number of runs, in one scrape. One that was
        ended has not looked: on a busy machine half a second may be too short.
        """
        samples = node.agent.samples().items()
        wanted, ours = set(fault.labels.items()), ("probe", fault.probe)
        found = [v for (name, pairs), v in samples if name == fault.family and wanted <= pairs]
        runs = [
            v
            for (name, pairs), v in samples
            if name == RUNS_TOTAL and ours in pairs and NOTHING_READ.isdisjoint(pairs)
        ]
        assert len(found) <= 1, found
        return found[0] if found else None, sum(runs)

    value, before = look()
    assert value != fault.value, "exposed before its injection"
    fault.inject(node)

    def exposed() -> bool:
        """Looks may come later than runs: only one that does not show the fault says how late."""
        value, runs = look()
        assert value == fault.value or runs - before < RUNS
        return value == fault.value

    wait_until(exposed)
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| {fault.cause} ")]
    assert any(f"`{fault.family}" in row for row in rows), "missing in docs/fault-coverage.md"
