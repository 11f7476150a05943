"""Conformity of the fleet: which nodes differ from their profile or from the rest of their pool, in
which fact, and what was wanted and found.

Lists are bounded: after a rollout all nodes may differ in many facts.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table, timeseries

from dashboards import conformity_pools as pools
from dashboards.board import Board, link_to
from dashboards.conformity_pools import AGENT, GROUPS, INFO, NODES, runbook
from dashboards.language import Say
from dashboards.panels import chart, number
from dashboards.queries import BY_POOL, CLUSTER, NODE, in_pool, now, over_time, rows
from dashboards.states import GREEN, GREY, ORANGE, YELLOW, mapping
from dashboards.tables import Column, grid

CONFORMS = f"nodevitals_profile_conforms{{{AGENT}}}"
CHECK = "cluster, instance, check"
DIFFERENT = in_pool(f"{INFO} and on ({CHECK}) ({CONFORMS} == 0)")
# What the profile wants and the node could not read.
UNKNOWN = in_pool(
    f'nodevitals_profile_check_info{{{AGENT}, wanted!=""}} unless on ({CHECK}) {CONFORMS}'
)


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "conformity",
        ("Conformity", "配置一致性"),
        (
            "Nodes that differ from their profile or from their pool, in which fact.",
            "与配置基线或同池节点不一致的节点及其差异项。",
        ),
        ["cluster", "pool", "instance"],
        since="now-24h",
    )
    made.alerts(f'{CLUSTER}, alertname=~"ProfileDiffers|NodesUnlikePool"')
    return made.rows(
        ("", [*numbers(say), facts(say), nodes(say)]),
        (
            say("Compared with the rest of the pool", "与同池其他节点对比"),
            [pools.few(say), pools.nodes_of_few(say)],
        ),
        (say("Over time", "趋势"), trends(say)),
    )


def numbers(say: Say) -> list[stat.Panel]:
    """Return how many nodes and facts differ now; over a day, this would read a million samples."""

    def checks(state: str) -> str:
        return in_pool(f'nodevitals_profile_checks{{{AGENT}, state="{state}"}}')

    def count(
        title: str, description: str, query: str, colour: str = GREY, width: int = 4
    ) -> stat.Panel:
        steps = ((None, GREEN), (1, colour))
        return number(title, description, now(query), "short", steps, width=width, height=3)

    def nodes_with(state: str) -> str:
        return f"count({checks(state)} > 0) or 0 * count({checks(state)})"

    unset = say(" Empty: no node has a profile.", "为空：没有节点配置基线。")
    profiles = f'nodevitals:node_pool{{{NODE}, pool=~"$pool"}}'
    without = f"{profiles} unless on (cluster, instance) nodevitals_profile_checks{{{AGENT}}}"
    unlike = f'nodevitals:fault{{{BY_POOL}, fault="nodes_unlike_pool"}}'
    return [
        count(
            say("Nodes that differ", "不一致的节点"),
            say(
                "Nodes with a fact that differs from their profile: jobs on them may fail or be "
                "slower than elsewhere.",
                "存在与配置基线不一致项的节点数：其上作业可能失败或偏慢。",
            )
            + unset,
            nodes_with("differing"),
            ORANGE,
        ),
        count(
            say("Nodes with unread facts", "有未知项的节点"),
            say(
                "Nodes on which a fact could not be read: it may be right or wrong.",
                "有配置项无法读取的节点数：其是否一致未知。",
            )
            + unset,
            nodes_with("unknown"),
        ),
        count(
            say("Nodes without a profile", "无基线的节点"),
            say(
                "Nodes whose agent compares nothing: no profile, or no data.",
                "采集器未做对比的节点数：未配置基线或没有数据。",
            ),
            f"count({without}) or 0 * count({profiles})",
        ),
        count(
            say("Facts that differ", "不一致的配置项"),
            say("Over all nodes, each fact of a node counted once.", "所有节点不一致项的总数。")
            + unset,
            f"sum({checks('differing')})",
            ORANGE,
        ),
        number(
            say("Nodes that conform", "一致的节点占比"),
            say(
                "Share of the nodes with a profile in which every fact was read and is as wanted.",
                "配置了基线的节点中，所有配置项均已读取且一致的占比。",
            )
            + unset,
            now(
                f"1 - (count(({checks('differing')} > 0) or on (cluster, instance) "
                f"({checks('unknown')} > 0)) or 0 * count({checks('differing')})) "
                f"/ count({checks('differing')})"
            ),
            "percentunit",
            ((None, ORANGE), (0.9, YELLOW), (1, GREEN)),
            width=4,
            height=3,
            decimals=0,
        ),
        count(
            say("Facts that vary in pools", "池内不同的配置项"),
            say(
                "Facts in which some nodes of a pool differ from the others, also without a "
                "profile.",
                "资源池内部分节点与其他节点不同的配置项数，无需配置基线。",
            ),
            f"count({unlike}) or 0 * count(nodevitals:pool_fact:nodes{{{BY_POOL}}})",
            YELLOW,
        ),
    ]


def facts(say: Say) -> table.Panel:
    """One row per fact, what was wanted and what was found."""
    number_of = say("Nodes", "节点数")
    return grid(
        say("Facts that differ from the profile", "与基线不一致的配置项"),
        say(
            "What was found instead of what the profile wants, and on how many nodes. On many: the "
            "profile is out of date, or a rollout is under way. Select the fact for the runbook.",
            "实际值与基线期望值不同的配置项及节点数。涉及大量节点时：基线过期或正在变更发布。"
            "点击配置项打开处理手册。",
        ),
        [
            Column(say("Fact", "配置项"), "check", link=runbook(say, "ProfileDiffers"), width=200),
            Column(say("Wanted", "期望值"), "wanted"),
            Column(say("Found", "实际值"), "found"),
            Column(
                number_of,
                rows(f"topk({GROUPS}, count by (check, wanted, found) ({DIFFERENT}))"),
                "short",
                width=80,
            ),
        ],
        width=11,
        height=11,
        sort_by=number_of,
        empty=say("No fact differs", "无不一致项"),
    )


def nodes(say: Say) -> table.Panel:
    """One row per node and fact that differs, or could not be read."""
    labels = "cluster, instance, check, wanted, found"
    states = f"0 * {DIFFERENT} + 2 or 0 * {UNKNOWN} + 1"
    node, state = say("Node", "节点"), say("State", "状态")
    return grid(
        say("Nodes that differ from their profile", "与基线不一致的节点"),
        say(
            f"At most {NODES} rows: choose a pool or a node for the others. Unknown: the fact "
            "could not be read. On the node: nodevitals profile show --differing.",
            f"最多 {NODES} 行，其余请按资源池或节点筛选。未知：该项无法读取。"
            "在节点上查看：nodevitals profile show --differing。",
        ),
        [
            Column(node, "instance", link=link_to(say, "hardware", node, instance=node), width=130),
            Column(
                state,
                rows(f"topk({NODES}, max by ({labels}) ({states}))"),
                mappings=[
                    mapping(
                        {
                            "2": (say("differs", "不一致"), ORANGE),
                            "1": (say("unknown", "未知"), GREY),
                        }
                    )
                ],
                width=90,
            ),
            Column(say("Fact", "配置项"), "check", width=180),
            Column(say("Wanted", "期望值"), "wanted"),
            Column(say("Found", "实际值"), "found"),
        ],
        width=13,
        height=11,
        sort_by=state,
        empty=say("All nodes conform", "所有节点一致"),
    )


def trends(say: Say) -> list[timeseries.Panel]:
    """Return nodes and facts that differ over time, from what rules record."""
    member = f'nodevitals:node_pool{{{CLUSTER}, pool=~"$pool"}}'
    differ = f'nodevitals:fault{{{NODE}, fault="profile_differs"}}'
    unlike = f'nodevitals:fault{{{BY_POOL}, fault="nodes_unlike_pool"}}'
    empty = say(" Empty: none, which is good.", "为空：没有差异。")
    return [
        chart(
            say("Nodes that differ over time", "不一致节点数趋势"),
            say(
                "By pool. A step up: a rollout or a repair changed something.",
                "按资源池统计。突然上升：变更发布或维修改变了配置。",
            )
            + empty,
            over_time(
                f"count by (pool) ({differ} * on (cluster, instance) group_left (pool) {member})",
                "{{pool}}",
            ),
            unit="short",
            stacked=True,
        ),
        chart(
            say("Facts unlike the pool over time", "与同池不同的配置项趋势"),
            say(
                "Nodes that differ from the rest of their pool, by fact; the ten with most.",
                "与同池其他节点不同的节点数，按配置项统计，取最多的十项。",
            )
            + empty,
            over_time(f"topk(10, sum by (check) ({unlike}))", "{{check}}"),
            unit="short",
        ),
    ]
