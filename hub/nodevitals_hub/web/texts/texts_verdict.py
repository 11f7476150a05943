"""Texts of verdicts and findings, in English and Chinese."""

from __future__ import annotations

VERDICT: dict[str, tuple[str, str]] = {
    "no_fault": ("no fault found", "未发现故障"),
    "was_canceled": ("it was canceled before it could tell", "检测已取消，没有结论"),
    "unknown_hardware": ("a device or a link failed", "设备或链路故障"),
    "unknown_threshold": (
        "it is not known whether this is as fast as it should be",
        "无法判断速度是否达标",
    ),
    "unknown_harness": (
        "the test itself failed; this says nothing about the hardware",
        "测试本身失败，不能说明硬件状况",
    ),
    "unknown_workload": ("jobs use the nodes", "节点正被作业占用"),
    "unknown_none": ("nothing was measured", "没有测得数据"),
    "slow_by": (
        "{subject}: slow, {percent} % of {usual}",
        "{subject}：偏慢，仅为{usual}的 {percent} %",
    ),
    "slow": ("{subject}: slower than it should be", "{subject}：性能不达标"),
    "failed_hardware": ("{subject}: a device or a link failed", "{subject}：设备或链路故障"),
    "failed_harness": ("{subject}: the test failed to run", "{subject}：测试未能执行"),
    "failed_workload": ("{subject}: in use by jobs", "{subject}：正被作业占用"),
    "usual_expected": ("the expected rate", "期望速率"),
    "usual_median": ("the median", "中位数"),
    "usual_last": ("the last like check", "上一次同类检测"),
    "usual_any": ("the usual rate", "通常速率"),
    "more_findings": ("{count} more finding|{count} more findings", "另有 {count} 项"),
    "separator": ("; ", "；"),
    "colon": (": ", "："),
    "comma": (", ", "、"),
    "clause": (", ", "，"),
    "subject_node": ("{name}", "{name}"),
    "subject_link": ("{name}", "{name}"),
    "subject_rail": ("{name} of all nodes", "所有节点的 {name}"),
    "all_devices": ("all devices of all nodes", "所有节点的全部设备"),
    "scope": ("Scope", "范围"),
    "scope_node": ("node", "节点"),
    "scope_link": ("link", "链路"),
    "scope_rail": ("rail", "同号设备"),
    "findings": ("Findings and next steps", "问题与处理"),
    "subject": ("Subject", "对象"),
    "reason": ("Reason", "原因"),
    "finding": ("Finding", "说明"),
    "suspects": ("Suspect", "疑点"),
    "suspect_port": ("port {name}", "端口 {name}"),
    "sending": ("sending", "发送方向"),
    "receiving": ("receiving", "接收方向"),
    "to_do": ("Do next", "下一步"),
    "original": ("Message", "原始信息（英文）"),
    "hardware": ("hardware", "硬件故障"),
    "threshold": ("slow", "性能不达标"),
    "harness": ("the test failed", "测试失败"),
    "workload": ("in use", "被占用"),
    "do_hardware_node": (
        "Drain the node, look at its alerts, then at the suspects.",
        "排空该节点，查看其告警，再检查疑点部件。",
    ),
    "do_hardware_link": (
        (
            "Test both nodes with other partners; then look at the cables and switch ports between"
            " them."
        ),
        "用其他对端分别测试这两个节点，再检查其间的线缆和交换机端口。",
    ),
    "do_hardware_rail": (
        "Look at this device on the nodes and at the switches of its rail; start with the alerts.",
        "检查各节点的该设备及其所连交换机，先看告警。",
    ),
    "do_threshold_node": (
        (
            "Compare link width, link speed and error counters with those of a fast node; then"
            " run the"
            " check again with more partners."
        ),
        "与正常节点对比链路宽度、速率和错误计数，再增加对端重新检测。",
    ),
    "do_threshold_link": (
        "Run it again; if it stays, look at the cables and switch ports between the two nodes.",
        "重新检测；若仍偏慢，检查两个节点之间的线缆和交换机端口。",
    ),
    "do_threshold_rail": (
        (
            "All nodes are affected: look for a change of switches, drivers or parameters since the"
            " last good check."
        ),
        "所有节点均受影响：排查自上次正常检测以来交换机、驱动或参数的变更。",
    ),
    "do_threshold": (
        (
            "Run it again with the expected rate, or pairs of physical ports with messages of 1MiB."
            " Where many pairs are slow, choose more rounds."
        ),
        "填写期望速率，或对物理端口改用 1MiB 消息，再重新检测。多对节点偏慢时，增加轮数。",
    ),
    "do_harness": (
        "Read the raw output below, repair the test, and run it again.",
        "查看下方的原始输出，修复测试环境后重新检测。",
    ),
    "do_workload": (
        "Wait until the jobs have ended, or choose other nodes.",
        "等作业结束后重新检测，或选择其他节点。",
    ),
}
