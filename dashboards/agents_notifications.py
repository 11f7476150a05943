"""The row of the Self dashboard on notifications, from Prometheus through Alertmanager.

No variable but the data source restricts it: Alertmanager has no label of the agents.
"""

from __future__ import annotations

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import over_time
from dashboards.states import BLUE, ORANGE, RED

STEP = "$__rate_interval"


def scraped_by_itself(say: Say) -> str:
    return say(" Empty: Prometheus does not scrape itself.", "为空：Prometheus 未抓取自身。")


def notified(say: Say) -> str:
    return say(
        " Empty: Prometheus does not scrape Alertmanager.",
        "为空：Prometheus 未抓取 Alertmanager。",
    )


def alertmanager(say: Say) -> list[Builder[Panel]]:
    """Return the row on notifications."""
    source = notified(say)
    by = "{{integration}}"

    def rate(metric: str) -> str:
        return f"3600 * sum by (integration) (rate({metric}[{STEP}]))"

    seconds = f"sum by (integration) (rate(alertmanager_notification_latency_seconds_sum[{STEP}]))"
    count = f"sum by (integration) (rate(alertmanager_notification_latency_seconds_count[{STEP}]))"

    def sent(name: str) -> str:
        return f"3600 * sum(rate(prometheus_notifications_{name}_total[{STEP}]))"

    return [
        chart(
            say("Alerts sent to Alertmanager per hour", "每小时发往 Alertmanager 的告警"),
            say(
                "Alerts sent (each several times while it fires), and those lost: errors "
                "(Alertmanager refuses them or does not answer) and dropped (the queue was full, "
                "or no Alertmanager is known). Queue: alerts that wait to be sent now; it grows "
                "first.",
                "发送的告警（触发期间会重复发送）以及丢失的告警：errors（Alertmanager 拒绝或无应"
                "答）、dropped（队列已满或没有可用的 Alertmanager）。队列：当前等待发送的告警数，"
                "会先增长。",
            )
            + scraped_by_itself(say),
            over_time(sent("sent"), say("sent", "已发送")),
            over_time(sent("errors"), say("errors", "错误")),
            over_time(sent("dropped"), say("dropped", "丢弃")),
            over_time("sum(prometheus_notifications_queue_length)", say("queue", "队列")),
            unit="short",
            width=8,
            colours={say("errors", "错误"): ORANGE, say("dropped", "丢弃"): RED},
        ),
        chart(
            say("Notifications per hour by integration", "每小时通知数（按渠道）"),
            say(
                "Attempted notifications, also failed ones. A flood: group harder, or look at "
                "which alerts flap.",
                "尝试发送的通知数（含失败）。数量激增：加强分组，或查看哪些告警反复抖动。",
            )
            + source,
            over_time(rate("alertmanager_notifications_total") + " > 0", by),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Failed notifications per hour", "每小时失败的通知（按渠道）"),
            say(
                "The reason is in Alertmanager's log: an expired token, a limit of the chat "
                "service, a proxy. Empty is good.",
                "失败原因见 Alertmanager 日志：令牌过期、聊天服务限流、代理问题。为空即正常。",
            )
            + source,
            over_time(rate("alertmanager_notifications_failed_total") + " > 0", by),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Time to deliver", "送达耗时"),
            say(
                "Average time of a notification by integration. Seconds: a slow receiver delays "
                "all others of the group.",
                "各渠道单次通知的平均耗时。达到秒级：接收方缓慢，会拖慢同组的其他通知。",
            )
            + source,
            over_time(f"{seconds} / ({count} > 0)", by),
            unit="s",
            width=8,
        ),
        chart(
            say("Alerts in Alertmanager", "Alertmanager 中的告警"),
            say(
                "active: notified; suppressed: silenced or inhibited (by a fleet incident, or by "
                "the fault of the whole node). Many suppressed for days: a silence that was "
                "forgotten.",
                "active：已通知；suppressed：被静默或被抑制（集群事件或整机故障）。长期大量 "
                "suppressed：可能有被遗忘的静默。",
            )
            + source,
            over_time("max by (state) (alertmanager_alerts)", "{{state}}"),
            unit="short",
            width=8,
            colours={"active": ORANGE, "suppressed": BLUE},
        ),
        chart(
            say("Silences", "静默"),
            say(
                "Silences that are active or pending. They hide alerts from everyone: planned "
                "work belongs in the node's maintenance, which ends by itself.",
                "生效或待生效的静默数。静默会对所有人隐藏告警：计划内操作应使用节点维护，到期自动"
                "结束。",
            )
            + source,
            over_time(
                'max by (state) (alertmanager_silences{state=~"active|pending"})', "{{state}}"
            ),
            unit="short",
            width=8,
        ),
    ]
