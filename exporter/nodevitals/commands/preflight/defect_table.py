"""The values that make a node unfit, one row each: a family, what is wrong with it, what to do."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

_DRAIN = "drain the node: a job on it would fail"
_RESET = "reset the device while no job runs, or reboot the node"


class Defect(NamedTuple):
    """A value of a family that is wrong; `other` is the family that it is compared with, on the
    same labels. `text` and `subject` may name labels.
    """

    part: str
    family: str
    wrong: Callable[[float, float], bool]
    limit: float
    subject: str
    text: str
    remedy: str
    other: str = ""
    where: Mapping[str, str] = MappingProxyType({})


def _is(value: float, limit: float) -> bool:
    return value == limit


def _less(value: float, limit: float) -> bool:
    """A rate that is read is not exactly the expected one."""
    return value < 0.99 * limit


def _down(value: float, _expected: float) -> bool:
    """What was never up has no expected rate."""
    return value == 0


def _inactive(value: float, expected: float) -> bool:
    """A unit that need not be active may be anything."""
    return value == 0 and expected == 1


_MORE = operator.gt
_GPU, _PORT, _NIC = "{vendor} {device}", "port {device}/{port}", "interface {interface}"
_NVIDIA = "nvidia {device}"
_ASCEND = "ascend {device}"

DEFECTS = (
    Defect(
        "accelerators",
        "accelerators_present",
        _less,
        0,
        "{vendor}",
        "{value} of {limit} accelerators answer",
        _DRAIN,
        "accelerators_expected",
    ),
    Defect(
        "accelerators",
        "accelerators_present",
        _less,
        0,
        "{vendor}",
        "{value} of {limit} known accelerators answer",
        _DRAIN,
        "accelerators_baseline",
    ),
    Defect(
        "accelerators",
        "accelerators_unreadable",
        _MORE,
        0,
        "{vendor}",
        "{value} accelerators cannot be read",
        _DRAIN,
    ),
    Defect("accelerators", "accelerator_up", _is, 0, _GPU, "lost", _DRAIN),
    Defect(
        "accelerators",
        "accelerator_healthy",
        _is,
        0,
        _GPU,
        "the driver reports it as unhealthy",
        _DRAIN,
    ),
    Defect(
        "accelerators",
        "accelerator_ecc_errors_total",
        _MORE,
        0,
        _GPU,
        "{value} uncorrected memory errors ({location})",
        _RESET,
        where={"kind": "uncorrected", "lifetime": "volatile"},
    ),
    Defect(
        "accelerators",
        "nvidia_version_mismatch",
        _is,
        1,
        "nvidia",
        "library and driver have different versions",
        "reboot the node, or reload the driver",
    ),
    Defect(
        "accelerators",
        "nvidia_recovery_action",
        _is,
        1,
        _NVIDIA,
        "the driver asks for {vendor_action}",
        _RESET,
    ),
    Defect(
        "accelerators",
        "nvidia_row_remap_failure",
        _is,
        1,
        _NVIDIA,
        "a memory row cannot be remapped",
        "replace the GPU",
    ),
    Defect(
        "accelerators",
        "nvidia_row_remap_pending",
        _is,
        1,
        _NVIDIA,
        "a memory row waits for its remapping",
        _RESET,
    ),
    Defect(
        "accelerators",
        "nvidia_retired_pages_pending",
        _is,
        1,
        _NVIDIA,
        "a memory page waits for its retirement",
        _RESET,
    ),
    Defect(
        "accelerators",
        "nvidia_sram_threshold_exceeded",
        _is,
        1,
        _NVIDIA,
        "worn out: too many SRAM errors",
        "replace the GPU",
    ),
    Defect(
        "accelerators",
        "nvidia_slowdown_active",
        _is,
        1,
        _NVIDIA,
        "clocks are reduced: {reason}",
        "check cooling and power supplies",
    ),
    Defect(
        "accelerators",
        "nvidia_pcie_link_width",
        _less,
        0,
        _NVIDIA,
        "{value} of {limit} PCIe lanes",
        "reseat the GPU or its riser",
        "nvidia_pcie_link_width_max",
    ),
    Defect(
        "accelerators",
        "ascend_link_up",
        _is,
        0,
        _ASCEND,
        "network port down",
        "check module and cable: hccn_tool -i {device} -link -g",
    ),
    Defect(
        "accelerators",
        "ascend_network_reachable",
        _is,
        0,
        _ASCEND,
        "its network does not answer",
        "hccn_tool -i {device} -net_health -g",
    ),
    Defect(
        "accelerators",
        "ascend_health_level",
        _MORE,
        1,
        _ASCEND,
        "health level {value}",
        "npu-smi info -t health -i {device}; " + _DRAIN,
    ),
    Defect(
        "nvlink",
        "nvidia_nvlinks_up",
        _less,
        0,
        _NVIDIA,
        "{value} of {limit} NVLinks",
        _RESET,
        "nvidia_nvlinks_expected",
    ),
    Defect(
        "nvlink",
        "nvidia_nvlinks_unreadable",
        _MORE,
        0,
        _NVIDIA,
        "{value} NVLinks cannot be read",
        _RESET,
    ),
    Defect(
        "nvlink",
        "nvidia_fabric_healthy",
        _is,
        0,
        _NVIDIA,
        "the NVLink fabric is not healthy",
        "systemctl status nvidia-fabricmanager",
    ),
    Defect(
        "nvlink",
        "nvidia_fabric_fault",
        _is,
        1,
        _NVIDIA,
        "NVLink fabric: {fault}",
        "systemctl status nvidia-fabricmanager",
    ),
    Defect(
        "nvlink",
        "nvidia_fabric_state",
        _is,
        1,
        _NVIDIA,
        "not registered with the NVLink fabric: {state}",
        "systemctl restart nvidia-fabricmanager",
    ),
    Defect(
        "rdma",
        "rdma_port_up",
        _down,
        0,
        _PORT,
        "down",
        "check cable and switch: ibstat {device}",
        "rdma_port_expected_rate_bytes_per_second",
    ),
    Defect(
        "rdma",
        "rdma_port_rate_bytes_per_second",
        _less,
        0,
        _PORT,
        "slower than it should be",
        "reseat the cable; ibstat {device}",
        "rdma_port_expected_rate_bytes_per_second",
    ),
    Defect(
        "rdma",
        "rdma_port_gid_usable",
        _is,
        0,
        _PORT,
        "no usable RoCE v2 GID",
        "give its interface an address; show_gids {device}",
    ),
    Defect(
        "rdma",
        "rdma_port_interface_up",
        _is,
        0,
        _PORT,
        "its interface {interface} is down",
        "ip link set {interface} up",
    ),
    Defect(
        "rdma",
        "kernel_nic_failed",
        _is,
        1,
        "NIC {pci_bus_id}",
        "its firmware failed",
        "power-cycle the node",
    ),
    Defect(
        "network",
        "network_up",
        _down,
        0,
        _NIC,
        "down",
        "check cable and switch: ethtool {interface}",
        "network_expected_speed_bytes_per_second",
    ),
    Defect(
        "network",
        "network_bond_member_up",
        _is,
        0,
        "{member} of {interface}",
        "bond member down",
        "check cable and switch: ethtool {member}",
    ),
    Defect(
        "network",
        "network_speed_bytes_per_second",
        _less,
        0,
        _NIC,
        "slower than it should be",
        "ethtool {interface}",
        "network_expected_speed_bytes_per_second",
    ),
    Defect("mounts", "mount_present", _is, 0, "{mountpoint}", "not mounted", "mount {mountpoint}"),
    # A filer that fails over is away for up to 90 s: unknown until then, or the prologs of a whole
    # cluster would drain their nodes.
    Defect(
        "mounts",
        "probe_unanswered_seconds",
        _MORE,
        90,
        "{target}",
        "no call has returned for {value} s",
        "check the filer and the network to it",
        where={"probe": "mounts"},
    ),
    Defect(
        "mounts",
        "mount_as_expected",
        _is,
        0,
        "{mountpoint}",
        "another file system is mounted",
        "findmnt {mountpoint}",
    ),
    Defect(
        "mounts",
        "mount_readable",
        _is,
        0,
        "{mountpoint}",
        "cannot be read",
        "check the filer and the network to it",
    ),
    Defect(
        "mounts",
        "mount_writable",
        _is,
        0,
        "{mountpoint}",
        "cannot be written to",
        "check quota, space and permissions",
    ),
    Defect(
        "mounts",
        "mount_content_intact",
        _is,
        0,
        "{mountpoint}",
        "returns other data than were written",
        _DRAIN,
    ),
    Defect(
        "node", "node_maintenance", _is, 1, "node", "in maintenance", "nodevitals maintenance end"
    ),
    Defect("node", "node_nvme_live", _is, 0, "NVMe {device}", "failed", "replace the disk"),
    Defect(
        "node",
        "node_memory_errors_total",
        _MORE,
        0,
        "memory {controller}",
        "{value} uncorrected errors",
        _DRAIN,
        where={"kind": "uncorrected"},
    ),
    Defect(
        "node", "node_clock_synchronized", _is, 0, "clock", "not synchronized", "chronyc tracking"
    ),
    Defect(
        "node",
        "node_filesystem_read_only",
        _is,
        1,
        "{mountpoint}",
        "accepts no writes: it became read-only, or the kernel stopped it after an error",
        "dmesg --ctime | grep -i -e error -e remount; " + _DRAIN,
    ),
    Defect(
        "node",
        "node_hung_processes",
        _MORE,
        0,
        "processes",
        "{value} hang in the kernel: {wait}",
        "find what they wait in: nodevitals probe services",
    ),
    Defect(
        "services",
        "services_unit_active",
        _inactive,
        0,
        "{unit}",
        "not active",
        "systemctl status {unit}",
        "services_unit_expected",
    ),
    Defect(
        "disks",
        "disk_critical_warning",
        _is,
        1,
        "disk {device}",
        "it warns: {warning}",
        "replace the disk",
    ),
    Defect(
        "disks",
        "disk_smart_passed",
        _is,
        0,
        "disk {device}",
        "it expects to fail",
        "replace the disk",
    ),
    Defect("disks", "disk_missing", _is, 1, "disk {device}", "gone", "reseat or replace the disk"),
    Defect(
        "disks",
        "disk_mapping_suspended",
        _is,
        1,
        "mapping {device}",
        "suspended: all I/O waits",
        "dmsetup info",
    ),
    Defect(
        "scripts",
        "scripts_status",
        _is,
        1,
        "{script}",
        "critical",
        "nodevitals probe scripts",
        where={"status": "critical"},
    ),
    Defect(
        "profile",
        "profile_conforms",
        _is,
        0,
        "{check}",
        "differs from the profile",
        "nodevitals profile show --differing",
    ),
)
