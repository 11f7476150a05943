"""Texts of the pages, each in the languages of LANGUAGES: those of lists, checks and leases.

An English text with `|` has a singular and a plural, which `count` chooses.
"""

from __future__ import annotations

from nodevitals_hub.web.texts.texts_form import FORM
from nodevitals_hub.web.texts.texts_isolation import ISOLATION
from nodevitals_hub.web.texts.texts_verdict import VERDICT

LANGUAGES = ("en", "zh")

_GENERAL: dict[str, tuple[str, str]] = {
    "checks": ("Checks", "检测"),
    "new": ("New check", "新建检测"),
    "leases": ("Data of every second", "秒级数据"),
    "schedules": ("Schedules", "定时检测"),
    "incidents": ("Incidents", "事件"),
    "notifications": ("Notifications", "通知"),
    "severity_critical": ("critical", "严重"),
    "severity_warning": ("warning", "警告"),
    "severity_info": ("info", "提示"),
    "skip": ("Skip to the content", "跳到正文"),
    "log_in": ("Log in", "登录"),
    "log_in_to_run": (
        "You can read here. To start or to end anything, you need the role run.",
        "当前只能查看；启动或结束操作需要 run 角色。",
    ),
    "other_language": ("中文", "English"),
    "none": ("No check matches.", "没有符合条件的检测。"),
    "none_yet": ("No check has been started yet.", "还没有检测记录。"),
    "older": ("Older checks", "更早的检测"),
    "filter": ("Filter", "筛选"),
    "all": ("Show all", "显示全部"),
    "any": ("any", "不限"),
    "kind": ("Kind", "类型"),
    "pair": ("Pair", "节点对"),
    "matrix": ("Matrix", "节点矩阵"),
    "collective": ("Collective", "集合通信"),
    "node": ("Node", "节点自检"),
    "nodes": ("Nodes", "节点"),
    "count_nodes": ("{count} node|{count} nodes", "{count} 个节点"),
    "count_runs": ("{count} test|{count} tests", "{count} 次测试"),
    "node_name": ("Node", "节点"),
    "check": ("Check", "检测"),
    "requested": ("Requested", "提交时间"),
    "by": ("Asked by", "发起者"),
    "verdict": ("Verdict", "结论"),
    "by_page": ("page", "页面"),
    "by_rest": ("REST", "REST"),
    "by_command": ("command line", "命令行"),
    "by_resource": ("resource", "自定义资源"),
    "by_schedule": ("schedule", "定时计划"),
    "by_alert": ("alert", "告警"),
    "by_job": ("job", "作业"),
    "queued": ("queued", "排队中"),
    "running": ("running", "运行中"),
    "done": ("done", "已完成"),
    "canceled": ("canceled", "已取消"),
    "ok": ("ok", "正常"),
    "bad": ("bad", "异常"),
    "unknown": ("unknown", "无法判断"),
    "progress": ("{done} of {all} tests done", "已完成 {done}/{all} 次测试"),
    "wait_queued": (
        "It waits for its nodes, or for its turn. This page refreshes itself.",
        "正在等待节点空闲或排队。页面会自动刷新。",
    ),
    "wait_running": (
        "No verdict yet. This page refreshes itself.",
        "尚无结论。页面会自动刷新。",
    ),
    "cancel": ("Cancel this check", "取消检测"),
    "again": ("Run again", "再次运行"),
    "and_more": ("and {count} more", "等，另有 {count} 个"),
    "map": ("Heat map", "热力图"),
    "map_help": (
        (
            "Each cell is the rate of a pair, in percent of the usual {usual}. Rows are the"
            " nodes that"
            " the test was started on, columns their partners."
        ),
        "每格为一对节点的速率，以通常值 {usual} 的百分比表示。行为发起测试的节点，列为对端。",
    ),
    "map_latency": (
        (
            "Each cell is the speed of a pair, in percent of the usual: 50 is twice the usual"
            " latency"
            " of {usual}. Rows are the nodes that the test was started on, columns their partners."
        ),
        (
            "每格为一对节点的速度，以通常值的百分比表示：50 表示延迟为通常值 {usual} 的两倍。"
            "行为发起测试的节点，列为对端。"
        ),
    ),
    "map_once": (
        "Each pair was tested once and is shown twice.",
        "每对节点只测试一次，在图中显示两次。",
    ),
    "map_numbers": (
        "Only cells below 90 have a number.",
        "仅低于 90 的格显示数值。",
    ),
    "below": ("below {bound}", "低于 {bound}"),
    "from": ("{bound} or more", "{bound} 及以上"),
    "not_measured": ("not measured", "未测量"),
    "worst": ("Slowest nodes", "最慢的节点"),
    "worst_help": (
        "The {shown} slowest of {all}, by the median over their partners.",
        "{all} 个节点中最慢的 {shown} 个，按与各对端的中位数排序。",
    ),
    "share_of": ("Percent of the usual", "与通常值之比"),
    "by_size": ("By message size", "按消息大小"),
    "size": ("Message size", "消息大小"),
    "median": ("Median", "中位数"),
    "share_of_best": ("Percent of the largest", "与最大值之比"),
    "runs": ("Slowest and failed tests", "最慢及失败的测试"),
    "of_runs": ("Nodes of the test", "测试节点"),
    "figure": ("Figure", "测量值"),
    "problem": ("Problem", "问题"),
    "own_runs": ("Results by node", "各节点结果"),
    "fine": ("no problem", "无问题"),
    "compared": (
        "Median {figure}: {percent} % of the last like check that was ok ({baseline}).",
        "中位数 {figure}，为上一次同类正常检测（{baseline}）的 {percent} %。",
    ),
    "compared_unsure": (
        (
            "Median {figure}: {percent} % of the last like check ({baseline}), which could not tell"
            " either."
        ),
        "中位数 {figure}，为上一次同类检测（{baseline}，同样没有结论）的 {percent} %。",
    ),
    "median_is": (
        (
            "Median {figure}. There is no earlier check of the same nodes and parameters to compare"
            " it with."
        ),
        "中位数 {figure}。此前没有节点和参数相同的检测可供对比。",
    ),
    "cost_and_time": ("Cost", "开销"),
    "planned": ("Planned, at most", "计划上限"),
    "spent": ("Spent", "实际"),
    "tests": ("Tests", "测试次数"),
    "time": ("Time", "时长"),
    "node_hours": ("Node hours", "节点小时"),
    "traffic": ("Bytes over the network", "网络流量"),
    "not_counted": ("not counted", "未统计"),
    "parameters": ("Parameters and versions", "参数与版本"),
    "versions": ("Version of {name}", "{name} 版本"),
    "id": ("Check", "检测编号"),
    "started": ("Started", "开始时间"),
    "ended": ("Ended", "结束时间"),
    "raw": ("Raw output", "原始输出"),
    "raw_help": (
        (
            "Of the {count} slowest or failed test; results.csv has all figures."
            "|Of the {count} slowest or failed tests; results.csv has all figures."
        ),
        "最慢或失败的 {count} 次测试；全部数值见 CSV。",
    ),
    "json": ("JSON", "JSON"),
    "csv": ("Results as CSV", "结果 CSV"),
    "parameter": ("Parameter", "参数"),
    "value": ("Value", "值"),
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    "status_400": ("The request cannot be read", "无法识别的请求"),
    "status_401": ("You are not logged in", "尚未登录"),
    "status_403": ("Your role does not permit this", "当前角色没有此权限"),
    "status_404": ("There is no such page or check", "没有这个页面或检测"),
    "status_405": ("This page does not take such a request", "此页面不支持该请求方式"),
    "status_409": ("Not possible in the present state", "当前状态下无法执行"),
    "status_413": ("The request is too large", "请求过大"),
    "status_414": ("The address is too long", "地址过长"),
    "status_422": ("A value is not valid", "参数无效"),
    "status_429": ("Too many at a time: try again later", "请求过多，请稍后再试"),
    "status_500": ("A defect of the hub", "hub 内部错误"),
    "status_503": ("The hub cannot do this now", "hub 暂时无法处理"),
    "error": ("Not possible", "无法执行"),
    "back": ("To the list of checks", "返回检测列表"),
    "leases_help": (
        (
            "Chosen probes of some nodes run every second for a while; Prometheus scrapes these"
            " nodes"
            " every second meanwhile. Then all is as before."
        ),
        (
            "在一段时间内，所选节点的所选探针每秒运行一次，Prometheus 同时每秒抓取这些节点；"
            "结束后恢复原样。"
        ),
    ),
    "no_leases": ("No node is monitored every second now.", "目前没有节点处于秒级监控。"),
    "lease_new": ("Ask for data of every second", "申请秒级数据"),
    "lease_list": ("Leases", "租约"),
    "lease_nodes": ("Nodes of all leases", "租约中的节点"),
    "lease_ask": ("Begin", "开始"),
    "lease_end": ("End now", "立即结束"),
    "probes": ("Probes", "探针"),
    "other_probes": ("Other probes", "其他探针"),
    "help_other_probes": (
        "Names, separated by spaces; at most 8 probes in all.",
        "探针名，以空格分隔；总数最多 8 个。",
    ),
    "duration": ("Duration", "时长"),
    "help_duration": ("Such as 30m or 2h; at most {most}.", "例如 30m、2h；最长 {most}。"),
    "until": ("Until", "截止时间"),
    "state": ("State", "状态"),
    "schedule_name": ("Name", "名称"),
    "every": ("Every", "间隔"),
    "window": ("Window (UTC)", "时间窗口（UTC）"),
    "any_time": ("any time", "不限"),
    "spent_hours": ("Node hours in 7 days", "7 天内的节点小时"),
    "last_check": ("Last check", "上次检测"),
    "next_start": ("Next start, at the earliest", "下次启动（最早）"),
    "why_not": ("Why not started", "未启动的原因"),
    "no_schedules": (
        "No schedules: write the section schedules of the hub's configuration.",
        "没有定时检测：请在 hub 的配置中添加 schedules 一节。",
    ),
    "lease_waiting": ("not asked yet", "尚未下发"),
    "lease_active": ("active", "生效中"),
    "lease_refused": ("no probe runs every second", "没有探针按秒运行"),
    "lease_unreachable": ("agent does not answer", "采集器无应答"),
}

TEXTS: dict[str, tuple[str, str]] = {**_GENERAL, **FORM, **ISOLATION, **VERDICT}
