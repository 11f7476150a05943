"""Texts of the page of isolations, in the languages of texts.LANGUAGES."""

from __future__ import annotations

ISOLATION: dict[str, tuple[str, str]] = {
    "isolations": ("Out of service", "停用节点"),
    "isolations_help": (
        "Nodes that the hub takes out of service for confirmed faults: no new job starts there.",
        "hub 因已确认的故障而停用的节点：不再调度新作业。",
    ),
    "isolations_off": (
        (
            "Not set: the hub takes no node out of service. Write the section out_of_service of the"
            " hub's configuration."
        ),
        "未启用：hub 不会停用任何节点。请在 hub 的配置中添加 out_of_service 一节。",
    ),
    "isolation_dry_run": (
        "Dry run: the hub changes nothing on any node. This page shows what it would do.",
        "试运行模式：hub 不会更改任何节点，本页仅显示将会执行的操作。",
    ),
    "isolation_dry": ("dry run", "试运行"),
    "isolation_problem": ("Nothing is decided at present:", "当前不作任何决定："),
    "isolation_breaker": (
        (
            "Breaker open: no node is taken out of service. What was refused stays refused until"
            " its faults have ended, or you approve it."
        ),
        "熔断已触发：不再停用节点。被拒绝的停用在故障结束前保持拒绝，也可由人工批准。",
    ),
    "isolation_no_where": (
        "No node is chosen: out_of_service.where is empty.",
        "未选择任何节点：out_of_service.where 为空。",
    ),
    "isolation_limits": ("Limits", "上限"),
    "isolation_limits_are": (
        (
            "Per pool: {nodes} nodes and {share} % of the pool at a time (at least one node),"
            " {per_hour} within an hour. The breaker opens at {breaker_nodes} nodes, or"
            " {breaker_share} % of all, with a new fault within {within}."
        ),
        (
            "每个节点池：同时最多 {nodes} 个节点，且不超过该池的 {share}%（至少 1 个）；"
            "每小时最多 {per_hour} 个。{within}内有 {breaker_nodes} 个节点或全部节点的"
            " {breaker_share}% 出现新故障时触发熔断。"
        ),
    ),
    "isolation_back_off": (
        "A person returns nodes to service: out_of_service.back is not enabled.",
        "由人工恢复节点：out_of_service.back 未启用。",
    ),
    "isolation_open": ("Now", "当前"),
    "isolation_past": ("Ended", "已结束"),
    "isolation_none": ("No node is out of service by the hub.", "没有被 hub 停用的节点。"),
    "isolation_since": ("Since", "开始时间"),
    "isolation_end": ("End", "结束时间"),
    "isolation_faults": ("Faults", "故障"),
    "isolation_reason": ("Reason", "原因"),
    "isolation_pool": ("Pool", "节点池"),
    "isolation_steps": ("History", "记录"),
    "isolation_approve": ("Take out of service", "批准停用"),
    "isolation_return": ("Return to service", "恢复服务"),
    "isolation_cancel": ("Cancel", "取消"),
    "isolation_act": (
        "To approve or return, you need the role act.",
        "批准停用或恢复服务需要 act 角色。",
    ),
    "isolation_waiting": ("waiting", "等待中"),
    "isolation_came_back": ("the fault came back {count} times", "故障反复 {count} 次"),
    "isolation_refused": ("refused", "已拒绝"),
    "isolation_isolated": ("out of service", "已停用"),
    "isolation_pending": ("to be taken out", "待停用"),
    "isolation_testing": ("being tested", "检测中"),
    "isolation_kept": ("kept out", "保持停用"),
    "isolation_returned": ("returned", "已恢复"),
    "isolation_canceled": ("canceled", "已取消"),
    "isolation_ended": ("ended", "已结束"),
    "isolation_restoring": ("being returned", "恢复中"),
    "repair": ("Repair", "修复"),
    "repair_wanted": ("to be started", "待启动"),
    "repair_started": ("runs", "进行中"),
    "repair_succeeded": ("succeeded", "成功"),
    "repair_failed": ("failed", "失败"),
    "repair_timed_out": ("not ended in time", "超时"),
    "repair_unknown": ("its end is unknown", "结果未知"),
    "repair_canceled": ("canceled", "已取消"),
    "repair_dry_run": ("dry run: would be started", "试运行：将会启动"),
    "repair_waits": ("not yet started", "尚未启动"),
}
