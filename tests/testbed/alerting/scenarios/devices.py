"""Accelerators and single nodes."""

from __future__ import annotations

from testbed.alerting.node import Hardware
from testbed.alerting.outcome import Wanted
from testbed.alerting.scenario import MINUTE, Fleet
from testbed.alerting.scenarios.table import each, rows, scenario

AT = 10 * MINUTE
ONE_NOTIFICATION = Wanted(pages=(0, 1), tickets=(0, 1), at_least_one=True)


@scenario(
    "a GPU is lost (Xid 79); its seven neighbours report NVLinks down and Xid 74",
    Wanted(pages=1, titles=("GPU 0 lost", "n004"), first_title="GPU 0 lost", updates=(0, 1)),
)
def gpu_lost_with_neighbours(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=8))
    node = fleet.nodes[3]
    for device in range(1, 8):
        node.nvlinks_down(device, 1, AT)
        node.xid(device, 74, AT)
    node.gpu_lost(0, AT)


@scenario(
    "at night: Xid 79, then the node dies, and stays dead",
    Wanted(pages=(1, 2), updates=(0, 4), receivers=("second-tier", "third-tier")),
    minutes=155,
    night=True,
)
def gpu_lost_then_node_dies(fleet: Fleet) -> None:
    fleet.add(12, rows(gpus=1))
    fleet.nodes[5].gpu_lost(0, AT)
    fleet.nodes[5].down(AT + 5 * MINUTE)


@scenario(
    "at night: a node dies",
    Wanted(pages=1, titles=("n006",)),
    night=True,
)
def node_dies(fleet: Fleet) -> None:
    fleet.add(12, rows(gpus=1))
    fleet.nodes[5].down(AT)


@scenario(
    "the clock of a node is 20 min slow, then Xid 79",
    Wanted(pages=1, titles=("n003",), tickets=(0, 1)),
)
def slow_clock_then_xid(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    node = fleet.nodes[2]
    node.series("nodevitals_node_time_seconds").set(-20 * MINUTE, slope=1)
    node.series("nodevitals_node_clock_offset_seconds").set(-20 * MINUTE)
    node.xid(0, 79, AT)


@scenario("Xid 94 (contained) with a row remap", Wanted(tickets=1, never=("drain and reset",)))
def contained_error_with_row_remap(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    node = fleet.nodes[2]
    node.xid(0, 94, AT)
    node.ecc(0, "uncorrected", AT)
    node.change("nvidia_row_remap_pending", 1, AT, 60 * MINUTE, **node.gpu(0))


def _thermal(fleet: Fleet, share: float) -> None:
    """A GPU is too hot for this share of every 10 minutes."""
    fleet.add(6, rows(gpus=1))
    node = fleet.nodes[2]
    labels = {**node.gpu(0), "reason": "hw_thermal"}
    for start in range(int(10 * MINUTE), int(130 * MINUTE), 600):
        node.change("nvidia_slowdown_active", 1, start, start + 600 * share, **labels)


@scenario("thermal slowdown for 55 % of two hours", Wanted(tickets=1), minutes=130)
def thermal_slowdown_55_percent(fleet: Fleet) -> None:
    _thermal(fleet, 0.55)


@scenario("thermal slowdown for 25 % of two hours", Wanted(tickets=1), minutes=130)
def thermal_slowdown_25_percent(fleet: Fleet) -> None:
    _thermal(fleet, 0.25)


@scenario("thermal slowdown for 5 % of two hours", Wanted(), minutes=130)
def thermal_slowdown_5_percent(fleet: Fleet) -> None:
    _thermal(fleet, 0.05)


@scenario("the PCIe link of a busy GPU runs at generation 1 instead of 5", ONE_NOTIFICATION)
def pcie_generation_falls(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    node = fleet.nodes[2]
    node.change("nvidia_pcie_link_generation", 1, AT, **node.gpu(0))


@scenario("a fatal SXid of an NVSwitch", ONE_NOTIFICATION)
def fatal_sxid(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    switch = {"device": "nvswitch0", "pci_bus_id": "0000:05:00", "action": "reset_device"}
    node = fleet.nodes[2]
    node.count("nvidia_sxid_errors_total", AT, **switch, sxid="12028")
    node.change("nvidia_sxid_last_timestamp_seconds", AT, AT, **switch, sxid="12028")


@scenario("a kernel has a bug (oops)", ONE_NOTIFICATION)
def kernel_bug(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    fleet.nodes[2].count("kernel_events_total", AT, event="kernel_bug")


@scenario("a CPU of a node locks up", ONE_NOTIFICATION)
def kernel_lockup(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    fleet.nodes[2].count("kernel_events_total", AT, event="lockup")


@scenario("a RoCE port has no usable GID", ONE_NOTIFICATION)
def gid_unusable(fleet: Fleet) -> None:
    fleet.add(6, lambda _: Hardware(bond=True, switches=("leaf-1",)))
    node = fleet.nodes[2]
    node.change("rdma_port_gid_usable", 0, AT, **node.port(0))


@scenario("a GPU's NVLink fabric state is `failed`", ONE_NOTIFICATION)
def fabric_state_failed(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    node = fleet.nodes[2]
    node.change("nvidia_fabric_state", 1, AT, **node.gpu(0), state="failed")


def _npus(_: int) -> Hardware:
    return Hardware(gpus=0, npus=8)


@scenario("an NPU has a fault code of level `separate`, at health Warning", ONE_NOTIFICATION)
def npu_separate_at_warning(fleet: Fleet) -> None:
    fleet.add(4, _npus)
    node = fleet.nodes[2]
    fault = {"code": "80E18402", "level": "separate", "action": "drain"}
    node.change("ascend_fault_code", 1, AT, **node.npu(1), **fault)
    node.change("ascend_health_level", 1, AT, **node.npu(1))


@scenario("the RoCE port of an NPU does not reach its detection address", ONE_NOTIFICATION)
def npu_network_unreachable(fleet: Fleet) -> None:
    fleet.add(4, _npus)
    node = fleet.nodes[2]
    node.change("ascend_network_reachable", 0, AT, **node.npu(1))
    node.change("ascend_network_health", 1, AT, **node.npu(1), state="unreachable")


@scenario("npu-exporter alone, without the agent, reports health 0", ONE_NOTIFICATION)
def npu_exporter_health(fleet: Fleet) -> None:
    fleet.add(4, _npus)
    for number in range(8):
        health = fleet.other(
            "npu_chip_info_health_status", instance="x001", id=str(number), vdie_id=f"D-{number}"
        )
        health.set(1)
        if number == 3:
            health.replace(0, AT, 60 * MINUTE)


@scenario("16 new nodes boot, and their NVLinks train for 4 min", Wanted())
def nvlinks_train_after_boot(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=2))
    for node in fleet.nodes[:16]:
        node.nvlinks_down(0, 2, AT, AT + 240)
        node.nvlinks_down(1, 2, AT, AT + 240)
        node.appears(AT)


@scenario("the driver is installed in the first 12 min after the first boot of 8 nodes", Wanted())
def driver_installed_at_first_boot(fleet: Fleet) -> None:
    fleet.add(24, rows(gpus=1))
    for node in fleet.nodes[:8]:
        node.appears(AT)
        node.driver_away(AT, AT + 8 * MINUTE)


@scenario(
    "all nodes of a pool report NVLinks as degraded since they were installed (a setting)",
    Wanted(tickets=1, ticket_titles=("train",)),
    minutes=60,
)
def condition_since_installation(fleet: Fleet) -> None:
    fleet.add(12, rows(gpus=1))
    for node in fleet.nodes:
        node.set("nvidia_fabric_state", 1, **node.gpu(0), state="in_progress")


@scenario("the NVMe disk of a node fails", ONE_NOTIFICATION)
def nvme_fails(fleet: Fleet) -> None:
    fleet.add(6, rows(gpus=1))
    fleet.nodes[2].change("node_nvme_live", 0, AT, device="nvme0")


@scenario("the same GPU is lost on three nodes of different racks within an hour", Wanted(pages=3))
def three_gpus_lost(fleet: Fleet) -> None:
    fleet.add(32, rows(gpus=1))
    for number, minute in ((1, 10), (12, 18), (28, 26)):
        fleet.nodes[number].gpu_lost(0, minute * MINUTE)


def _fabric_pair(fleet: Fleet, source: int, peer: int, share: float) -> None:
    labels = {
        "tool": "perftest",
        "operation": "write_bw",
        "source": fleet.nodes[source].name,
        "peer": fleet.nodes[peer].name,
        "device": "mlx5_0",
        "message_bytes": "1048576",
    }
    node = fleet.nodes[source]
    node.set("fabric_info", 1, name=node.name)
    node.set("fabric_bandwidth_bytes_per_second", 45e9, **labels)
    node.set("fabric_bandwidth_expected_bytes_per_second", 50e9, **labels)
    node.change("fabric_bandwidth_bytes_per_second", 50e9 * share, AT, **labels)


@scenario("three nodes in all: every pair has 2 % of the expected bandwidth", ONE_NOTIFICATION)
def small_fleet_slow_fabric(fleet: Fleet) -> None:
    fleet.add(3)
    for source in range(3):
        for peer in range(3):
            if source != peer:
                _fabric_pair(fleet, source, peer, 0.02)


@scenario(
    "three nodes in all: one is dead for its peers",
    Wanted(pages=(0, 1), tickets=(0, 2), at_least_one=True),
)
def small_fleet_dead_peer(fleet: Fleet) -> None:
    fleet.add(3)
    for source in (0, 1):
        peer = {"peer": "n003", "port": "22", "protocol": "ssh"}
        fleet.nodes[source].set("peer_reachable", 1, **peer)
        fleet.nodes[source].change("peer_reachable", 0, AT, **peer)
    each(fleet.nodes[2:], lambda node: node.set("peer_reachable", 1, peer="n001", port="22"))


@scenario("a collective test of two nodes fails", ONE_NOTIFICATION)
def collective_fails(fleet: Fleet) -> None:
    fleet.add(8, rows())
    labels = {"tool": "nccl", "operation": "all_reduce"}
    fleet.nodes[0].set("fabric_collective_success", 1, **labels)
    fleet.nodes[0].change("fabric_collective_success", 0, AT, **labels)
