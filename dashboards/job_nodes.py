"""Nodes of a job: their health, their mounts, and the traffic between them."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import statetimeline, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.job_queries import DEVICES, JOB, NODES, on_nodes, scraped
from dashboards.language import Say
from dashboards.panels import chart, timeline
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, RED, YELLOW, states, yes_no
from dashboards.tables import Column, grid

WORST = 50
"""Rows of a table: more nodes than these are read on the fleet dashboard."""


def panels(say: Say) -> list[Builder[Panel]]:
    """Return the panels of the row."""
    return [nodes(say), mounts(say), history(say), *traffic(say)]


def nodes(say: Say) -> table.Panel:
    state = f"max by (cluster, instance) ({on_nodes('nodevitals:node_state')})"
    worst = f"topk({WORST}, {state})"
    faults = 'nodevitals:fault{scope=~"device|node", severity=~"critical|warning"}'
    node = say("Node", "节点")

    def column(title: str, expression: str, **more: Any) -> Column:
        return Column(title, rows(f"({expression}) and on (cluster, instance) {worst}"), **more)

    return grid(
        say("Nodes", "节点"),
        say(
            f"The worst {WORST} nodes of the job: their state, how many devices the job has there, "
            "faults of the node, RDMA ports that are down, and the slowest mount.",
            f"作业所在节点中最差的 {WORST} 个：状态、作业占用的设备数、节点故障数、"
            "断开的 RDMA 端口数，以及最慢挂载点的读写耗时。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            column(say("State", "状态"), state, mappings=[states(say)]),
            column(
                say("Devices", "设备数"),
                f"count by (cluster, instance) (group by (cluster, instance, uuid) ({DEVICES}))",
            ),
            column(
                say("Faults", "故障数"),
                f"count by (cluster, instance) ({faults})",
                steps=((None, GREEN), (1, YELLOW)),
            ),
            column(
                say("RDMA ports down", "断开的 RDMA 端口"),
                f"count by (cluster, instance) ({scraped('rdma_port_up')} == 0)",
                steps=((None, GREEN), (1, RED)),
            ),
            column(
                say("Slowest mount", "最慢挂载点"),
                "max by (cluster, instance) (nodevitals:mount_seconds:avg5m)",
                unit="s",
            ),
        ],
        width=12,
        sort_by=say("State", "状态"),
    )


def mounts(say: Say) -> table.Panel:
    key = "cluster, instance, mountpoint"
    seconds = f"max by ({key}) ({on_nodes('nodevitals:mount_seconds:avg5m')})"
    usable = (
        f"min by ({key}) ({on_nodes(scraped('mount_present'))} "
        f"or {on_nodes(scraped('mount_readable'))} or {on_nodes(scraped('mount_writable'))})"
    )
    worst = f"topk({WORST}, ({usable} == 0) * 0 + 1e6 or on ({key}) {seconds})"
    node = say("Node", "节点")
    return grid(
        say("Mounts of its nodes", "节点上的挂载点"),
        say(
            f"The {WORST} worst mounts: those that are missing or cannot be read or written, then "
            "the slowest. Time: that of a write, fsync and read of the probe's file, averaged "
            "over 5 minutes. All nodes slow on one mount: the storage. One node: its client.",
            f"最差的 {WORST} 个挂载点：先列未挂载或无法读写的，再按耗时从高到低。"
            "耗时为探测文件写入、fsync 和读取的 5 分钟平均值。同一挂载点在所有节点上都慢："
            "存储问题；只有一个节点慢：该节点的客户端问题。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Mount point", "挂载点"), "mountpoint"),
            # The sort of the table is stable: among equals, the order of the first query stays.
            Column(
                say("Time", "耗时"), rows(f"sort_desc(({seconds}) and on ({key}) {worst})"), "s"
            ),
            Column(
                say("Usable", "可用"),
                rows(f"({usable}) and on ({key}) {worst}"),
                mappings=[yes_no(say)],
                width=90,
            ),
        ],
        width=12,
        sort_by=say("Usable", "可用"),
        descending=False,
    )


def history(say: Say) -> statetimeline.Panel:
    """States of the nodes that were not healthy in the range."""
    state = on_nodes("nodevitals:node_state", f"group by (cluster, instance) ({NODES})")
    there = f"last_over_time(nodevitals:pod_node{{{JOB}}}[$__range] @ end())"
    ill = on_nodes("max_over_time(nodevitals:node_state[$__range] @ end()) > 0", there)
    made = timeline(
        say("Nodes that were not healthy", "异常过的节点"),
        say(
            "State over time of the nodes of the job that were not healthy in the time range, at "
            "most twenty. Empty: all were healthy. Compare with the time at which the job slowed "
            "down or failed.",
            "时间范围内曾经异常的节点（最多二十个）的状态变化；空白表示一直正常。"
            "请与作业变慢或失败的时间对照。",
        ),
        over_time(f"({state}) and on (cluster, instance) topk(20, {ill})", "{{instance}}"),
        mappings=[states(say)],
        height=6,
    )
    # As in `traffic`.
    return made.max_data_points(150)


def traffic(say: Say) -> list[timeseries.Panel]:
    """Traffic of whole nodes: it has no pod."""
    nodes_of_job = f"group by (cluster, instance) ({NODES})"

    def panel(metric: str, title: str, description: str) -> timeseries.Panel:
        def query(direction: str, word: str) -> Dataquery:
            rate = f'nodevitals:{metric}:bytes_rate5m{{direction="{direction}"}}'
            return over_time(f"sum({on_nodes(rate, nodes_of_job)})", word)

        made = chart(
            title,
            description,
            query("received", say("received", "接收")),
            query("transmitted", say("transmitted", "发送")),
            unit="Bps",
            height=7,
        )
        # A point joins all nodes with all pods.
        return made.max_data_points(60)

    return [
        panel(
            "node_nvlink",
            say("NVLink traffic of its nodes", "节点 NVLink 流量"),
            say(
                "Bytes per second over all NVLinks of the nodes, also of other jobs there. It "
                "falls to 0 with the utilization: no steps are computed.",
                "节点所有 NVLink 的流量，包括同节点其他作业。与利用率同时降到 0：训练停止。",
            ),
        ),
        panel(
            "node_rdma",
            say("RDMA traffic of its nodes", "节点 RDMA 流量"),
            say(
                "Bytes per second over all RDMA ports of the nodes, also of other jobs there. "
                "Received and transmitted differ much: a port or a route loses packets.",
                "节点所有 RDMA 端口的流量，包括同节点其他作业。收发差异很大：端口或路由可能丢包。",
            ),
        ),
    ]
