"""What a reader should know first of each probe: its main metrics and alerts, its Chinese text.

For the tables that tools/probe_tables.py makes. A probe needs no entry: without one, its first
metrics and all alerts that read it are listed, and its class has the Chinese text (`chinese`).
`make generate` fails where a name in the list does not exist.
"""

from __future__ import annotations

from typing import NamedTuple


class Main(NamedTuple):
    """What a reader should know of a probe first; metrics are without `nodevitals_`."""

    metrics: tuple[str, ...]
    alerts: tuple[str, ...]
    chinese: str


MAIN = {
    "ascend": Main(
        (
            "accelerator_up",
            "ascend_health_level",
            "ascend_link_up",
            "ascend_fault_code",
            "accelerator_ecc_errors_total",
            "ascend_network_reachable",
            "ascend_optical_receive_watts",
        ),
        ("AcceleratorLost", "NpuUnhealthy", "NpuLinkDown", "NpuEcc", "NpuNetworkUnreachable"),
        "昇腾 NPU（npu-smi、hccn_tool）：掉卡、健康状态与故障码、HBM ECC、RoCE 端口、光功率",
    ),
    "bmc": Main(
        (
            "bmc_power_supply_state",
            "bmc_redundancy",
            "bmc_fan_state",
            "bmc_inlet_temperature_celsius",
            "bmc_events_total",
            "bmc_up",
        ),
        (
            "PowerSupplyFailed",
            "PowerInputLost",
            "ChassisFanFailed",
            "ChassisHot",
            "ChassisEvent",
            "BmcUnreachable",
        ),
        "节点自身的 BMC：电源、风扇、温度、功率、电池、系统事件日志",
    ),
    "disks": Main(
        (
            "disk_critical_warning",
            "disk_smart_passed",
            "disk_used_ratio",
            "disk_media_errors_total",
            "disks_present",
            "disk_array_degraded",
            "disk_transferred_bytes_total",
        ),
        (
            "DiskFailing",
            "DiskMissing",
            "DiskMediaErrors",
            "ArrayDegraded",
            "DiskWearHigh",
            "DiskHot",
        ),
        "本地硬盘：SMART 健康状态、磨损、错误、温度、丢盘、I/O；md 阵列、device-mapper",
    ),
    "fabric": Main(
        (
            "fabric_bandwidth_bytes_per_second",
            "fabric_latency_seconds",
            "fabric_failure",
            "fabric_skipped_total",
            "fabric_test_bytes_total",
        ),
        ("NodeFabricSlow", "NodeFabricUnreachable", "BandwidthOutlier", "BandwidthTestStale"),
        "节点之间的小规模带宽与时延测试，只在没有作业时进行；默认关闭",
    ),
    "selfcheck": Main(
        (
            "selfcheck_bandwidth_bytes_per_second",
            "selfcheck_outcome",
            "selfcheck_last_timestamp_seconds",
            "selfcheck_refused_total",
            "selfcheck_seconds_total",
        ),
        ("SelfCheckSlow", "SelfCheckFailed"),
        "单个节点内的带宽自检与 DCGM 诊断，只在没有作业时进行；默认关闭",
    ),
    "jobs": Main(
        ("pod_accelerator_info", "jobs_processes", "jobs_unidentified_devices"),
        ("JobOwnerImpact",),
        "加速卡归哪个 Slurm 作业或用户，以进程打开的设备文件为准",
    ),
    "kernel_log": Main(
        (
            "nvidia_xid_errors_total",
            "nvidia_sxid_errors_total",
            "kernel_events_total",
            "kernel_nic_failed",
            "kernel_device_events_total",
        ),
        ("NvidiaXid", "NvidiaSxid", "NicFailed", "KernelErrors", "OomKill", "GpuInitFailed"),
        "内核日志：Xid（各有唯一处置动作）、OOM、任务挂死、NFS、I/O、内存、PCIe、NVMe 错误",
    ),
    "kubernetes": Main(
        (
            "pod_accelerator_info",
            "pod_oom_kills_total",
            "node_schedulable",
            "node_condition",
            "kubernetes_devices_allocatable",
        ),
        ("PodOomKilled", "JobOwnerImpact"),
        "每张加速卡归哪个 Pod 及其作业、负责人、队列；节点能否调度；Pod 的 OOM",
    ),
    "maintenance": Main(
        ("node_maintenance", "node_maintenance_end_timestamp_seconds", "node_maintenance_info"),
        ("NodeMaintenance", "MaintenanceForgotten"),
        "计划维护（由节点上的文件声明）：结束时间与原因",
    ),
    "mounts": Main(
        (
            "mount_present",
            "mount_writable",
            "mount_content_intact",
            "mount_readable",
            "mount_free_bytes",
            "mount_write_seconds",
        ),
        (
            "MountHung",
            "MountMissing",
            "MountContentMismatch",
            "MountReadOnly",
            "FilesystemSpaceLow",
            "MountSlow",
        ),
        "挂载点：是否挂载、类型是否正确、能否写入并读回相同内容；空间与 inode",
    ),
    "network": Main(
        (
            "network_up",
            "network_speed_bytes_per_second",
            "network_bond_member_up",
            "network_errors_total",
            "network_carrier_changes_total",
            "network_down_seconds_total",
        ),
        ("NetworkInterfaceDown", "NetworkSpeedDegraded", "BondMemberDown"),
        "物理网卡与 bond：载波、中断时长、速率、错误、丢包；bond 成员",
    ),
    "node": Main(
        (
            "node_memory_errors_total",
            "node_nvme_live",
            "node_clock_synchronized",
            "node_memory_available_bytes",
            "node_cpu_utilization_ratio",
        ),
        (
            "NodeMemoryUncorrectable",
            "NvmeFailed",
            "ClockUnsynchronized",
            "NodeMemoryHigh",
            "NodeCpuHigh",
        ),
        "节点本身：CPU、内存、负载、阻塞进程、时钟、内存错误、NVMe、OOM",
    ),
    "nvidia": Main(
        (
            "accelerator_up",
            "accelerator_ecc_errors_total",
            "nvidia_recovery_action",
            "nvidia_row_remap_failure",
            "nvidia_nvlinks_up",
            "nvidia_slowdown_active",
            "accelerator_temperature_celsius",
        ),
        (
            "AcceleratorLost",
            "EccUncorrectable",
            "NvlinkDown",
            "AcceleratorRecoveryAction",
            "AcceleratorsUnseen",
            "RowRemapFailure",
            "MemorySparesLow",
            "PcieDegraded",
            "ThermalSlowdown",
            "MemoryWithoutJob",
        ),
        "NVIDIA GPU（NVML）：掉卡、ECC、行重映射、NVLink、PCIe、降频、温度、功耗",
    ),
    "peers": Main(
        ("peer_reachable", "peer_round_trip_seconds", "peer_failure"),
        ("PeerUnreachable", "NodeReachesNobody"),
        "到其他节点的连接（TCP 或 SSH banner）：往返时延、失败原因；不配置则关闭",
    ),
    "profile": Main(
        ("profile_conforms", "profile_check_info", "profile_checks"),
        ("ProfileDiffers", "NodesUnlikePool"),
        "节点应有的状态：数量、型号、版本、内核参数、资源限制；与基准或同池节点比较",
    ),
    "rdma": Main(
        (
            "rdma_port_up",
            "rdma_port_rate_bytes_per_second",
            "rdma_port_errors_total",
            "rdma_port_flaps_total",
            "rdma_port_down_seconds_total",
            "rdma_port_longest_down_seconds",
            "rdma_port_gid_usable",
            "rdma_port_congestion_total",
        ),
        (
            "RdmaPortDown",
            "RdmaPortRateDegraded",
            "RdmaPortFatalErrors",
            "RdmaPortFlapping",
            "RdmaPortOutage",
            "RdmaGidUnusable",
        ),
        "RDMA 端口：在位、up、速率、闪断、中断时长、错误、拥塞、流量；RoCE 网卡与 GID",
    ),
    "services": Main(
        (
            "services_unit_active",
            "services_unit_restarts_total",
            "node_filesystem_read_only",
            "node_filesystem_errors",
            "node_hung_processes",
            "node_zombie_processes",
        ),
        (
            "FilesystemReadOnly",
            "FilesystemErrors",
            "ServiceDown",
            "ServiceFlapping",
            "ProcessesBlocked",
            "ZombieProcesses",
        ),
        "systemd 单元；变为只读的文件系统、卡在内核中的进程、僵尸进程、线程数",
    ),
    "scripts": Main(
        (
            "scripts_status",
            "scripts_value",
            "scripts_failures_total",
            "scripts_nccl_collective_seconds",
            "scripts_nccl_bus_bandwidth_bytes_per_second",
        ),
        ("ScriptCritical", "ScriptWarning", "ScriptUnknown", "RankBehind"),
        "自定义检查（Nagios 插件、nhc、任意可执行文件）与作业写出的文本指标",
    ),
    "switches": Main(
        ("port_switch_info", "port_switch_ibnetdiscover_timestamp_seconds"),
        ("FleetIncident",),
        "每个端口所接的交换机及其端口：取自配置、LLDP 或 ibnetdiscover",
    ),
    "transceivers": Main(
        (
            "transceiver_receive_watts",
            "transceiver_receive_low_watts",
            "transceiver_temperature_celsius",
            "transceiver_uncorrected_blocks_total",
            "transceiver_info",
        ),
        ("TransceiverSignalLow", "TransceiverErrors"),
        "光模块与线缆：收发光功率、偏置电流、温度、电压、序列号；FEC 纠错统计",
    ),
}
