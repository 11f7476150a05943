"""The rows of the Fabric dashboard on the tests themselves: coverage, failures, skips and cost;
collectives; and reachability between nodes.
"""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import stat, table, timeseries

from dashboards.board import link_to
from dashboards.fabric_queries import CHOSEN, NODES, in_place
from dashboards.language import Say
from dashboards.panels import chart, number
from dashboards.queries import CLUSTER, now, over_time, rows
from dashboards.states import GREEN, RED, YELLOW, yes_no
from dashboards.tables import Column, grid

RECORDED = f'{CHOSEN}, pool=~"$pool"'
COLLECTIVE = f'job="nodevitals", {CLUSTER}'


def _per_hour(metric: str, by: str, matchers: str = "") -> str:
    """Return events per hour; the average where a step of the graph is longer than a slot."""
    selector = f"{metric}{{{RECORDED}{matchers}}}"
    return f"3600 * sum by ({by}) (avg_over_time({selector}[$__rate_interval]))"


def overview(say: Say) -> list[stat.Panel]:
    """Return the coverage as numbers."""
    return [tested_nodes(say), tested_pairs(say)]


def tested_nodes(say: Say) -> stat.Panel:
    age = f"max by (cluster, instance) (nodevitals:fabric_since_success:seconds{{{CLUSTER}}})"
    limit = (
        "max by (cluster, instance) (nodevitals_fabric_slot_seconds"
        f'{{job="nodevitals", {CLUSTER}}}) * on () group_left () '
        'nodevitals:threshold{threshold="fabric_stale_slots"}'
    )
    members = in_place(f'nodevitals_fabric_members{{job="nodevitals", {CLUSTER}}}')
    fresh = in_place(f"{age} < on (cluster, instance) ({limit})")
    return number(
        say("Nodes tested", "已测试节点"),
        say(
            "Share of the nodes with fabric tests that started a successful one within 12 slots "
            "(two hours). While jobs run this falls, as tests wait for idle nodes: see skips by "
            "reason.",
            "在 12 个时隙（两小时）内发起过成功测试的节点占比。作业运行期间会下降，因为测试要等节"
            "点空闲：请看按原因统计的跳过。",
        ),
        now(f"(count({fresh}) or 0 * count({members})) / count({members})"),
        unit="percentunit",
        steps=((None, RED), (0.5, YELLOW), (0.9, GREEN)),
    )


def tested_pairs(say: Say) -> stat.Panel:
    tested = f"count by (cluster) (nodevitals:fabric_pair:tested{{{CLUSTER}}})"
    members = f"max by (cluster) (nodevitals:fabric:members{{{CLUSTER}}})"
    return number(
        say("Pairs with a result", "有结果的节点对"),
        say(
            "Tested directions of all pairs of the cluster. Each node keeps the results of its "
            "eight newest partners, so this is small in a large cluster: eight of 999 at 1,000 "
            "nodes. For information; it takes no part in any alert.",
            "集群内所有节点对（按方向计）中有结果的占比。每个节点只保留最近八个对端的结果，因此大"
            "集群中该值很小：1000 个节点时为 999 分之 8。仅供参考，不触发告警。",
        ),
        over_time(f"sum({tested}) / sum({members} * ({members} - 1))"),
        unit="percentunit",
        decimals=1,
    )


def tests(say: Say) -> list[timeseries.Panel | table.Panel]:
    """Return the row on outcomes, failures and skips."""
    return [
        chart(
            say("Tests per hour", "每小时测试数"),
            say(
                "Tests that ended, by outcome. None at all while nodes are idle: look at the skips "
                "beside, and at the table below.",
                "按结果统计的已结束测试数。节点空闲时仍为零：请看旁边的跳过原因和下方的表。",
            ),
            over_time(_per_hour("nodevitals:fabric_runs:rate10m", "outcome"), "{{outcome}}"),
            unit="short",
            width=8,
            stacked=True,
            colours={"ok": GREEN, "failed": RED},
        ),
        chart(
            say("Failures per hour by reason", "每小时失败数（按原因）"),
            say(
                "unreachable, timeout, port_down, no_gid: the network or the peer; corruption: "
                "replace the link; peer_busy: nothing; tool_missing, harness: the installation "
                "of that node.",
                "unreachable、timeout、port_down、no_gid：网络或对端问题；corruption：更换链路；"
                "peer_busy：无需处理；tool_missing、harness：该节点的安装问题。",
            ),
            over_time(
                _per_hour("nodevitals:fabric_runs:rate10m", "reason", ', outcome="failed"')
                + " > 0",
                "{{reason}}",
            ),
            unit="short",
            width=8,
            stacked=True,
        ),
        chart(
            say("Skips per hour by reason", "每小时跳过数（按原因）"),
            say(
                "Tests not started, or stopped. accelerator_in_use, job_marker, link_busy, "
                "peer_busy: jobs run, nothing to do. plan_differs: lists of peers differ between "
                "nodes. processes_unseen: the agent lacks hostPID. budget: the hourly limit is "
                "too small.",
                "未启动或被中止的测试。accelerator_in_use、job_marker、link_busy、peer_busy：有作"
                "业运行，无需处理。plan_differs：各节点的对端列表不一致。processes_unseen：采集器"
                "缺少 hostPID。budget：每小时预算过小。",
            ),
            over_time(
                _per_hour("nodevitals:fabric_skipped:rate10m", "reason") + " > 0", "{{reason}}"
            ),
            unit="short",
            width=8,
            stacked=True,
        ),
        coverage(say),
    ]


def coverage(say: Say) -> table.Panel:
    """Return the table of the nodes that were not tested for the longest time."""
    age = "max by (cluster, instance) (nodevitals:fabric_since_success:seconds{" + CLUSTER + "})"
    oldest = f"topk(50, {in_place(age)})"
    scraped = f'job="nodevitals", {CHOSEN}'

    def column(title: str, value: str, unit: str = "short", **more: Any) -> Column:
        limited = f"max by (cluster, instance) ({value}) and on (cluster, instance) {oldest}"
        return Column(title, rows(limited), unit, **more)

    def hourly(metric: str, matchers: str = "") -> str:
        return f"sum by (cluster, instance) (increase({metric}{{{scraped}{matchers}}}[1h]))"

    def partners(metric: str) -> str:
        return f"{metric}{{{CLUSTER}}} * on (cluster, node) group_left (instance) {NODES}"

    node = say("Node", "节点")
    last = say("Since a success", "距上次成功")
    return grid(
        say("Nodes tested longest ago", "最久未测试的节点"),
        say(
            "Time since the last successful test that the node started, and why: skips and "
            "failures of the last hour. Skips without tests: jobs, or a gate that never opens. "
            "Neither: the probe fabric is not running there, or the node is on no list.",
            "距该节点上次成功测试的时间及原因：最近一小时的跳过与失败次数。只有跳过：有作业或条件"
            "始终不满足；两者都没有：该节点的 fabric 探针未运行，或不在列表中。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            column(last, age, "s", steps=((None, GREEN), (7200, YELLOW), (86400, RED))),
            column(
                say("Succeeded in 1 h", "1 小时成功"),
                hourly("nodevitals_fabric_runs_total", ', outcome="ok"'),
                decimals=0,
            ),
            column(
                say("Failed in 1 h", "1 小时失败"),
                hourly("nodevitals_fabric_runs_total", ', outcome="failed"'),
                decimals=0,
                steps=((None, GREEN), (1, YELLOW)),
            ),
            column(
                say("Skipped in 1 h", "1 小时跳过"),
                hourly("nodevitals_fabric_skipped_total"),
                decimals=0,
            ),
            column(say("Partners tested", "已测对端"), partners("nodevitals:fabric_node:tested")),
            column(
                say("Partners not reached", "未连通对端"),
                partners("nodevitals:fabric_node:failed"),
                steps=((None, GREEN), (1, YELLOW), (3, RED)),
            ),
            column(
                say("Lists of peers read", "对端列表可读"),
                f'nodevitals_fabric_lists_read{{job="nodevitals", {CLUSTER}}}',
                mappings=[yes_no(say)],
            ),
        ],
        sort_by=last,
    )


def cost(say: Say) -> list[timeseries.Panel]:
    """Return the row on time and bytes."""
    # All nodes of the pools: those that take part are too many series for a graph.
    nodes = f'sum(nodevitals:nodes:count{{{CLUSTER}, pool=~"$pool"}})'
    seconds = f"nodevitals:fabric_test_seconds:rate10m{{{RECORDED}}}"
    return [
        chart(
            say("Test time per hour", "每小时测试时长"),
            say(
                "Seconds per hour in which a test tool ran, summed over nodes (both ends of a "
                "test).",
                "每小时测试工具运行的秒数，按节点求和（一次测试两端都计）。",
            ),
            over_time(
                _per_hour("nodevitals:fabric_test_seconds:rate10m", "tool, operation"),
                "{{tool}} {{operation}}",
            ),
            unit="s",
            width=8,
        ),
        chart(
            say("Test traffic per hour", "每小时测试流量"),
            say(
                "Highest possible number of bytes per hour that tests moved, summed over nodes. "
                "Too much: lower iterations or the budget of the probe fabric.",
                "每小时测试传输字节数的上限，按节点求和。过多：降低 fabric 探针的 iterations 或预"
                "算。",
            ),
            over_time(
                _per_hour("nodevitals:fabric_test_bytes:rate10m", "tool, operation"),
                "{{tool}} {{operation}}",
            ),
            unit="bytes",
            width=8,
        ),
        chart(
            say("Share of time in tests", "测试占用时间比例"),
            say(
                "Share of time in which a test runs on a node, average of all nodes with fabric "
                "tests in the chosen pools. Above 1 %: tests are larger than they need to be.",
                "节点上正在运行测试的时间占比，为所选资源池内所有节点的平均值。超过"
                " 1 %：测试规模过大。",
            ),
            over_time(f"sum({seconds}) / {nodes}", say("share", "占比")),
            unit="percentunit",
            width=8,
            steps=((None, GREEN), (0.01, YELLOW)),
        ),
    ]
