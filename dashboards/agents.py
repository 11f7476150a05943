"""The monitoring itself: agents and their probes, what they cost, and the way of an alert through
Prometheus and Alertmanager.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import common, stat, table, timeseries
from grafana_foundation_sdk.models.common import ScaleDistribution

from dashboards import agents_cost, agents_notifications, agents_pipeline, agents_response
from dashboards.board import Board, link_to
from dashboards.language import Say
from dashboards.panels import chart, number
from dashboards.queries import CLUSTER, NODE, in_pool, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW
from dashboards.tables import Column, grid

AGENT = f'job="nodevitals", {NODE}'
PROBES = f'{CLUSTER}, pool=~"$pool"'


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "self",
        ("Self-monitoring", "自身监控"),
        (
            "Whether the monitoring works: agents, probes, rules, notifications.",
            "监控系统自身是否正常：采集器、探针、规则与通知。",
        ),
        ["cluster", "pool", "instance"],
    )
    made.alerts(f'{CLUSTER}, component="agent", alertname!="Watchdog"')
    return made.rows(
        ("", [*agents_pipeline.numbers(say), *numbers(say)]),
        (say("Probes", "探针"), [bad_probes(say), *probes(say)]),
        (say("Agents", "采集器"), agents(say)),
        (say("Scrapes and cost of the agents", "抓取与采集器开销"), agents_cost.panels(say)),
        (say("Prometheus", "Prometheus"), agents_pipeline.prometheus(say)),
        (say("Alertmanager", "Alertmanager"), agents_notifications.alertmanager(say)),
        (say("Response", "故障响应"), agents_response.response(say)),
    )


def _count(bad: str) -> str:
    """Return the number of series; 0 only where there are agents."""
    return f"count({in_pool(bad)}) or 0 * sum(nodevitals:agents:targets:count{{{PROBES}}})"


def numbers(say: Say) -> list[stat.Panel]:
    """Return what is wrong with agents, as numbers; 0 is good."""
    fault = f"nodevitals:fault{{{NODE}, fault="
    bad = ((None, GREEN), (1, ORANGE))
    return [
        number(
            say("Agents not scraped", "抓取失败的采集器"),
            say(
                "Targets of the job nodevitals with up 0: no fault of these nodes is noticed. If "
                "the node is up: systemctl status nodevitals on it, then the path from "
                "Prometheus. Empty: Prometheus has no such target at all.",
                "nodevitals 任务中 up 为 0 的目标数：这些节点的故障不会被发现。节点在线时先看 "
                "systemctl status nodevitals，再查到 Prometheus 的网络路径。为空：Prometheus 中没"
                "有该任务的目标。",
            ),
            over_time(_count(f"up{{{AGENT}}} == 0")),
            unit="short",
            steps=((None, GREEN), (1, RED)),
            width=4,
        ),
        number(
            say("Targets missing", "丢失的目标"),
            say(
                "Nodes that were scraped within the last hour and have left service discovery. "
                "If they were not removed on purpose: Status > Service Discovery in Prometheus.",
                "最近一小时内抓取过、现已不在服务发现中的节点数。如非主动下线：查看 Prometheus 的"
                " Status > Service Discovery。",
            ),
            over_time(_count(f'{fault}"target_lost"}}')),
            unit="short",
            steps=bad,
            width=4,
        ),
        number(
            say("Probes failing", "失败的探针"),
            say(
                "Targets of probes whose last run failed or is too old, of the chosen pools: "
                "what they monitor is unknown. The table below names them.",
                "所选资源池中最近一次运行失败或数据过期的探针目标数：其监控对象状态未知。见下表。",
            ),
            over_time(f"sum(nodevitals:probe:failing:count{{{PROBES}}})"),
            unit="short",
            steps=bad,
            width=4,
        ),
        number(
            say("Probes stuck", "卡住的探针"),
            say(
                "Runs that are overdue by more than a minute: a call into a driver or a file "
                "system does not return. On the node: ps -eo pid,stat,wchan:30,args | grep ' D'.",
                "超时一分钟以上未返回的探针数：对驱动或文件系统的调用没有返回。在节点上执行：ps "
                "-eo pid,stat,wchan:30,args | grep ' D'。",
            ),
            over_time(f"sum(nodevitals:probe:stuck:count{{{PROBES}}})"),
            unit="short",
            steps=((None, GREEN), (1, RED)),
            width=4,
        ),
        number(
            say("Agents restarting", "频繁重启的采集器"),
            say(
                "Agents that started more than three times within an hour. On the node: "
                "journalctl -u nodevitals; in Kubernetes: kubectl describe its pod.",
                "一小时内启动超过三次的采集器数。在节点上执行 journalctl -u nodevitals；"
                "Kubernetes 中用 kubectl describe 查看其 Pod。",
            ),
            over_time(_count(f'{fault}"exporter_restarting"}}')),
            unit="short",
            steps=bad,
            width=4,
        ),
        number(
            say("Configuration rejected", "配置加载失败"),
            say(
                "Agents that run with an outdated configuration as the new one is invalid: "
                "nodevitals check-config /etc/nodevitals/nodevitals.yaml on the node.",
                "新配置无效、仍使用旧配置的采集器数：在节点上执行 nodevitals check-config "
                "/etc/nodevitals/nodevitals.yaml。",
            ),
            over_time(_count(f"nodevitals_config_last_reload_successful{{{AGENT}}} == 0")),
            unit="short",
            steps=bad,
            width=4,
        ),
    ]


def bad_probes(say: Say) -> table.Panel:
    """Return the table of the probes that fail or are stuck."""
    keys = "cluster, instance, probe, target"
    last_success = f"nodevitals_probe_last_success_timestamp_seconds{{{AGENT}}}"
    # At the scrape: its interval may be longer than that of the probe.
    age = f"(timestamp({last_success}) - {last_success})"
    success = f"nodevitals_probe_success{{{AGENT}}}"
    stuck = f"nodevitals_probe_stuck_seconds{{{AGENT}}}"
    bad = in_pool(f"{success} == 0 or on (job, cluster, instance, probe, target) {stuck} > 0")
    chosen = f"topk(100, 0 * max by ({keys}) ({bad}) + 1)"

    def column(title: str, value: str, unit: str, **more: Any) -> Column:
        return Column(
            title, rows(f"max by ({keys}) ({value} and on ({keys}) {chosen})"), unit, **more
        )

    node = say("Node", "节点")
    last = say("Since a success", "距上次成功")
    return grid(
        say("Probes that fail or are stuck", "失败或卡住的探针"),
        say(
            "At most 100. No success: the run failed, or its data is older than three intervals; "
            "the reason is in the agent's log and in nodevitals history on the node. Stuck: a "
            "call does not return. Many nodes with one probe: what they share (a filer, a driver "
            "version). No time since a success: it never succeeded since the agent started. "
            "Empty is good.",
            "最多 100 行。成功为否：运行失败，或数据已超过三个间隔；原因见采集器日志或节点上的 "
            "nodevitals history。卡住：调用未返回。多个节点同一探针失败：查其共同点（存储、驱动版"
            "本）。没有距上次成功时间：采集器启动后从未成功。为空即正常。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Probe", "探针"), "probe"),
            Column(say("Target", "目标"), "target"),
            column(say("Success", "成功"), success, "bool_yes_no", steps=((None, RED), (1, GREEN))),
            column(
                say("Stuck for", "已卡住"), f"{stuck} > 0", "s", steps=((None, YELLOW), (60, RED))
            ),
            column(last, age, "s"),
            column(
                say("Interval", "间隔"),
                f"nodevitals_probe_interval_seconds{{{AGENT}}}",
                "s",
            ),
            column(
                say("Last duration", "上次耗时"),
                f"nodevitals_probe_duration_seconds{{{AGENT}}}",
                "s",
            ),
            Column(say("Cluster", "集群"), "cluster"),
        ],
        sort_by=last,
    )


def probes(say: Say) -> list[timeseries.Panel]:
    """Return the graphs on probes over all agents."""
    by_probe = "{{probe}}"

    def recorded(name: str, aggregation: str) -> str:
        return f"{aggregation} by (probe) (nodevitals:probe:{name}{{{PROBES}}})"

    age = f"clamp_max({recorded('age_intervals:max', 'max')}, 20)"
    logarithmic = common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)
    return [
        chart(
            say("Failing probes", "失败的探针数"),
            say(
                "Number of targets that fail, by probe, in the chosen pools. A step on many "
                "nodes: a change of configuration, driver or permission.",
                "所选资源池中失败的目标数（按探针）。许多节点同时失败：配置、驱动或权限变更。",
            ),
            over_time(recorded("failing:count", "sum") + " > 0", by_probe),
            unit="short",
            stacked=True,
        ),
        chart(
            say("Oldest data by probe", "各探针最旧数据"),
            say(
                "Time since the last success of the worst target, in intervals of the probe. Up "
                "to 2 is normal; after 3 its samples disappear. A value below 0 or one that "
                "never falls: the clock of a node.",
                "最差目标距上次成功的时间，以探针间隔为单位。不超过 2 为正常；超过 3 其样本会消"
                "失。为负或一直不降：节点时钟有误。",
            ),
            over_time(age, by_probe),
            unit="short",
            steps=((None, GREEN), (3, RED)),
        ),
        chart(
            say("Longest run by probe", "各探针最长耗时"),
            say(
                "Duration of the last run on the slowest node. Near its timeout: a slow driver, "
                "filer or tool; the table by node is on the Node dashboard.",
                "最慢节点上次运行耗时。接近超时：驱动、存储或工具变慢；按节点的数据见节点仪表盘。",
            ),
            over_time(recorded("duration_seconds:max", "max"), by_probe),
            unit="s",
            lowest=None,
        ).scale_distribution(logarithmic),
        chart(
            say("Median run by probe", "各探针中位耗时"),
            say(
                "Duration of the last run, median of all nodes of a pool. A step up on all "
                "nodes: a new driver or version of the agent.",
                "上次运行耗时在资源池所有节点中的中位值。整体升高：驱动或采集器版本变更。",
            ),
            over_time(recorded("duration_seconds:median", "max"), by_probe),
            unit="s",
            lowest=None,
        ).scale_distribution(logarithmic),
    ]


def agents(say: Say) -> list[timeseries.Panel | table.Panel]:
    """Return the row on agents."""

    def recorded(name: str, by: str = "") -> str:
        return f"sum{by} (nodevitals:agents:{name}{{{PROBES}}})"

    up, every = recorded("up:count"), recorded("targets:count")
    return [
        chart(
            say("Agents by version", "采集器版本分布"),
            say(
                "Agents that are scraped, by version. Two versions for longer than a rollout: "
                "nodes that the rollout did not reach.",
                "可抓取的采集器数（按版本）。升级完成后仍有两个版本：有节点未升级到。",
            ),
            over_time(recorded("version:count", " by (version)"), "{{version}}"),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Targets", "抓取目标"),
            say(
                "Targets of the job nodevitals that answer and that do not. A falling sum: "
                "targets have left service discovery.",
                "nodevitals 任务中可抓取与不可抓取的目标数。总数下降：有目标离开服务发现。",
            ),
            over_time(up, say("up", "正常")),
            over_time(f"{every} - {up}", say("down", "断开")),
            unit="short",
            width=8,
            stacked=True,
            colours={say("up", "正常"): GREEN, say("down", "断开"): RED},
        ),
        chart(
            say("Restarts of agents", "采集器重启次数"),
            say(
                "Restarts within five minutes, of all agents of the chosen pools. A peak: a "
                "rollout; a steady level: an agent that is killed (memory limit, liveness probe).",
                "所选资源池中五分钟内的采集器重启次数。尖峰：升级；持续：采集器反复被杀（内存限"
                "制、存活探测）。",
            ),
            over_time(recorded("restarts:count5m"), say("restarts", "重启")),
            unit="short",
            width=8,
        ),
    ]
