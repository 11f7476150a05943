"""The row of the Self dashboard on Prometheus, and the numbers that say whether an alert reaches a
person. Prometheus has no label of the agents: no variable but the data source restricts it.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.agents_notifications import notified, scraped_by_itself
from dashboards.language import Say
from dashboards.panels import chart, number, timeline
from dashboards.queries import now, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW, yes_no
from dashboards.tables import Column, grid

STEP = "$__rate_interval"
WATCHDOG = 'ALERTS{alertname="Watchdog", alertstate="firing"}'


def numbers(say: Say) -> list[stat.Panel]:
    """Return what must work for an alert to reach a person."""

    def counted(metric: str) -> Dataquery:
        return now(f"sum(increase({metric}[$__range]))")

    return [
        number(
            say("Since the watchdog fired", "距 Watchdog 上次触发"),
            say(
                "Age of the dead-man's switch: time since Prometheus last evaluated the alert "
                "Watchdog, which always fires. Over two minutes: the rules are not evaluated, "
                "and no alert fires. Empty: not once within an hour, or the rules are not "
                "loaded. Whether it arrives is known only to the external switch that "
                "Alertmanager sends it to.",
                "Watchdog 告警（始终触发）距上次评估的时间。超过两分钟：规则未被评估，任何告警都"
                "不会触发。为空：一小时内没有触发过，或未加载规则。是否送达只有 Alertmanager 所通"
                "知的外部值守系统才知道。",
            ),
            over_time(f"time() - max(max_over_time(timestamp({WATCHDOG})[1h:1m]))"),
            unit="s",
            steps=((None, GREEN), (180, ORANGE), (600, RED)),
            width=6,
        ),
        number(
            say("Notifications failed", "发送失败的通知"),
            say(
                "Notifications that Alertmanager could not deliver in the chosen time range, all "
                "integrations. Above 0, a notification was lost: see the row Alertmanager.",
                "所选时间范围内 Alertmanager 未能送达的通知数（所有渠道）。大于 0 表示有人未收到"
                "通知：请看 Alertmanager 一行。",
            )
            + notified(say),
            counted("alertmanager_notifications_failed_total"),
            unit="short",
            steps=((None, GREEN), (0.5, RED)),
            decimals=0,
            width=6,
        ),
        number(
            say("Evaluations missed", "错过的规则评估"),
            say(
                "Evaluations of rule groups that were left out in the chosen time range, as the "
                "one before took too long: alerts are late. See the slowest groups below.",
                "所选时间范围内因上一次耗时过长而被跳过的规则组评估次数：告警会延迟。请看下方最慢"
                "的规则组。",
            )
            + scraped_by_itself(say),
            counted("prometheus_rule_group_iterations_missed_total"),
            unit="short",
            steps=((None, GREEN), (0.5, ORANGE)),
            decimals=0,
            width=6,
        ),
        number(
            say("Evaluations failed", "失败的规则评估"),
            say(
                "Rules that returned an error in the chosen time range (duplicate series, too "
                "many samples): they fire nothing. Status > Rules in Prometheus has the error.",
                "所选时间范围内评估出错（序列重复、样本过多）的规则次数：这些规则不会触发告警。错"
                "误信息见 Prometheus 的 Status > Rules。",
            )
            + scraped_by_itself(say),
            counted("prometheus_rule_evaluation_failures_total"),
            unit="short",
            steps=((None, GREEN), (0.5, RED)),
            decimals=0,
            width=6,
        ),
    ]


def prometheus(say: Say) -> list[Builder[Panel]]:
    """Return the row on Prometheus."""
    scraped = scraped_by_itself(say)
    watchdog = "{{alertname}}"
    name = "{{instance}}"
    # Its own job has another name at each site; agents have a metric of the same name.
    memory = (
        'process_resident_memory_bytes{job!="nodevitals"} and on (job, instance) '
        "prometheus_tsdb_head_series"
    )
    errors = "3600 * sum(rate(prometheus_tsdb_{}_total[" + STEP + "])) > 0"
    return [
        timeline(
            say("Watchdog and configuration", "Watchdog 与配置"),
            say(
                "A gap in the line of Watchdog: no rules were evaluated, or Prometheus was down. "
                "The other lines: whether the last load of the configuration of Prometheus and "
                "Alertmanager succeeded; if not, they run with the old one: promtool check "
                "config, amtool check-config.",
                "Watchdog 出现空档：期间未评估规则或 Prometheus 停机。其他行：Prometheus 与 "
                "Alertmanager 最近一次加载配置是否成功；失败时仍使用旧配置：用 promtool check "
                "config、amtool check-config 检查。",
            ),
            over_time(f"max by (alertname) ({WATCHDOG})", watchdog),
            over_time("prometheus_config_last_reload_successful", "Prometheus " + name),
            over_time("alertmanager_config_last_reload_successful", "Alertmanager " + name),
            mappings=[yes_no(say)],
            height=6,
        ),
        _groups(say),
        chart(
            say("Evaluation time of rule groups", "规则组评估耗时"),
            say(
                "Last evaluation of the eight groups that are the slowest now. It must stay "
                "below the interval of the group (5 s to 5 min).",
                "当前最慢的八个规则组的最近一次评估耗时，应低于该组的间隔（5 s 至 5 min）。",
            )
            + scraped,
            over_time(
                "label_replace(max by (rule_group) (prometheus_rule_group_last_duration_seconds) "
                "and topk(8, max by (rule_group) (prometheus_rule_group_last_duration_seconds @ "
                "end())), "
                '"group", "$1", "rule_group", ".*;(.+)")',
                "{{group}}",
            ),
            unit="s",
        ),
        chart(
            say("Missed and failed evaluations per hour", "每小时错过与失败的评估"),
            say(
                "Missed: the group is too slow or Prometheus lacks CPU. Failed: an error in a "
                "rule, see Status > Rules.",
                "错过：规则组太慢或 Prometheus CPU 不足；失败：规则出错，见 Status > Rules。",
            )
            + scraped,
            over_time(
                f"3600 * sum(rate(prometheus_rule_group_iterations_missed_total[{STEP}]))",
                say("missed", "错过"),
            ),
            over_time(
                f"3600 * sum(rate(prometheus_rule_evaluation_failures_total[{STEP}]))",
                say("failed", "失败"),
            ),
            unit="short",
        ),
        chart(
            say("Series in memory", "内存中的序列数"),
            say(
                "Series of the head block, of all jobs. A step up without new nodes: a label "
                "with too many values; Status > TSDB in Prometheus shows which.",
                "head block 中所有任务的序列数。没有新增节点却上升：某个标签取值过多，见 "
                "Prometheus 的 Status > TSDB。",
            )
            + scraped,
            over_time("sum by (instance) (prometheus_tsdb_head_series)", name),
            unit="short",
            width=6,
        ),
        chart(
            say("Memory of Prometheus", "Prometheus 内存"),
            say(
                "Resident memory. It follows the series, with peaks at compactions and large "
                "queries.",
                "常驻内存，随序列数变化，压缩和大查询时出现峰值。",
            )
            + scraped,
            over_time(f"max by (instance) ({memory})", name),
            unit="bytes",
            width=6,
        ),
        chart(
            say("Samples per second", "每秒样本数"),
            say(
                "Samples that Prometheus stores, of all jobs and rules. A fall without fewer "
                "nodes: scrapes fail, or the disk is full.",
                "Prometheus 存储的样本数（所有任务和规则）。节点未减少却下降：抓取失败或磁盘已满。",
            )
            + scraped,
            over_time(
                f"sum by (instance) (rate(prometheus_tsdb_head_samples_appended_total[{STEP}]))",
                name,
            ),
            unit="short",
            width=6,
        ),
        chart(
            say("Errors of the storage per hour", "每小时存储错误"),
            say(
                "Failed writes and corruptions of the write-ahead log, and failed compactions. "
                "Any: check the disk of Prometheus (full, failing). Empty is good.",
                "WAL 写失败、WAL 损坏和压缩失败的次数。出现任何错误：检查 Prometheus 的磁盘（已满"
                "或故障）。为空即正常。",
            )
            + scraped,
            over_time(errors.format("wal_writes_failed"), say("writes", "写入")),
            over_time(errors.format("wal_corruptions"), say("corruptions", "损坏")),
            over_time(errors.format("compactions_failed"), say("compactions", "压缩")),
            unit="short",
            width=6,
        ),
    ]


def _groups(say: Say) -> Builder[Panel]:
    keys = "instance, group"
    share = say("Of its interval", "占间隔比例")

    def column(title: str, value: str, unit: str, **more: Any) -> Column:
        # The group without the path of its file.
        short = f'label_replace({value}, "group", "$1", "rule_group", ".*;(.+)")'
        return Column(title, rows(f"max by ({keys}) ({short})"), unit, **more)

    last, interval = (
        f"prometheus_rule_group_{name}_seconds" for name in ("last_duration", "interval")
    )
    return grid(
        say("Rule groups", "规则组"),
        say(
            "Each group's last evaluation against its interval. Over one half: give Prometheus "
            "more CPU, or render the rules without the features that the site does not need. "
            "Over 1: evaluations are missed.",
            "每个规则组最近一次评估耗时与间隔之比。超过一半：为 Prometheus 增加 CPU，或精简不需要"
            "的规则；超过 1：评估会被跳过。",
        )
        + scraped_by_itself(say),
        [
            Column(say("Group", "规则组"), "group"),
            column(
                share,
                f"{last} / {interval}",
                "percentunit",
                steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
            ),
            column(say("Last evaluation", "最近耗时"), last, "s"),
            column(say("Interval", "间隔"), interval, "s"),
            column(
                say("Missed in 1 h", "1 小时错过"),
                "increase(prometheus_rule_group_iterations_missed_total[1h])",
                "short",
                steps=((None, GREEN), (1, ORANGE)),
                decimals=0,
            ),
            column(
                say("Failed in 1 h", "1 小时失败"),
                "increase(prometheus_rule_evaluation_failures_total[1h])",
                "short",
                steps=((None, GREEN), (1, RED)),
                decimals=0,
            ),
            column(
                say("Samples", "样本数"), "prometheus_rule_group_last_evaluation_samples", "short"
            ),
            Column("Prometheus", "instance"),
        ],
        sort_by=share,
    )
