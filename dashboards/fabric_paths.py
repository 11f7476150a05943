"""The tables of the Fabric dashboard: slow nodes, slow pairs, and the leaves and switches that they
share.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import table

from dashboards.board import link_to
from dashboards.fabric_queries import (
    BANDWIDTH,
    CHOSEN,
    LATENCY,
    LATENCY_P99,
    LATENCY_RANK,
    LATENCY_RATIO,
    NODE_BANDWIDTH,
    NODE_RANK,
    NODE_RATIO,
    NODES,
    PAIR_RATIO,
    SLOW,
    as_peer,
    as_source,
    leaf_of_nodes,
    of_nodes,
    of_slowest_pairs,
    opposite_pairs,
    switch_of_nodes,
)
from dashboards.language import Say
from dashboards.queries import rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW
from dashboards.tables import Column, grid

SHARE = ((None, RED), (0.5, ORANGE), (0.8, YELLOW), (0.9, GREEN))
MEDIAN = "quantile by (cluster, node, tool, operation, device, message_bytes)"
FACTOR = ((None, GREEN), (1.5, YELLOW), (3, RED))


def tables(say: Say) -> list[table.Panel]:
    """Return the tables of slow nodes, pairs, leaves and switches."""
    return [nodes(say), worst_pairs(say), by_leaf(say), by_switch(say)]


def _test_columns(say: Say) -> list[Column]:
    return [
        Column(say("Tool", "工具"), "tool"),
        Column(say("Operation", "操作"), "operation"),
        Column(say("Device", "设备"), "device"),
        Column(say("Message bytes", "消息字节数"), "message_bytes"),
    ]


def nodes(say: Say) -> table.Panel:
    """Medians of the slowest nodes."""
    worst = f"bottomk(50, {NODE_RANK} and on (cluster, node) {NODES})"
    per_node = f"{{{CHOSEN}}}"
    node = say("Node", "节点")
    ratio = say("Of the median", "与中位值之比")

    def column(title: str, value: str, unit: str = "Bps", **more: Any) -> Column:
        return Column(title, rows(of_nodes(value, worst)), unit=unit, **more)

    return grid(
        say("Slowest nodes", "最慢的节点"),
        say(
            "The 50 slowest nodes by test: median bandwidth over all partners, as source and as "
            "peer. Slow only as source or only as peer: one direction of its link. Baseline: the "
            "configured bandwidth, or the median of the last day. With fewer than three partners "
            "the fault may be theirs.",
            "每项测试最慢的 50 个节点：与所有对端的中位带宽，分别作为源和作为对端。仅作为源或仅作"
            "为对端时慢：链路的一个方向有问题。基线：配置的带宽，或最近一天的中位值。对端少于三个"
            "时，问题可能在对端。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            column(ratio, NODE_RATIO, "percentunit", steps=SHARE),
            column(say("Median", "中位带宽"), NODE_BANDWIDTH),
            column(say("As source", "作为源"), f"{MEDIAN} (0.5, {as_source(BANDWIDTH)})"),
            column(say("As peer", "作为对端"), f"{MEDIAN} (0.5, {as_peer(BANDWIDTH)})"),
            column(
                say("Best pair", "最快一对"), f"nodevitals:fabric_node:bandwidth_best{per_node}"
            ),
            column(say("Baseline", "基线"), f"nodevitals:fabric_node:bandwidth_baseline{per_node}"),
            column(say("Expected", "期望"), f"nodevitals:fabric_node:bandwidth_expected{per_node}"),
            column(
                say("Partners", "对端数"), f"nodevitals:fabric_node:partners{per_node}", "short"
            ),
            *_test_columns(say),
        ],
        sort_by=ratio,
        descending=False,
    )


def worst_pairs(say: Say) -> table.Panel:
    """The slowest pairs, and each in the other direction."""
    count = 20
    node = say("Source", "源")
    ratio = say("Of the median", "与中位值之比")
    return grid(
        say("Slowest pairs", "最慢的节点对"),
        say(
            f"The {count} slowest pairs of those below 90 % by their last test; empty is good. "
            "Slow in both directions: the path or one node; in one only: often congestion during "
            "that test. The same node in many rows: that node. Empty in the other direction: not "
            "tested lately.",
            f"按最近一次测试最慢的 {count} 对节点。双向都慢：路径或其中一个节点有问题；仅单向慢："
            "多为测试时的拥塞。同一节点多次出现：问题在该节点。反向为空：近期未测试。",
        ),
        [
            Column(node, "source"),
            Column(say("Peer", "对端"), "peer"),
            Column(ratio, rows(of_slowest_pairs(count, PAIR_RATIO)), "percentunit", SHARE),
            Column(
                say("Other direction", "反向"),
                rows(opposite_pairs(count)),
                "percentunit",
                SHARE,
            ),
            Column(say("Bandwidth", "带宽"), rows(of_slowest_pairs(count, BANDWIDTH)), "Bps"),
            *_test_columns(say),
            Column(
                say("Instance", "实例"),
                "instance",
                link=link_to(say, "node", say("Node", "节点"), instance=say("Instance", "实例")),
            ),
        ],
        sort_by=ratio,
        descending=False,
    )


def _by_domain(
    say: Say, label: str, name: str, title: str, description: str, keys: str, places: str
) -> table.Panel:
    ratios = f"min by ({keys}) ({NODE_RATIO})"
    pairs = f"min by ({keys}) (nodevitals:fabric_node:pair_ratio:min{{{CHOSEN}}})"

    def counted(expression: str) -> str:
        return (
            f"count by (cluster, {label}) (({expression}) * on ({keys}) group_left ({label}) "
            f"{places})"
        )

    nodes, slow = counted(ratios), counted(f"{ratios} < {SLOW}")
    share = say("Share of nodes slow", "慢节点占比")
    return grid(
        title,
        description,
        [
            Column(name, label),
            Column(
                share,
                rows(f"(({slow}) or 0 * ({nodes})) / ({nodes})"),
                "percentunit",
                ((None, GREEN), (0.3, YELLOW), (0.6, RED)),
            ),
            Column(
                say("Nodes with a slow pair", "有慢节点对的节点"),
                rows(counted(f"{pairs} < {SLOW}")),
                "short",
            ),
            Column(
                say("Nodes with a failed pair", "有失败节点对的节点"),
                rows(counted(f"{pairs} == 0")),
                "short",
            ),
            Column(say("Nodes", "节点"), rows(nodes), "short"),
            Column(say("Cluster", "集群"), "cluster"),
        ],
        width=12,
        sort_by=share,
    )


def by_leaf(say: Say) -> table.Panel:
    return _by_domain(
        say,
        "leaf",
        say("Leaf", "Leaf"),
        say("Slow nodes by leaf", "各 Leaf 的慢节点"),
        say(
            "Nodes by leaf (label leaf of the configuration), and those that are slow. Most "
            "nodes of one leaf: its uplinks. One node: that node, and nodes of other leaves have "
            "a slow pair with it. Slow pairs at many nodes of two leaves, and no slow node: the "
            "path between these two. Empty: no node has the label.",
            "按 Leaf（配置中的 leaf 标签）统计节点及其中的慢节点。某个 Leaf 的多数节点都慢：其上"
            "行链路有问题；只有一个节点慢：该节点有问题，其他 Leaf 的节点也会出现慢节点对；两个 "
            "Leaf 的许多节点有慢节点对而没有慢节点：这两者之间的路径有问题。为空：节点没有该标"
            "签。",
        ),
        "cluster, node",
        leaf_of_nodes(),
    )


def by_switch(say: Say) -> table.Panel:
    return _by_domain(
        say,
        "switch",
        say("Switch", "交换机"),
        say("Slow nodes by switch", "各交换机的慢节点"),
        say(
            "The same by switch of the tested port (probe switches). Most nodes of one switch: "
            "check its errors, congestion and uplinks. Empty: the probe switches is not "
            "configured.",
            "按被测端口所连交换机（switches 探针）的同样统计。某台交换机的多数节点都慢：检查其错"
            "误、拥塞与上行链路。为空：未配置 switches 探针。",
        ),
        "cluster, node, device",
        switch_of_nodes(),
    )


def latency(say: Say) -> table.Panel:
    """Nodes with the highest latency."""
    worst = f"topk(50, {LATENCY_RANK} and on (cluster, node) {NODES})"
    node = say("Node", "节点")
    factor = say("Of the median", "与中位值之比")
    return grid(
        say("Highest latency", "时延最高的节点"),
        say(
            "The 50 nodes with the highest median latency over all partners, by test. Above 1.5 "
            "times the cluster's median and 5 us it is a fault: check CPU governor and C-states, "
            "then PCIe.",
            "每项测试中位时延最高的 50 个节点。超过集群中位值 1.5 倍且大于 5 us 即为故障：先查 "
            "CPU 调频与 C-state，再查 PCIe。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(factor, rows(of_nodes(LATENCY_RATIO, worst)), steps=FACTOR, decimals=2),
            Column(say("Median", "中位时延"), rows(of_nodes(LATENCY, worst)), "s"),
            Column("p99", rows(of_nodes(LATENCY_P99, worst)), "s"),
            *_test_columns(say),
        ],
        width=12,
        sort_by=factor,
    )
