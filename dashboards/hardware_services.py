"""The row of the hardware dashboard on what runs on the node: units of systemd, a site's scripts,
processes that hang, and file systems that became read-only.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import statetimeline, table, timeseries
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_queries import RANGE, per, scraped
from dashboards.panels import Steps, chart, timeline
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, GREY, ORANGE, RED, YELLOW, mapping
from dashboards.tables import Column, grid

NONE_OR: Steps = ((None, GREEN), (1, YELLOW))
# By the value that _status gives them.
STATUSES = ("ok", "warning", "unknown", "critical")


def panels(say: Say) -> list[table.Panel | timeseries.Panel | statetimeline.Panel]:
    """Return the row."""
    return [units(say), scripts(say), system(say), over_hours(say), processes(say)]


def units(say: Say) -> table.Panel:
    """One row per unit that is not as it must be."""
    restarts = f"round(increase({scraped('services_unit_restarts_total')}{RANGE}))"
    expected = scraped("services_unit_expected")
    wrong = (
        f"{scraped('services_unit_active')} == 0 and on (unit) {expected} == 1 "
        f"or on (unit) {scraped('services_unit_state', _FAILED)} or on (unit) {restarts} > 0"
    )

    def chosen(labels: str, expression: str) -> str:
        return f"{per(labels, expression)} and on (unit) ({wrong})"

    unit = say("Unit", "单元")
    return grid(
        say("Units that fail or restart", "异常的系统服务"),
        say(
            "Units of systemd that must be active and are not, that failed, or that systemd "
            "restarted in the time range. On the node: systemctl status, journalctl -u.",
            "应运行而未运行、已失败或在时间范围内被 systemd 重启的单元。"
            "请在节点上查看 systemctl status 与 journalctl -u。",
        ),
        [
            Column(unit, "unit"),
            Column("", rows(chosen("unit, state", scraped("services_unit_state")))),
            Column(say("State", "状态"), "state", mappings=[_unit_states(say)], width=100),
            Column(
                say("Expected", "应运行"),
                rows(chosen("unit", expected)),
                mappings=[mapping({"1": (say("yes", "是"), GREY), "0": (say("no", "否"), GREY)})],
                width=90,
            ),
            Column(
                say("Restarts", "重启次数"),
                rows(chosen("unit", restarts)),
                "short",
                NONE_OR,
                width=90,
            ),
        ],
        width=8,
        height=7,
        sort_by=unit,
        descending=False,
        empty=say("All units run", "所有服务正常"),
    )


_FAILED = 'state="failed"'


def _unit_states(say: Say) -> ValueMap:
    return mapping(
        {
            "failed": (say("failed", "失败"), RED),
            "inactive": (say("inactive", "未运行"), RED),
            "activating": (say("starting", "启动中"), YELLOW),
            "deactivating": (say("stopping", "停止中"), YELLOW),
            "active": (say("active", "运行中"), GREEN),
        }
    )


def _status() -> str:
    """The status of each script, as its place in STATUSES."""
    status = (
        f"{value} * ({scraped('scripts_status', f'status=&{word}&')} == 1)".replace("&", '"')
        for value, word in enumerate(STATUSES)
    )
    return per("script", " or ".join(status))


def _statuses(say: Say) -> ValueMap:
    words = {
        "3": (say("critical", "严重"), RED),
        "2": (say("unknown", "未知"), GREY),
        "1": (say("warning", "警告"), YELLOW),
        "0": (say("ok", "正常"), GREEN),
    }
    return mapping(words)


def scripts(say: Say) -> table.Panel:
    """One row per script that is not ok, or did not end properly."""
    failures = f"round(sum by (script) (increase({scraped('scripts_failures_total')}{RANGE})))"
    wrong = f"({_status()} > 0 or on (script) {failures} > 0)"
    status = say("Status", "状态")
    return grid(
        say("Scripts that are not ok", "异常的自定义脚本"),
        say(
            "Checks of the site itself that found something, or that failed themselves in the time "
            "range. What a script printed: nodevitals history --device SCRIPT on the node.",
            "自定义检查脚本发现异常，或脚本自身在时间范围内运行失败。"
            "脚本输出见节点上的 nodevitals history --device SCRIPT。",
        ),
        [
            Column(say("Script", "脚本"), "script"),
            Column(
                status,
                rows(f"{_status()} and on (script) {wrong}"),
                mappings=[_statuses(say)],
                width=100,
            ),
            Column(
                say("Failed runs", "失败次数"),
                rows(f"{failures} and on (script) {wrong}"),
                "short",
                NONE_OR,
                width=100,
            ),
        ],
        width=8,
        height=7,
        sort_by=status,
        empty=say("All scripts are ok", "所有脚本正常"),
    )


def system(say: Say) -> table.Panel:
    """File systems that became read-only, processes that hang, and what the kernel reported."""
    stuck = 'event=~"hung_task|lockup|kernel_bug"'
    found = (
        (scraped("node_filesystem_read_only") + " == 1", "mountpoint", say("read-only", "只读")),
        (
            scraped("node_hung_processes", 'wait!="paused"') + " > 0",
            "wait",
            say("processes hang in", "进程挂起于"),
        ),
        (
            f"round(increase({scraped('kernel_events_total', stuck)}{RANGE})) > 0",
            "event",
            say("kernel message", "内核消息"),
        ),
    )
    union = " or ".join(
        f'label_replace(label_replace({expression}, "object", "$1", "{label}", "(.+)"), '
        f'"what", "{word}", "", "")'
        for expression, label, word in found
    )
    what = say("What", "异常")
    return grid(
        say("Read-only, hung, locked up", "只读、挂起与死锁"),
        say(
            "Local file systems that were writable and are read-only, processes that hang in the "
            "kernel by what they wait for, and lockups that it reported in the time range. "
            "Hanging processes cannot be killed.",
            "变为只读的本地文件系统、按等待对象统计的内核态挂起进程，以及时间范围内内核报告的死锁。"
            "挂起的进程无法被终止。",
        ),
        [
            Column(what, "what", width=140),
            Column(say("Object", "对象"), "object"),
            Column(say("Number", "数量"), rows(f"max by (what, object) ({union})"), width=90),
        ],
        width=8,
        height=7,
        sort_by=what,
        descending=False,
        empty=say("Nothing hangs", "无异常"),
    )


def over_hours(say: Say) -> statetimeline.Panel:
    """The status of each script over time."""
    return timeline(
        say("Scripts over time", "脚本状态时间线"),
        say(
            "Status of each script of the site. Empty: no scripts are configured.",
            "各自定义脚本的状态变化。为空：未配置脚本。",
        ),
        over_time(_status(), "{{script}}"),
        mappings=[_statuses(say)],
        width=12,
        height=7,
    )


def processes(say: Say) -> timeseries.Panel:
    """Zombie processes and threads."""
    limits = 'nodevitals:threshold{threshold="zombie_processes"}'
    threads = f"{scraped('node_threads')} / {scraped('node_threads_maximum')}"
    share = 'nodevitals:threshold{threshold="threads_share"}'
    return chart(
        say("Zombies and threads, of the alerts' thresholds", "僵尸进程与线程（占告警阈值）"),
        say(
            "From 100 % on, the alert ZombieProcesses or ThreadsHigh fires after a while: at the "
            "limit no process can be started.",
            "达到 100% 并持续一段时间后触发告警 ZombieProcesses 或 ThreadsHigh："
            "达到上限后无法再启动进程。",
        ),
        over_time(
            f"{scraped('node_zombie_processes')} / on () group_left () {limits}",
            say("zombies", "僵尸进程"),
        ),
        over_time(f"{threads} / on () group_left () {share}", say("threads", "线程")),
        unit="percentunit",
        steps=((None, GREEN), (1, ORANGE)),
        width=12,
        height=7,
    )
