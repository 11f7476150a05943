"""The row of the Self dashboard on what the hub does about alerts: what waits for a person, and
repairs.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.language import Say
from dashboards.node_summary import RUNBOOKS
from dashboards.panels import chart
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, RED
from dashboards.tables import Column, grid

HUB = f'job="nodevitals-hub", {CLUSTER}'


def waiting(say: Say) -> table.Panel:
    """One row per reason for which nodes or records wait for a person, as the alerts name them."""

    def part(alert: str, label: str, chosen: str) -> str:
        named = f'label_replace({chosen} > 0, "what", "$1", "{label}", "(.+)")'
        return f'label_replace({named}, "alertname", "{alert}", "", "")'

    def hub(name: str, matchers: str = "") -> str:
        return f"nodevitals_hub_{name}{{{HUB}{matchers}}}"

    kept = hub("isolations", ', state=~"kept|refused", dry_run="false"')
    union = " or ".join(
        (
            part("IsolationUndecided", "state", f"sum by (state) ({kept})"),
            part("IsolationBlocked", "reason", f"max by (reason) ({hub('isolation_problems')})"),
            part("RepairFailed", "action", f"sum by (action) ({hub('repairs_failed')})"),
            part("HubRecordsSetAside", "what", f"sum by (what) ({hub('set_aside')})"),
        )
    )
    newest = part(
        "HubRecordsSetAside", "what", f"max by (what) ({hub('set_aside_timestamp_seconds')})"
    )
    keys = "alertname, what"
    alert = say("Alert", "告警")
    runbook = f'{RUNBOOKS}/${{__data.fields["{alert}"]:percentencode}}.md'
    return grid(
        say("Waits for a person", "等待人工处理"),
        say(
            "Nodes that the hub keeps out of service or refuses to take out, what the scheduler "
            "has not done, repairs that failed, records that the hub could not read. Select the "
            "alert for its runbook.",
            "检测服务保持停用或拒绝停用的节点、调度器未完成的操作、失败的修复，以及无法读取的记录。"
            "点击告警打开处理手册。",
        ),
        [
            Column(alert, "alertname", link=(say("Runbook", "处理手册"), runbook)),
            Column(say("What", "内容"), "what"),
            Column(say("Number", "数量"), rows(f"max by ({keys}) ({union})"), "short", width=80),
            Column(
                say("Newest", "最近一次"),
                rows(f"1000 * max by ({keys}) ({newest})"),
                "dateTimeFromNow",
            ),
        ],
        width=8,
        height=8,
        sort_by=alert,
        empty=say("Nothing waits", "无待处理项"),
    )


def repairs(say: Say) -> list[timeseries.Panel]:
    """Return the graphs of repairs, and of the data that decisions need."""
    unset = say(
        " Empty: no hub that repairs nodes is scraped.", "为空：未采集到启用修复的检测服务。"
    )
    ended = f"nodevitals_hub_repairs_total{{{HUB}}}"
    decided = f'nodevitals_hub_isolation_decisions_total{{{HUB}, dry_run="false"}}'
    return [
        chart(
            say("Repairs", "节点修复"),
            say(
                "Repairs that run, and nodes still out of service after one that failed, by "
                "action.",
                "正在进行的修复，以及修复失败后仍停用的节点（按动作）。",
            )
            + unset,
            over_time(
                f"sum by (action) (nodevitals_hub_repairs_running{{{HUB}}})",
                say("runs", "进行中") + ": {{action}}",
            ),
            over_time(
                f"sum by (action) (nodevitals_hub_repairs_failed{{{HUB}}}) > 0",
                say("failed", "失败") + ": {{action}}",
            ),
            unit="short",
            width=8,
        ),
        chart(
            say("Repairs and decisions within a day", "一天内的修复与停用决定"),
            say(
                "Repairs by outcome, and nodes taken out of service and returned. Dry runs of "
                "repairs have an outcome of their own.",
                "按结果统计的修复，以及停用和恢复的节点数。修复的试运行单独计为一种结果。",
            )
            + unset,
            over_time(
                f"sum by (outcome) (increase({ended}[1d])) > 0",
                say("repair", "修复") + ": {{outcome}}",
            ),
            over_time(
                f"sum by (outcome) (increase({decided}[1d])) > 0",
                say("node", "节点") + ": {{outcome}}",
            ),
            unit="short",
            width=8,
        ),
        chart(
            say("Age of the hub's data", "检测服务的数据延迟"),
            say(
                "Time since Prometheus' last usable answer, without which no node is taken out or "
                "returned, as a share of the threshold isolation_answer_age_seconds.",
                "距 Prometheus 上次可用应答的时间与阈值 isolation_answer_age_seconds 之比；"
                "没有应答时不会停用或恢复节点。",
            )
            + unset,
            over_time(
                f"max(nodevitals_hub_isolation_answer_age_seconds{{{HUB}}}) / on () group_left () "
                'nodevitals:threshold{threshold="isolation_answer_age_seconds"}',
                say("of the threshold", "占阈值"),
            ),
            unit="percentunit",
            steps=((None, GREEN), (1, RED)),
            width=8,
        ),
    ]
