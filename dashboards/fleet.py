"""The fleet: how many nodes and devices are healthy, which are not, and what to do."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table

from dashboards.board import Board, link_to
from dashboards.language import Say
from dashboards.panels import Column, grid, number
from dashboards.queries import CLUSTER, in_pool, over_time, rows
from dashboards.states import GREEN, RED, states


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "fleet",
        ("Fleet", "集群总览"),
        ("Health of all nodes and devices.", "所有节点和设备的健康状态。"),
        ["cluster", "pool"],
    )
    made.alerts(f'{CLUSTER}, severity="critical"')
    return made.rows(("", [lost_nodes(say), components(say)]))


def lost_nodes(say: Say) -> stat.Panel:
    return number(
        say("Nodes lost", "失联节点"),
        say("Number of nodes that nothing reaches.", "任何途径均无法连通的节点数。"),
        over_time(f'sum(nodevitals:nodes:count{{{CLUSTER}, pool=~"$pool", state="lost"}})'),
        steps=((None, GREEN), (1, RED)),
    )


def components(say: Say) -> table.Panel:
    """One row per node that is not healthy, one column per component."""
    node = say("Node", "节点")
    kinds = {
        "node": say("Node state", "节点状态"),
        "accelerator": say("Accelerators", "加速卡"),
        "rdma": say("RDMA", "RDMA"),
        "network": say("Network", "网络"),
        "mount": say("Mounts", "挂载点"),
        "fabric": say("Fabric tests", "带宽测试"),
        "agent": say("Agent", "采集器"),
    }
    faulty = f"nodevitals:node_state{{{CLUSTER}}} > 0"
    columns = [Column(node, "instance", link=link_to(say, "node", node, instance=node))]
    for component, title in kinds.items():
        state = f'nodevitals:component_state{{{CLUSTER}, component="{component}"}}'
        chosen = (
            f"sum by (cluster, instance) ({in_pool(state)}) and on (cluster, instance) ({faulty})"
        )
        columns.append(Column(title, rows(chosen), mappings=[states(say)]))
    return grid(
        say("Nodes that are not healthy", "异常节点"),
        say(
            "State of each component; empty where a component is not monitored.",
            "各组件状态；空白表示该组件未监控。",
        ),
        columns,
        sort_by=kinds["node"],
    )
