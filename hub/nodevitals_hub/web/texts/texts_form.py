"""Texts of the form for a new check, in English and Chinese."""

from __future__ import annotations

FORM: dict[str, tuple[str, str]] = {
    "choose_kind": ("What shall be checked?", "选择检测类型"),
    "about_pair": (
        "One test between two nodes: is this link as fast as it should be? Takes seconds.",
        "两个节点之间的一次测试：这条链路的速率是否正常？耗时数秒。",
    ),
    "about_matrix": (
        (
            "Tests between all pairs of some nodes, or some rounds of them: which node is slow?"
            " Minutes."
        ),
        "一组节点两两测试，或只测若干轮：哪个节点偏慢？耗时数分钟。",
    ),
    "about_collective": (
        (
            "NCCL or HCCL over all nodes together, as a training job does it; where it fails or is"
            " slow, smaller groups find the node."
        ),
        "所有节点一起运行 NCCL 或 HCCL，与训练作业相同；失败或偏慢时缩小范围定位节点。",
    ),
    "about_node": (
        "Each node's own checks of its devices. No traffic.",
        "各节点检查自身设备，不产生网络流量。",
    ),
    "new_pair": ("New check: a pair of nodes", "新建检测：节点对"),
    "new_matrix": ("New check: a matrix of nodes", "新建检测：节点矩阵"),
    "new_collective": ("New check: a collective", "新建检测：集合通信"),
    "new_node": ("New check: nodes by themselves", "新建检测：节点自检"),
    "presets": ("Presets", "预设"),
    "which_nodes": ("Which nodes", "选择节点"),
    "nodes_field": ("Nodes by name", "按名称"),
    "help_nodes": (
        (
            "Separated by spaces, commas or lines. {count} node is on the hub's lists."
            "|Separated by spaces, commas or lines. {count} nodes are on the hub's lists."
        ),
        "以空格、逗号或换行分隔。hub 的列表中共有 {count} 个节点。",
    ),
    "help_nodes_pair": (
        (
            "Two names. {count} node is on the hub's lists.|Two names. {count} nodes are on the"
            " hub's"
            " lists."
        ),
        "填写两个节点名。hub 的列表中共有 {count} 个节点。",
    ),
    "by_label": ("And nodes with these labels", "以及带有这些标签的节点"),
    "label_value": (
        "{value} ({count} node)|{value} ({count} nodes)",
        "{value}（{count} 个节点）",
    ),
    "no_choice": ("-", "-"),
    "where": ("Other labels", "其他标签"),
    "help_where": (
        "One NAME=VALUE per line; a node must have all labels, those above included.",
        "每行一个 NAME=VALUE；节点须同时具有全部标签（含上方所选）。",
    ),
    "which_test": ("Which test", "选择测试"),
    "preset": ("Preset", "预设"),
    "help_preset": ("What you fill in below replaces the preset's value.", "下方填写的值优先。"),
    "none_preset": ("none", "无"),
    "tool": ("Tool", "工具"),
    "operation": ("Operation", "操作"),
    "device": ("Device", "设备"),
    "help_device_pair": (
        "RDMA device such as mlx5_0 (needed for perftest); for iperf3 a network interface.",
        "RDMA 设备，例如 mlx5_0（perftest 必填）；iperf3 填网络接口。",
    ),
    "help_device_collective": (
        "Only this RDMA device, such as mlx5_0; empty: all.",
        "只使用该 RDMA 设备，例如 mlx5_0；留空表示全部。",
    ),
    "sizes": ("Message sizes", "消息大小"),
    "help_sizes": (
        "One size (64KiB), several (8B,64KiB,1MiB) or a sweep (8B..8GiB x2).",
        "单个大小（64KiB）、多个（8B,64KiB,1MiB）或扫描（8B..8GiB x2）。",
    ),
    "port": ("Port", "端口"),
    "iterations": ("Messages per size", "每种大小的消息数"),
    "seconds": ("Seconds per size", "每种大小的秒数"),
    "help_seconds": ("In place of a number of messages.", "与消息数二选一。"),
    "queue_pairs": ("Queue pairs", "队列对（QP）数"),
    "help_queue_pairs": ("For iperf3 parallel streams.", "iperf3 为并行流数。"),
    "gid_index": ("GID index", "GID 索引"),
    "help_gid_index": ("Empty: chosen on each node.", "留空由各节点自行选择。"),
    "traffic_class": ("Traffic class", "流量类别（TC）"),
    "devices_per_node": ("Devices per node", "每节点设备数"),
    "rounds": ("Rounds", "轮数"),
    "help_rounds": (
        "In a round each node has one partner. Empty: all pairs; needed above 256 nodes.",
        "每轮中每个节点有一个对端。留空表示全部节点对；超过 256 个节点时必填。",
    ),
    "environment": ("Environment variables", "环境变量"),
    "help_environment": (
        "One NAME=VALUE per line, such as NCCL_ALGO=Ring; names of an allow-list.",
        "每行一个 NAME=VALUE，例如 NCCL_ALGO=Ring；仅限白名单中的名称。",
    ),
    "mca": ("MCA parameters of Open MPI", "Open MPI 的 MCA 参数"),
    "help_mca": (
        "One NAME=VALUE per line, such as btl_tcp_if_include=eth0; names of an allow-list.",
        "每行一个 NAME=VALUE，例如 btl_tcp_if_include=eth0；仅限白名单中的名称。",
    ),
    "expected": ("Expected rate", "期望速率"),
    "help_expected": (
        "Of a healthy link, such as 400Gb/s. Empty: nodes are compared with each other.",
        "正常链路的速率，例如 400Gb/s。留空则节点之间相互比较。",
    ),
    "share": ("Slow is below this percentage", "低于该百分比视为偏慢"),
    "help_share": ("Of the expected rate, or of the median.", "相对于期望速率或中位数。"),
    "isolate": ("Where it fails or is slow", "失败或偏慢时"),
    "isolate_yes": ("find the node with smaller groups", "缩小范围定位节点"),
    "isolate_no": ("stop", "不再定位"),
    "limit": ("Time limit", "时间上限"),
    "help_limit": (
        "Of the whole check, such as 30m. Empty: from its cost.",
        "整个检测的上限，例如 30m。留空则按开销计算。",
    ),
    "force": ("Also test nodes in use by jobs", "同时检测正被作业占用的节点"),
    "help_force": (
        "Slows down the jobs there. The agents must permit it too (probes.fabric.hub.force).",
        "会影响这些节点上的作业；采集器也必须允许（probes.fabric.hub.force）。",
    ),
    "forced": (
        "Nodes in use by jobs are tested too, which slows down these jobs.",
        "包括正被作业占用的节点，这些作业会受影响。",
    ),
    "note": ("Note", "备注"),
    "help_note": ("Why, for those who read it later.", "检测原因，供日后查阅。"),
    "more": ("More parameters", "更多参数"),
    "by_default": ("default: {value}", "默认：{value}"),
    "default": ("default", "默认"),
    "show_cost": ("Show cost", "显示开销"),
    "not_started": ("Nothing is started yet.", "此时尚未开始。"),
    "start": ("Start this check", "开始检测"),
    "cost": ("Cost, at most", "开销上限"),
    "cost_line": (
        (
            "This check takes {nodes} for {seconds} at most: {runs}, {bytes} over the network,"
            " {hours}"
            " node hours."
        ),
        "本次检测最多占用 {nodes} {seconds}：{runs}，网络流量 {bytes}，合计 {hours} 节点小时。",
    ),
    "cost_nodes": ("The nodes: {names}", "节点：{names}"),
    "cost_test": ("The test: {test}", "测试：{test}"),
    "change": ("Change it", "修改"),
    "refused_invalid": ("Not started: a value must be changed.", "未开始：请修改以下内容。"),
    "refused_forbidden": ("Not started: your role does not permit it.", "未开始：角色权限不足。"),
    "refused_not_found": ("There is no such check.", "没有这个检测。"),
    "refused_conflict": ("Not started: jobs use some nodes.", "未开始：部分节点正被作业占用。"),
    "refused_busy": ("Not started: there is no room now.", "未开始：当前已达上限。"),
    "refused_unavailable": ("Not started: the store does not work.", "未开始：存储不可用。"),
}
