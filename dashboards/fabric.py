"""The fabric: which nodes and paths between nodes are slow, and whether the tests cover them."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries

from dashboards import fabric_checks, fabric_outages, fabric_paths, fabric_reach, fabric_tests
from dashboards.board import Board, link_to
from dashboards.crossed import crossed
from dashboards.fabric_queries import (
    CHOSEN,
    in_place,
    matrix,
)
from dashboards.language import Say
from dashboards.panels import chart, number
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, failed, severities
from dashboards.tables import Column, grid

MATRIX_NODES = 34
MATRIX_WORST = 2
RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "fabric",
        ("Fabric", "网络互联"),
        (
            "Bandwidth and latency tests between nodes, collectives, and reachability.",
            "节点间带宽与时延测试、集合通信测试以及连通性。",
        ),
        ["cluster", "pool", "leaf", "tool", "operation"],
        since="now-24h",
        check="/checks/new?kind=matrix",
    )
    made.alerts(f'{CLUSTER}, component="fabric"')
    return made.rows(
        ("", [*(_faulty(say, *one) for one in _faults(say)), *fabric_tests.overview(say)]),
        ("", [alerts(say), pairs_matrix(say)]),
        (
            say("Nodes and paths", "节点与路径"),
            fabric_paths.tables(say),
        ),
        (
            say("Bandwidth and latency over time", "带宽与时延趋势"),
            [slowest_nodes(say), bandwidth(say), latency_over_time(say), fabric_paths.latency(say)],
        ),
        (say("Tests", "测试"), fabric_tests.tests(say)),
        (say("Cost of testing", "测试开销"), fabric_tests.cost(say)),
        (say("Checks", "检测"), fabric_checks.checks(say)),
        (say("Collectives", "集合通信"), fabric_reach.collectives(say)),
        (say("Reachability between nodes", "节点间连通性"), fabric_reach.peers(say)),
        (say("Outages of ports", "端口中断"), fabric_outages.outages(say)),
    )


def _faults(say: Say) -> list[tuple[str, str, str]]:
    return [
        (
            "node_fabric_slow",
            say("Slow nodes", "慢节点"),
            say(
                "Nodes whose median bandwidth is far below that of the others: every job on them "
                "is slow. Drain them between jobs, then check port rate, PCIe width and cable.",
                "中位带宽明显低于其他节点的节点数：其上的作业都会变慢。请在作业间隙排空节点，再检"
                "查端口速率、PCIe 宽度和线缆。",
            ),
        ),
        (
            "node_fabric_unreachable",
            say("Unreachable nodes", "不可达节点"),
            say(
                "Nodes that most of their partners do not reach on the fabric: jobs on them "
                "hang. Check that the fabric interface is up and has its address.",
                "大多数对端在互联网络上无法连通的节点数：其上的作业会挂起。请检查网络接口是否启"
                "用、地址是否正确。",
            ),
        ),
        (
            "bandwidth_outlier",
            say("Nodes on slow paths", "慢路径上的节点"),
            say(
                "Nodes with a pair that is slow in both directions while both nodes are normal "
                "with others: the path between them is at fault. See the tables by leaf and by "
                "switch.",
                "存在双向都慢、而两端与其他节点均正常的节点对：故障在两者之间的路径。请看按 Leaf "
                "和按交换机的表。",
            ),
        ),
        (
            "bandwidth_below_baseline",
            say("Below their baseline", "低于基线的节点"),
            say(
                "Nodes slower than configured, or than the last day, although no slower than "
                "others: look for what changed on the fabric, or for other load on it.",
                "比配置值或最近一天更慢、但不比其他节点慢的节点数：请查网络近期变更，或是否有其他"
                "流量。",
            ),
        ),
        (
            "latency_high",
            say("High latency", "时延偏高的节点"),
            say(
                "Nodes whose median latency is far above the others': check CPU governor and "
                "C-states, then PCIe, then congestion on the leaf.",
                "中位时延明显高于其他节点的节点数：请先查 CPU 调频与 C-state，再查 PCIe，最后查 "
                "Leaf 拥塞。",
            ),
        ),
        (
            "bandwidth_test_stale",
            say("Not tested", "未测试的节点"),
            say(
                "Nodes without a successful test for too long: a slow link would not be "
                "detected. See failures and skips by reason below.",
                "长时间没有成功测试的节点数：链路变慢不会被发现。请看下方按原因统计的失败与跳过。",
            ),
        ),
    ]


def _faulty(say: Say, fault: str, title: str, description: str) -> stat.Panel:
    faulty = in_place(f'nodevitals:fault{{{CLUSTER}, fault="{fault}"}}')
    none = f"0 * sum(nodevitals:fabric:members{{{CLUSTER}}})"
    return number(
        title,
        description + say(" Empty: no fabric tests are configured.", "为空：未配置互联测试。"),
        over_time(f"count(group by (cluster, instance) ({faulty})) or {none}"),
        unit="short",
        steps=((None, GREEN), (1, ORANGE)),
    )


def alerts(say: Say) -> table.Panel:
    """Alerts of the fabric that are pending or firing."""
    alert = say("Alert", "告警")
    node = say("Node", "节点")
    fabric = f'ALERTS_FOR_STATE{{{CLUSTER}, component="fabric"}}'
    peers = f'ALERTS_FOR_STATE{{{CLUSTER}, fault=~"peer_unreachable|node_reaches_nobody"}}'
    keys = "cluster, alertname, severity, instance, source, peer, device, operation, action"
    fleet = f'ALERTS_FOR_STATE{{{CLUSTER}, component="fabric", scope="fleet"}}'
    since = f"1000 * max by ({keys}) ({in_place(fabric)} or {fleet} or {peers})"
    return grid(
        say("Alerts of the fabric", "互联告警"),
        say(
            "Pending and firing alerts, newest first; empty is good. The alert's name leads to "
            "its runbook. Several nodes of one leaf: look at the leaf first.",
            "等待中和触发中的告警，最新在前；为空即正常。点击告警名查看处理手册。同一 Leaf 的多个"
            "节点同时告警时，先查 Leaf。",
        ),
        [
            Column(
                alert, "alertname", link=(alert, f'{RUNBOOKS}/${{__data.fields["{alert}"]}}.md')
            ),
            Column(say("Since", "开始时间"), rows(since), unit="dateTimeFromNow"),
            Column(say("Severity", "级别"), "severity", mappings=[severities(say)]),
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Source", "源"), "source"),
            Column(say("Peer", "对端"), "peer"),
            Column(say("Device", "设备"), "device"),
            Column(say("Operation", "操作"), "operation"),
            Column(say("Action", "处理动作"), "action"),
        ],
        sort_by=say("Since", "开始时间"),
        height=6,
    )


def pairs_matrix(say: Say) -> table.Panel:
    """Each source in a row, each peer in a column."""
    return crossed(
        say("Bandwidth of pairs relative to the median", "节点对带宽与中位值之比"),
        say(
            "Source in rows, peer in columns: last result of each pair. Of the chosen pools and "
            f"leaves, the {MATRIX_WORST} nodes with the slowest pairs and their partners, "
            f"{MATRIX_NODES} nodes in all: choose a leaf to see all of it. A red row and column: "
            "that node. A red block: the path between two leaves. One red cell: the path between "
            "two nodes. Black: the test failed. Empty: not tested lately. It needs four nodes or "
            "an expected bandwidth; choose one cluster.",
            "行为源节点，列为对端：每一对节点的最近结果。显示所选资源池和 Leaf 中最慢的 "
            f"{MATRIX_WORST} 个节点及其对端，共 {MATRIX_NODES} 个节点（选定一个 Leaf 可查看其全部"
            "节点）。整行整列变红：该节点有问题；成块变红：两个 Leaf 之间的路径有问题；单格变红："
            "两个节点之间的路径有问题；黑色：测试失败；空白：近期未测试。需要至少四个节点或已配置"
            "期望带宽；请只选一个集群。",
        ),
        rows(matrix(MATRIX_NODES, MATRIX_WORST)),
        row="source",
        column="peer",
        unit="percentunit",
        steps=fabric_paths.SHARE,
        mappings=[failed(say)],
    )


def slowest_nodes(say: Say) -> timeseries.Panel:
    labels = "{{operation}} {{device}} {{message_bytes}} B"
    return chart(
        say("Slowest nodes against the median", "最慢节点与中位值之比"),
        say(
            "Median bandwidth of the slowest node, and of the node at the lowest tenth, against "
            "all nodes of the cluster. Only the minimum is low: single nodes. Both fall: a "
            "switch or a pool. The dashed line is the limit of the alert as shipped.",
            "最慢节点以及最低十分位节点的中位带宽与集群中位值之比。只有最小值低：个别节点；两者都"
            "下降：交换机或整个资源池。虚线为默认告警阈值。",
        ),
        over_time(
            f"nodevitals:fabric:bandwidth_ratio:min{{{CHOSEN}}}",
            say("slowest, ", "最慢，") + labels,
        ),
        over_time(
            f"nodevitals:fabric:bandwidth_ratio:p10{{{CHOSEN}}}",
            say("lowest tenth, ", "最低十分位，") + labels,
        ),
        unit="percentunit",
        steps=((None, RED), (0.8, GREEN)),
    )


def bandwidth(say: Say) -> timeseries.Panel:
    return chart(
        say("Median bandwidth of the cluster", "集群中位带宽"),
        say(
            "Median over all nodes, by test. A step down: routing, switch firmware, or other "
            "load on the fabric. It needs four nodes.",
            "按测试统计的所有节点中位带宽。突然下降：路由、交换机固件或其他流量。至少需要四个节"
            "点。",
        ),
        over_time(
            f"nodevitals:fabric:bandwidth{{{CHOSEN}}}",
            "{{operation}} {{device}} {{message_bytes}} B",
        ),
        unit="Bps",
    )


def latency_over_time(say: Say) -> timeseries.Panel:
    labels = "{{operation}} {{device}} {{message_bytes}} B"
    return chart(
        say("Latency of the cluster", "集群时延"),
        say(
            "Half of the round trip: median of all nodes, and the 99th percentile of messages "
            "(median of all pairs). Only the 99th percentile rises: congestion or CPU power "
            "states.",
            "往返时间的一半：所有节点的中位值，以及消息的 99 分位（所有节点对的中位值）。仅 99 分"
            "位上升：拥塞或 CPU 节能状态。",
        ),
        over_time(f"nodevitals:fabric:latency{{{CHOSEN}}}", say("median, ", "中位，") + labels),
        over_time(f"nodevitals:fabric:latency_p99{{{CHOSEN}}}", "p99, " + labels),
        unit="s",
    )
