"""Chinese words for faults, severities, actions and impacts: those of the shipped templates of
Alertmanager (alertmanager/templates/nodevitals.zh.tmpl). A test compares the two.
"""

from __future__ import annotations

SEVERITIES = {"critical": "严重", "warning": "警告"}
OTHER_SEVERITY = "提示"

ACTIONS = {
    "none": "无需处理",
    "investigate": "排查",
    "restart_app": "重启作业",
    "reset_device": "复位设备",
    "drain": "排空节点",
    "reboot_node": "重启节点",
    "replace": "更换硬件",
}

DOMAINS = {
    "source": "存储",
    "switch": "交换机",
    "leaf": "Leaf 交换机",
    "rack": "机柜",
    "driver_version": "驱动版本",
    "pool": "资源池",
    "cluster": "整个集群",
}

FIRST_STEPS = {
    "source": "先检查存储服务端和通往存储的网络，不要逐台处理节点",
    "switch": "先检查该交换机的状态、供电和上联，不要逐台处理节点",
    "leaf": "先检查该交换机的状态、供电和上联，不要逐台处理节点",
    "rack": "先检查该机柜的供电和散热，不要逐台处理节点",
    "driver_version": "先暂停驱动升级或回退，不要逐台处理节点",
}
"""For many nodes with one fault, by what they have in common."""
OTHER_FIRST_STEP = "先排查最近一次变更，不要逐台处理节点"
PLANNED = "；如属计划内维护，请将这些节点标记为维护状态"

FAULTS = {
    "accelerator_lost": "掉卡",
    "accelerator_unreadable": "无法读取，状态未知",
    "accelerators_unreadable": "多张加速卡无法读取",
    "accelerators_missing": "加速卡数量不足",
    "accelerators_below_baseline": "加速卡数量少于以往",
    "accelerators_unseen": "加速卡状态未知",
    "card_not_driven": "GPU 未被驱动识别",
    "gpu_init_failed": "GPU 初始化失败",
    "ecc_uncorrectable": "显存不可纠正 ECC 错误",
    "ecc_contained": "显存错误已隔离，待复位",
    "ecc_correctable_high": "显存可纠正 ECC 错误过多",
    "recovery_needed": "需执行恢复操作",
    "recovery_when_idle": "待空闲后复位",
    "nvidia_xid": "Xid 错误",
    "nvidia_sxid": "NVSwitch 致命错误（SXid）",
    "row_remap_pending": "显存行重映射待复位生效",
    "row_remap_failure": "显存行重映射失败",
    "sram_worn_out": "SRAM 错误超阈值",
    "retired_pages": "显存退役页过多或待复位生效",
    "nvlink_down": "NVLink 断开",
    "nvlink_errors": "NVLink 误码过多",
    "nvlink_fabric_unhealthy": "NVLink Fabric 异常",
    "nvlink_fabric_not_ready": "未加入 NVLink Fabric",
    "nvlink_fabric_failed": "加入 NVLink Fabric 失败",
    "thermal_slowdown": "过热降频",
    "power_brake": "供电不足降频",
    "pcie_degraded": "PCIe 链路降宽",
    "pcie_generation_low": "PCIe 链路降速",
    "driver_mismatch": "驱动与用户态库版本不一致",
    "npu_unhealthy": "健康状态异常",
    "npu_fault_code": "故障码需复位或隔离",
    "npu_alarm": "健康状态非 OK（npu-exporter）",
    "npu_link_down": "RoCE 端口断开",
    "npu_network_unreachable": "网络探测地址不可达",
    "npu_ecc_pending": "显存坏页待复位隔离",
    "mount_missing": "存储未挂载",
    "mount_unexpected": "挂载的文件系统与配置不符",
    "mount_hung": "存储挂死",
    "mount_read_only": "存储不可写",
    "mount_not_readable": "存储不可读",
    "mount_content_mismatch": "存储读写数据不一致",
    "mount_slow": "存储读写变慢",
    "filesystem_space_low": "存储空间不足",
    "filesystem_filling": "存储即将写满",
    "inodes_low": "inode 不足",
    "nic_failed": "网卡固件或驱动故障",
    "nic_command_timeouts": "网卡固件命令反复超时",
    "rdma_port_down": "RDMA 端口断开",
    "rdma_port_unknown": "RDMA 端口状态未知",
    "rdma_rate_degraded": "RDMA 端口降速",
    "rdma_gid_unusable": "RoCE 端口无可用 GID",
    "rdma_port_outage": "RDMA 端口中断过久",
    "transceiver_receive_low": "光模块接收光功率过低",
    "transceiver_receive_dropped": "光模块接收光功率下降",
    "fec_uncorrected": "FEC 不可纠错块增长",
    "fec_corrected_outlier": "FEC 纠错远多于同类线缆",
    "rdma_port_flapping": "RDMA 端口闪断",
    "rdma_fatal_errors": "RDMA 端口致命错误",
    "rdma_link_errors": "RDMA 链路误码过多",
    "rdma_transport_errors": "RDMA 传输错误过多",
    "network_interface_down": "网卡断开",
    "network_interface_outage": "网口中断过久",
    "network_speed_degraded": "网卡降速",
    "bond_member_down": "bond 成员口断开",
    "peer_unreachable": "节点不可达",
    "node_reaches_nobody": "节点连不上多数其他节点",
    "cpu_high": "CPU 使用率持续过高",
    "memory_high": "内存使用率持续过高",
    "memory_uncorrectable": "内存不可纠正 ECC 错误",
    "nvme_failed": "NVMe 盘故障",
    "clock_unsynchronized": "时钟未同步",
    "maintenance": "节点维护中",
    "maintenance_forgotten": "节点长期处于维护状态",
    "repeated_faults": "节点一周内再次故障",
    "kernel_errors": "内核报错",
    "hung_task": "进程长时间卡在内核",
    "kernel_lockup": "CPU 锁死或停滞",
    "kernel_bug": "内核 BUG",
    "oom_kill": "内存不足（OOM），进程被杀",
    "node_down": "节点宕机",
    "fleet_incident": "大量节点同时故障",
    "exporter_down": "exporter 采集失败",
    "exporter_restarting": "exporter 反复重启",
    "target_lost": "节点不再被采集",
    "scrape_job_mismatch": "采集任务名不符",
    "exporter_absent": "没有任何 exporter 采集目标",
    "probe_failing": "探针执行失败",
    "probe_stuck": "探针卡死",
    "config_reload_failed": "配置重新加载失败",
    "node_fabric_slow": "节点计算网络带宽偏低",
    "node_fabric_unreachable": "节点在计算网络上不可达",
    "bandwidth_outlier": "两节点间带宽偏低",
    "bandwidth_below_baseline": "节点带宽低于基线",
    "latency_high": "计算网络时延偏高",
    "bandwidth_test_stale": "带宽测试长期无结果",
    "collective_failed": "集合通信测试失败",
    "collective_below_baseline": "集合通信带宽低于基线",
    "node_failed_check": "节点未通过检测",
    "check_failed": "检测未能执行",
    "check_schedule_stale": "定时检测长期无结果",
    "hub_down": "检测服务不可用",
    "notifications_waiting": "通知长时间未送达",
    "notifications_dropped": "通知已丢弃",
    "notifications_refused": "告警消息被拒收",
    "isolation_data_missing": "节点隔离缺少可用数据",
    "isolation_breaker_open": "节点隔离已熔断",
    "isolation_undecided": "节点等待人工处理",
    "drill": "告警演练",
    "job_impact": "作业所在节点故障",
    "pod_oom_kill": "容器内存不足（OOM），进程被杀",
    "threshold_missing": "告警阈值缺失",
    "network": "网络故障",
    "storage": "存储故障",
    "node": "宕机或失联",
    "restart": "宕机或失联",
    "driver": "驱动异常",
}

IMPACTS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("drill",), (), "仅为演练，节点没有故障"),
    (("network",), (), "这些节点上的作业会中断或变慢"),
    (("storage",), (), "这些节点上的作业卡在存储读写上"),
    (("node", "driver", "restart"), (), "这些节点上的作业可能已中断，新作业无法启动"),
    (
        ("node_down", "accelerators_unseen", "driver_mismatch"),
        (),
        "该节点上的作业可能已中断，新作业无法启动",
    ),
    (
        (
            "accelerator_lost",
            "accelerator_unreadable",
            "recovery_needed",
            "nvidia_xid",
            "npu_unhealthy",
            "gpu_init_failed",
            "card_not_driven",
            "accelerators_missing",
            "accelerators_below_baseline",
        ),
        (),
        "使用该卡的作业已失败或即将失败，可用卡数减少",
    ),
    (
        (
            "ecc_uncorrectable",
            "memory_uncorrectable",
            "mount_content_mismatch",
            "sram_worn_out",
            "row_remap_failure",
        ),
        (),
        "数据可能已损坏，计算结果不可信",
    ),
    (
        (),
        (
            "nvlink_",
            "npu_link_down",
            "rdma_",
            "nic_",
            "network_interface_down",
            "node_fabric_unreachable",
            "peer_unreachable",
            "node_reaches_nobody",
        ),
        "经过该链路的多机多卡作业会失败或变慢",
    ),
    (
        ("mount_hung", "mount_missing", "mount_read_only", "mount_not_readable"),
        (),
        "访问该目录的作业会卡住或报错",
    ),
    ((), ("filesystem_", "inodes_"), "写满后无法写入检查点和日志"),
    (
        (),
        (
            "exporter_",
            "probe_",
            "config_reload_failed",
            "threshold_missing",
            "bandwidth_test_stale",
            "check_",
            "hub_down",
        ),
        "监控数据缺失，期间的故障可能发现不了",
    ),
    ((), ("notifications_",), "相关人员可能收不到告警，故障期间无人知晓"),
    ((), ("isolation_",), "故障节点可能仍在接收新作业，或节点一直停用"),
    (("oom_kill", "memory_high"), (), "内存不足，作业进程可能被杀"),
)
"""By the fault, whole or its beginning; the first that matches."""
IMPACT_CRITICAL = "正在运行的作业会失败或即将失败"
IMPACTS_OF_COMPONENTS = {
    "accelerator": "作业可以继续运行，但性能或可靠性下降",
    "mount": "作业可以继续运行，但读写或通信变慢",
    "network": "作业可以继续运行，但读写或通信变慢",
    "rdma": "作业可以继续运行，但读写或通信变慢",
    "fabric": "作业可以继续运行，但读写或通信变慢",
}
OTHER_IMPACT = "暂不影响作业运行"


def impact(fault: str, severity: str, component: str) -> str:
    """What a fault does to jobs."""
    for names, beginnings, text in IMPACTS:
        if fault in names or (beginnings and fault.startswith(beginnings)):
            return text
    if severity == "critical":
        return IMPACT_CRITICAL
    return IMPACTS_OF_COMPONENTS.get(component, OTHER_IMPACT)
