"""The row of the Self dashboard on what the hub does about alerts: incidents, notifications, nodes
taken out of service.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards import agents_repairs as repairs
from dashboards.agents_repairs import HUB
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import over_time
from dashboards.states import GREEN, RED


def response(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    empty = say(" Empty: no hub is scraped.", "为空：未采集检测服务。")
    return [
        repairs.waiting(say),
        *_incidents(say, empty),
        *_notifications(say, empty),
        *_nodes(say),
        *repairs.repairs(say),
    ]


def _incidents(say: Say, empty: str) -> list[timeseries.Panel]:
    def average(what: str, count: str) -> str:
        total = f"sum by (severity) (increase(nodevitals_hub_incident_{what}_seconds_total{{{HUB}}}"
        number = f"sum by (severity) (increase(nodevitals_hub_incidents_{count}_total{{{HUB}}}"
        return f"{total}[1d])) / ({number}[1d])) > 0)"

    return [
        chart(
            say("Open incidents", "未解决的事件"),
            say(
                "Incidents of the hub that are not resolved, by severity and state. Open ones are "
                "not acknowledged by a person yet.",
                "检测服务中未解决的事件数（按级别和状态）。open：尚无人确认。",
            )
            + empty,
            over_time(
                f"sum by (severity, state) (nodevitals_hub_incidents{{{HUB}}})",
                "{{severity}} {{state}}",
            ),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Time to acknowledge and to repair", "确认耗时与修复耗时"),
            say(
                "Average of the incidents that were acknowledged or resolved within a day, by "
                "severity. The month with its median is on the hub's page Incidents.",
                "一天内确认或解决的事件的平均耗时（按级别）。按月统计及中位数见检测服务的事件页面。",
            )
            + empty,
            over_time(
                average("acknowledge", "acknowledged"), say("acknowledge", "确认") + " {{severity}}"
            ),
            over_time(average("repair", "resolved"), say("repair", "修复") + " {{severity}}"),
            unit="s",
            width=8,
        ),
    ]


def _notifications(say: Say, empty: str) -> list[timeseries.Panel]:
    family = f"nodevitals_hub_notifications_total{{{HUB}, outcome="
    return [
        chart(
            say("Notifications of the hub", "检测服务的通知"),
            say(
                "By channel: those that wait now, attempts that failed and those that were dropped "
                "within an hour. The error is on the hub's page Notifications.",
                "按渠道：当前等待发送的通知，以及一小时内失败的尝试和丢弃的通知。"
                "错误原因见检测服务的通知页面。",
            )
            + empty,
            over_time(
                f"sum by (channel) (nodevitals_hub_notifications_waiting{{{HUB}}})",
                say("waiting", "等待") + " {{channel}}",
            ),
            over_time(
                f'sum by (channel) (increase({family}"failed"}}[1h])) > 0',
                say("failed", "失败") + " {{channel}}",
            ),
            over_time(
                f'sum by (channel) (increase({family}"dropped"}}[1h])) > 0',
                say("dropped", "丢弃") + " {{channel}}",
            ),
            unit="short",
            width=8,
        )
    ]


def _nodes(say: Say) -> list[timeseries.Panel]:
    unset = say(
        " Empty: no hub that takes nodes out of service is scraped.",
        "为空：未采集到启用节点隔离的检测服务。",
    )
    return [
        chart(
            say("Nodes out of service", "停用的节点"),
            say(
                "Nodes that the hub takes out of service or has refused to, by pool and state; dry "
                "runs are not counted. Kept and refused ones wait for a person.",
                "检测服务停用或拒绝停用的节点数（按资源池和状态），不含试运行。"
                "kept 和 refused 需人工处理。",
            )
            + unset,
            over_time(
                f'sum by (pool, state) (nodevitals_hub_isolations{{{HUB}, dry_run="false"}}) > 0',
                "{{pool}} {{state}}",
            ),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Breaker of the hub", "节点隔离熔断"),
            say(
                "1 while the hub takes no node out of service because many nodes have got a fault; "
                "a dry run is not shown.",
                "为 1 时检测服务不再停用节点：大量节点同时出现故障。不含试运行。",
            )
            + unset,
            over_time(
                f'max(nodevitals_hub_isolation_breaker_open{{{HUB}, dry_run="false"}})',
                say("open", "已熔断"),
            ),
            unit="short",
            width=8,
            steps=((None, GREEN), (1, RED)),
        ),
    ]
