"""How fresh the data is, and which versions the nodes run."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import chart, number
from dashboards.queries import BY_POOL, CLUSTER, in_pool, over_time, rows
from dashboards.states import GREEN, ORANGE, RED
from dashboards.tables import Column, grid


def panels(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels of the row."""
    return [without_data(say), age(say), stale(say), versions(say), drift(say)]


def without_data(say: Say) -> stat.Panel:
    return number(
        say("Nodes without data", "无数据节点"),
        say(
            "Nodes that Prometheus cannot scrape. They are lost or unknown on the first screen: see"
            " the alerts NodeDown and ExporterDown.",
            "Prometheus 无法采集的节点，在首屏中为“丢失”或“未知”，请查看 NodeDown 和 ExporterDown"
            " 告警。",
        ),
        over_time(f"sum(nodevitals:nodes_without_data:count{{{BY_POOL}}})"),
        steps=((None, GREEN), (1, RED)),
        width=4,
        height=8,
    )


def age(say: Say) -> timeseries.Panel:
    return chart(
        say("Age of the oldest data", "最旧数据的时长"),
        say(
            "Time since the last success of each probe on the node where it is longest ago. A"
            " saw-tooth"
            " up to the probe's interval is normal; a line that climbs is a probe that hangs or"
            " fails.",
            "各探针在最久未成功的节点上，距上次成功的时间。在探针间隔内呈锯齿状属正常；"
            "持续上升表示探针挂起或失败。",
        ),
        over_time(f"max by (probe) (nodevitals:data_age:seconds{{{BY_POOL}}})", "{{probe}}"),
        unit="s",
        width=8,
    )


def stale(say: Say) -> table.Panel:
    """One row per probe whose data is missing."""
    overdue = in_pool(f"nodevitals:probe_overdue:seconds{{{CLUSTER}}}")
    node = say("Node", "节点")
    title = say("Last success before", "距上次成功")
    return grid(
        say("Overdue probes", "逾期探针"),
        say(
            "The ten probes that are overdue for longest: no success for three intervals and three"
            " minutes, so that their values are missing. nodevitals doctor on the node says why.",
            "逾期最久的十个探针：超过三个间隔且超过三分钟未成功，其数据缺失。"
            "可在节点上运行 nodevitals doctor 查看原因。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Probe", "探针"), "probe"),
            Column(say("Target", "目标"), "target"),
            Column(
                title,
                rows(f"topk(10, max by (cluster, instance, probe, target) ({overdue}))"),
                unit="s",
                decimals=0,
            ),
        ],
        width=12,
        height=8,
        sort_by=title,
        empty=say("All data is fresh", "数据均为最新"),
    )


def versions(say: Say) -> table.Panel:
    """One row per version of each part."""
    key = "part, model, version"
    nodes = f"count by ({key}) ({in_pool(f'nodevitals:node_version{{{CLUSTER}}}')})"
    total = (
        "count by (part, model) (group by (cluster, instance, part, model)"
        f" ({in_pool(f'nodevitals:node_version{{{CLUSTER}}}')}))"
    )
    share = say("Share", "占比")
    return grid(
        say("Versions", "版本分布"),
        say(
            "Versions of driver, firmware and agent that the nodes run, by model. One version per"
            " model is best; two during an upgrade.",
            "各节点运行的驱动、固件和采集器版本，按型号统计。每个型号最好只有一个版本，"
            "升级期间可有两个。",
        ),
        [
            Column(say("Part", "部件"), "part"),
            Column(say("Model", "型号"), "model"),
            Column(say("Version", "版本"), "version"),
            Column(say("Nodes", "节点"), rows(nodes), width=80),
            Column(
                share,
                rows(f"{nodes} / on (part, model) group_left () {total}"),
                unit="percentunit",
                steps=((None, ORANGE), (0.5, "text")),
                decimals=0,
                width=90,
            ),
        ],
        width=12,
        height=10,
        sort_by=say("Part", "部件"),
        descending=False,
    )


def drift(say: Say) -> table.Panel:
    """One row per node and part whose version is not the one of most nodes."""
    node = say("Node", "节点")
    seen = say("Last read", "上次读取")
    found = in_pool(f"nodevitals:node_version_drift{{{CLUSTER}}}")
    key = "cluster, instance, part, model, version, majority"
    return grid(
        say("Nodes that differ from most", "版本偏离的节点"),
        say(
            "Nodes with another version than most nodes of the cluster with the same model. Upgrade"
            " them, or find out who upgraded them.",
            "与集群内同型号多数节点版本不同的节点。请升级，或查明是谁升级了它们。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Part", "部件"), "part"),
            Column(say("Model", "型号"), "model"),
            Column(say("Version", "版本"), "version"),
            Column(say("Most nodes", "多数版本"), "majority"),
            Column(
                seen,
                rows(f"max by ({key}) ({found}) * 1000"),
                unit="dateTimeFromNow",
            ),
        ],
        width=12,
        height=10,
        sort_by=say("Part", "部件"),
        descending=False,
        empty=say("No node differs", "无版本偏离"),
    )
