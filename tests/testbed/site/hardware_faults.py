"""What is broken in a node's chassis, disks, modules, services and scripts, and what differs.

The nodes have other faults already: what the fleet's dashboards count does not change.
"""

from __future__ import annotations

from testbed.site.faults import MINUTE, add, change
from testbed.site.fleet import SiteNode
from testbed.site.series import grows


def break_some(nodes: list[SiteNode], now: float) -> None:
    """Break parts of three nodes, in place."""
    at = {node.name: node for node in nodes}
    node, since = at["gpu-04"], now - 40 * MINUTE
    _chassis(node, since)
    _disks(node, since)
    _modules(node, since)
    _services(node, since)
    differ(node, since, "cpu.governor", "powersave")
    differ(at["gpu-09"], 0.0, "accelerator.driver", "570.86.15")
    differ(at["gpu-11"], since, "nvidia.persistence", "")
    # What cannot be read: the BMC and the health of a disk. An array is checked meanwhile.
    node = at["gpu-07"]
    change(node, since, 0.0, "nodevitals_bmc_up")
    silent = {"part": "controller", "reason": "timeout"}
    add(node, since, 1.0, "nodevitals_bmc_unreadable", **silent)
    add(node, since, 1.0, "nodevitals_disk_unreadable", device="nvme1", reason="timeout")
    array = {"device": "md0"}
    change(node, since, None, "nodevitals_disk_array_sync_action", **array)
    add(node, since, 1.0, "nodevitals_disk_array_sync_action", action="check", **array)
    progress = "nodevitals_disk_array_sync_progress_ratio"
    add(node, since, grows(1 / 7200, since), progress, **array)


def become(node: SiteNode, since: float, family: str, state: str, **labels: str) -> None:
    """Give a part another state: the series of the one before ends."""
    change(node, since, None, family, **labels)
    add(node, since, 1.0, family, **labels, state=state)


def _chassis(node: SiteNode, since: float) -> None:
    become(node, since, "nodevitals_bmc_power_supply_state", "failed", sensor="PS2 Status")
    become(node, since, "nodevitals_bmc_fan_state", "failed", sensor="Fan5")
    change(node, since, 0.0, "nodevitals_bmc_fan_speed_rpm", sensor="Fan5")
    for sensor, kind in (("PS Redundancy", "power"), ("Fan Redundancy", "fan")):
        of = {"sensor": sensor, "kind": kind}
        become(node, since, "nodevitals_bmc_redundancy", "lost", **of)
    become(node, since, "nodevitals_bmc_temperature_state", "warning", sensor="CPU2 Temp")
    critical = {"type": "power_supply", "severity": "critical"}
    change(node, since, grows(1 / 600, since), "nodevitals_bmc_events_total", **critical)


def _disks(node: SiteNode, since: float) -> None:
    change(node, since, 0.06, "nodevitals_disk_spare_ratio", device="nvme2")
    low = {"device": "nvme2", "warning": "spare_low"}
    change(node, since, 1.0, "nodevitals_disk_critical_warning", **low)
    change(node, since, 0.97, "nodevitals_disk_used_ratio", device="nvme2")
    change(node, since, grows(1 / 300, since), "nodevitals_disk_media_errors_total", device="nvme2")
    change(node, since, 1.0, "nodevitals_disk_array_degraded", device="md0")
    failed = {"device": "md0", "member": "nvme1n1p3"}
    become(node, since, "nodevitals_disk_array_member_state", "faulty", **failed)


def _modules(node: SiteNode, since: float) -> None:
    weak = {"device": "mlx5_2"}
    change(node, since, 9e-5, "nodevitals_transceiver_receive_watts", **weak, lane="3")
    errors = grows(1 / 60, since)
    change(node, since, errors, "nodevitals_transceiver_uncorrected_blocks_total", **weak)
    # An outage that is over.
    change(node, since + 20 * MINUTE, 38.0, "nodevitals_rdma_port_longest_down_seconds", **weak)
    change(node, since + 20 * MINUTE, 38.0, "nodevitals_rdma_port_down_seconds_total", **weak)


def _services(node: SiteNode, since: float) -> None:
    unit = {"unit": "nvidia-fabricmanager.service"}
    become(node, since, "nodevitals_services_unit_state", "failed", **unit)
    change(node, since, 0.0, "nodevitals_services_unit_active", **unit)
    change(node, since, 1.0, "nodevitals_services_failed_units")
    flapping = {"unit": "containerd.service"}
    restarts = grows(1 / 120, since)
    change(node, since, restarts, "nodevitals_services_unit_restarts_total", **flapping)
    change(node, since, 4.0, "nodevitals_node_hung_processes", wait="block")
    change(node, since, 640.0, "nodevitals_node_zombie_processes")
    change(node, since, 1.0, "nodevitals_node_filesystem_read_only", mountpoint="/")
    script = {"script": "check_scratch"}
    change(node, since, 0.0, "nodevitals_scripts_status", **script, status="ok")
    change(node, since, 1.0, "nodevitals_scripts_status", **script, status="critical")
    late = {"script": "check_license", "reason": "timeout"}
    change(node, since, grows(1 / 300, since), "nodevitals_scripts_failures_total", **late)
    change(node, since, 0.0, "nodevitals_scripts_status", script="check_license", status="ok")
    change(node, since, 1.0, "nodevitals_scripts_status", script="check_license", status="unknown")


def differ(node: SiteNode, since: float, check: str, found: str) -> None:
    """Let a fact of the node differ from its profile; one without a value is unknown."""
    [info] = change(node, since, None, "nodevitals_profile_check_info", check=check)
    wanted = info.labels["wanted"]
    add(node, since, 1.0, info.name, check=check, wanted=wanted, found=found)
    change(node, since, 0.0 if found else None, "nodevitals_profile_conforms", check=check)
    state = "differing" if found else "unknown"
    change(node, since, 1.0, "nodevitals_profile_checks", state=state)
    change(node, since, 5.0, "nodevitals_profile_checks", state="conforming")
