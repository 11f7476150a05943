"""The row of the Conformity dashboard on facts that few nodes of a pool have, also without a
profile.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.node_summary import RUNBOOKS
from dashboards.queries import BY_POOL, CLUSTER, NODE, rows
from dashboards.tables import Column, grid

AGENT = f'job="nodevitals", {NODE}'
INFO = f"nodevitals_profile_check_info{{{AGENT}}}"
FACT = "cluster, pool, check"
# Rows of tables at most: by fact, and by node.
GROUPS, NODES = 50, 100
MOST = f"nodevitals:pool_fact:most{{{BY_POOL}}}"
# What few nodes of a pool have, where most have something else.
FEW = (
    f"(nodevitals:pool_fact:nodes{{{BY_POOL}}} unless on ({FACT}, found) {MOST} "
    f"and on ({FACT}) {MOST})"
)


def runbook(say: Say, name: str) -> tuple[str, str]:
    """Return a link to the runbook of an alert."""
    return say("Runbook", "处理手册"), f"{RUNBOOKS}/{name}.md"


def few(say: Say) -> table.Panel:
    """One row per fact that few nodes of a pool have."""
    usual = f'label_replace(0 * {MOST} + 1, "usual", "$1", "found", "(.+)")'
    number_of = say("Nodes", "节点数")
    compared = (
        f"topk({GROUPS}, max by ({FACT}, found, usual) "
        f"({FEW} * on ({FACT}) group_left (usual) {usual}))"
    )
    return grid(
        say("Facts unlike the pool", "与同池不同的配置项"),
        say(
            "What some nodes of a pool have, where most have something else: no profile is needed. "
            "Select the fact for the runbook.",
            "资源池中少数节点的取值，与多数节点不同；无需配置基线。点击配置项打开处理手册。",
        ),
        [
            Column(say("Pool", "资源池"), "pool", width=120),
            Column(say("Fact", "配置项"), "check", link=runbook(say, "NodesUnlikePool"), width=180),
            Column(say("Most have", "多数为"), "usual"),
            Column(say("Some have", "少数为"), "found"),
            Column(number_of, rows(compared), "short", width=80),
        ],
        width=13,
        height=9,
        sort_by=number_of,
        empty=say("All nodes of a pool are alike", "同池节点一致"),
    )


def nodes_of_few(say: Say) -> table.Panel:
    """One row per node and fact that few nodes of its pool have."""
    labels = "cluster, instance, pool, check, found"
    pools = f'nodevitals:node_pool{{{CLUSTER}, pool=~"$pool"}}'
    placed = f"{INFO} * on (cluster, instance) group_left (pool) {pools}"
    node = say("Node", "节点")
    return grid(
        say("Nodes unlike their pool", "与同池不同的节点"),
        say(
            f"At most {NODES} rows. Compare two nodes: nodevitals profile diff.",
            f"最多 {NODES} 行。比较两个节点：nodevitals profile diff。",
        ),
        [
            Column(node, "instance", link=link_to(say, "hardware", node, instance=node), width=130),
            Column(say("Pool", "资源池"), "pool", width=120),
            Column(say("Fact", "配置项"), "check", width=180),
            Column(
                "",
                rows(f"topk({NODES}, group by ({labels}) ({placed} and on ({FACT}, found) {FEW}))"),
            ),
            Column(say("Found", "实际值"), "found"),
        ],
        width=11,
        height=9,
        sort_by=node,
        descending=False,
        empty=say("No node", "无"),
    )
