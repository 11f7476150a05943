"""The rows of the Fabric dashboard on whole paths: collectives, and reachability between nodes."""

from __future__ import annotations

from grafana_foundation_sdk.builders import statetimeline, table, timeseries

from dashboards.board import link_to
from dashboards.fabric_queries import in_place
from dashboards.language import Say
from dashboards.panels import chart, timeline
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW, yes_no
from dashboards.tables import Column, grid

COLLECTIVE = f'job="nodevitals", {CLUSTER}'
SHARE_REACHED = ((None, RED), (0.5, ORANGE), (0.99, GREEN))


def collectives(say: Say) -> list[statetimeline.Panel | timeseries.Panel | table.Panel]:
    """Return the row on collectives, which `nodevitals fabric collective --push` reports."""
    empty = say(
        " Empty: none was pushed (nodevitals fabric collective --push URL).",
        "为空：没有推送过结果（nodevitals fabric collective --push URL）。",
    )
    name = "{{tool}} {{operation}}, {{instance}}"
    success = f"nodevitals_fabric_collective_success{{{COLLECTIVE}}}"
    bus = f"nodevitals_fabric_bus_bandwidth_bytes_per_second{{{COLLECTIVE}}}"
    return [
        timeline(
            say("Result of collectives", "集合通信测试结果"),
            say(
                "Whether the last collective succeeded with correct values, by the node that "
                "started it; a result lasts until the next. After a failure: repeat it with half "
                "of the nodes until the one that fails is found.",
                "最近一次集合通信是否成功且结果正确，按发起节点显示；结果保持到下一次为止。失败"
                "后：用一半节点重复测试，直到找出故障节点。",
            )
            + empty,
            over_time(f"max by (cluster, tool, operation, instance) ({success})", name),
            mappings=[yes_no(say)],
            width=12,
        ),
        chart(
            say("Bus bandwidth of collectives", "集合通信总线带宽"),
            say(
                "By operation, number of ranks and message size: comparable between sizes of a "
                "job. A step down with the same ranks: look at the slowest pairs above.",
                "按操作、rank 数和消息大小显示，可在不同规模之间比较。rank 数不变而带宽下降：请看"
                "上方最慢的节点对。",
            )
            + empty,
            over_time(
                f"max by (tool, operation, ranks, message_bytes) ({bus})",
                "{{tool}} {{operation}}, {{ranks}} ranks, {{message_bytes}} B",
            ),
            unit="Bps",
        ),
        last_collectives(say, success, bus, empty),
    ]


def last_collectives(say: Say, success: str, bus: str, empty: str) -> table.Panel:
    keys = "cluster, instance, tool, operation"
    seconds = f"(time() - push_time_seconds{{{COLLECTIVE}}})"
    joined = f"0 * {success} + on (cluster, instance, collective) group_left () {seconds}"
    age = f"max by ({keys}) ({joined})"
    when = say("Age", "距今")
    return grid(
        say("Last collectives", "最近的集合通信测试"),
        say(
            "Last result of each operation and starting node, and how long ago it was pushed (from "
            "the Pushgateway). An old result says nothing about the fabric of today.",
            "每种操作、每个发起节点的最近结果及其推送时间（取自 Pushgateway）。过旧的结果不能说明"
            "当前网络状态。",
        )
        + empty,
        [
            Column(say("Operation", "操作"), "operation"),
            Column(say("Tool", "工具"), "tool"),
            Column(say("Started on", "发起节点"), "instance"),
            Column(
                say("Succeeded", "成功"),
                rows(f"max by ({keys}) ({success})"),
                mappings=[yes_no(say)],
            ),
            Column(say("Bus bandwidth", "总线带宽"), rows(f"max by ({keys}) ({bus})"), "Bps"),
            Column(when, rows(age), "s", steps=((None, GREEN), (7 * 86400, YELLOW))),
        ],
        sort_by=when,
        descending=False,
        height=7,
    )


def peers(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row on the probe `peers`."""
    node = say("Node", "节点")
    empty = say(" Empty: the probe peers is not configured.", "为空：未配置 peers 探针。")
    ratio = f'nodevitals:peer:reached_ratio{{job="nodevitals", {CLUSTER}}}'
    keys = "cluster, peer, port, protocol"
    worst = f"bottomk(50, {ratio} < 1)"
    testers = f'nodevitals:peer:testers{{job="nodevitals", {CLUSTER}}}'
    reached = in_place(f'nodevitals:node_peers:reached_ratio{{job="nodevitals", {CLUSTER}}}')
    share = say("Reached by", "连通占比")
    reaches = say("Reaches", "可达占比")
    trip = f'nodevitals_peer_round_trip_seconds{{job="nodevitals", {CLUSTER}}}'
    reasons = f'nodevitals_peer_failure{{job="nodevitals", {CLUSTER}}}'
    return [
        chart(
            say("Pairs that do not connect", "无法建立连接的节点对"),
            say(
                "Failed connections between nodes by reason. refused: the service on the peer; "
                "timeout, unreachable: network or a dead node; name: DNS; banner, slow, login: "
                "sshd or the session; key_refused, host_key: keys.",
                "按原因统计的节点间连接失败数。refused：对端服务；timeout、unreachable：网络或节"
                "点宕机；name：DNS；banner、slow、login：sshd 或会话；key_refused、host_key："
                "密钥。",
            )
            + empty,
            over_time(f"count by (reason) ({in_place(reasons)})", "{{reason}}"),
            unit="short",
            width=8,
            stacked=True,
        ),
        grid(
            say("Peers that some nodes do not reach", "部分节点无法连通的对端"),
            say(
                "Share of the nodes that test a peer and reach it; empty is good. Under one "
                "half: the peer itself; above: a path.",
                "测试该对端的节点中能连通的占比；为空即正常。低于一半：对端本身有问题；高于一半："
                "某条路径有问题。",
            ),
            [
                Column(say("Peer", "对端"), "peer"),
                Column(say("Port", "端口"), "port"),
                Column(say("Protocol", "协议"), "protocol"),
                Column(share, rows(f"max by ({keys}) ({worst})"), "percentunit", SHARE_REACHED),
                Column(
                    say("Tested by", "测试节点数"),
                    rows(f"max by ({keys}) ({testers} and {worst})"),
                    "short",
                ),
            ],
            width=8,
            height=8,
            sort_by=share,
            descending=False,
        ),
        grid(
            say("Nodes that do not reach all peers", "无法连通所有对端的节点"),
            say(
                "Share of its peers that the node reaches, and the median time to connect to "
                "those. Under one half: the node's own network, route or firewall. Empty is good.",
                "该节点能连通的对端占比，以及连通对端的中位建连时间。低于一半：节点自身的网络、路"
                "由或防火墙有问题。为空即正常。",
            ),
            [
                Column(node, "instance", link=link_to(say, "node", node, instance=node)),
                Column(
                    reaches,
                    rows(f"max by (cluster, instance) (bottomk(50, ({reached}) < 1))"),
                    "percentunit",
                    SHARE_REACHED,
                ),
                Column(
                    say("Round trip", "往返时间"),
                    rows(
                        f"quantile by (cluster, instance) (0.5, {trip}) and on (cluster, instance) "
                        f"bottomk(50, ({reached}) < 1)"
                    ),
                    "s",
                ),
            ],
            width=8,
            height=8,
            sort_by=reaches,
            descending=False,
        ),
    ]
