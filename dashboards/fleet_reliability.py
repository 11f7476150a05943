"""How often nodes fail, for how long they are out of service, and which fail again."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import bargauge, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import Steps, bars, chart, number
from dashboards.queries import BY_POOL, CLUSTER, in_pool, now, over_time, rows
from dashboards.states import BLUE, GREEN, ORANGE, RED, YELLOW, states
from dashboards.tables import Column, grid

FAILURES = f"sum(nodevitals:failures:count7d{{{BY_POOL}}})"
NODE_TIME = f"sum(nodevitals:node_time:seconds7d{{{BY_POOL}}})"
OUT = f"sum(nodevitals:out_of_service:seconds7d{{{BY_POOL}}})"
NODES = f"sum(nodevitals:nodes:total{{{BY_POOL}}})"
BETWEEN = f"{NODE_TIME} / ({FAILURES} > 0)"
FAULTS = in_pool(f"nodevitals:node_faults:count30d{{{CLUSTER}}}")
SEEN: Steps = ((None, "text"), (1, ORANGE))
# Neither good nor bad.
PLAIN: Steps = ((None, BLUE),)
MONTH = "30d"


def panels(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels of the row."""
    return [
        between_failures(say),
        fleet_between_failures(say),
        in_service(say),
        worst_tenth(say),
        trend(say),
        out_of_service(say),
        began(say),
        kinds(say),
        offenders(say),
    ]


def between_failures(say: Say) -> stat.Panel:
    return number(
        say("Between failures of a node (7 days)", "单节点平均无故障时间（7 天）"),
        say(
            "Mean time between failures of one node: the time of all nodes, divided by the failures"
            " in 7 days. A failure is a fault that takes its node out of service; what follows"
            " within"
            " an hour belongs to it, and fleet incidents do not count.",
            "单个节点的平均无故障时间：所有节点的运行时间之和除以 7 天内的失效次数。"
            "失效指使节点退出服务的故障，一小时内的后续故障计为同一次，集群事件不计入。",
        ),
        now(BETWEEN),
        unit="s",
        steps=PLAIN,
        width=6,
        empty=say("no failure", "无失效"),
        decimals=0,
    )


def fleet_between_failures(say: Say) -> stat.Panel:
    return number(
        say("Between failures in the fleet (7 days)", "集群平均失效间隔（7 天）"),
        say(
            "Mean time from one failure of any node to the next. A job on all nodes should save its"
            " state far more often.",
            "任意节点两次失效之间的平均时间。使用全部节点的作业保存检查点的间隔应远小于此值。",
        ),
        now(f"{NODE_TIME} / {NODES} / ({FAILURES} > 0)"),
        unit="s",
        steps=PLAIN,
        width=6,
        empty=say("no failure", "无失效"),
        decimals=1,
    )


def in_service(say: Say) -> stat.Panel:
    return number(
        say("Time in service (7 days)", "在役时间占比（7 天）"),
        say(
            "Share of the time of all nodes in which they were neither out of service with a fault"
            " nor"
            " in maintenance.",
            "所有节点时间中，既未因故障退出服务也不在维护中的占比。",
        ),
        now(f"1 - ({OUT} or 0 * {NODE_TIME}) / {NODE_TIME}"),
        unit="percentunit",
        steps=((None, RED), (0.9, YELLOW), (0.95, GREEN)),
        width=6,
        decimals=2,
    )


def worst_tenth(say: Say) -> stat.Panel:
    # Without a number of nodes, topk would fail.
    tenth = f"scalar(ceil(0.1 * {NODES}) or vector(1))"
    return number(
        say("Faults of the worst tenth (30 days)", "最差 10% 节点的故障占比（30 天）"),
        say(
            "Share of all faults in 30 days that a tenth of the nodes had. In a public trace it is"
            " 41 %. Far more, with many faults, means that repairs do not cure: see the repeat"
            " offenders. Of a fleet with fewer faults than a tenth of its nodes it is 100 %.",
            "30 天内全部故障中，故障最多的 10% 节点所占比例。公开数据集中为 41%。"
            "故障较多且该值明显偏高时，说明维修未能根治，请查看反复故障节点。"
            "若故障数少于节点数的 10%，则恒为 100%。",
        ),
        now(f"sum(topk({tenth}, {FAULTS})) / sum({FAULTS})"),
        unit="percentunit",
        steps=PLAIN,
        width=6,
        empty=say("no fault", "无故障"),
        decimals=0,
    )


def trend(say: Say) -> timeseries.Panel:
    return chart(
        say("Time between failures of a node, 30 days", "单节点平均无故障时间趋势（30 天）"),
        say(
            "Mean over the 7 days before each point. It falls when a batch of parts ages or an"
            " update"
            " is bad: compare with the changes of that time. Always of 30 days.",
            "每个时间点之前 7 天的平均值。下降通常意味着某批部件老化或某次升级有问题，"
            "请对照当时的变化。固定显示 30 天。",
        ),
        over_time(BETWEEN, say("Time between failures", "平均无故障时间")),
        unit="s",
        width=8,
        since=MONTH,
    )


def out_of_service(say: Say) -> timeseries.Panel:
    return chart(
        say("Time out of service, 30 days", "停用时间占比趋势（30 天）"),
        say(
            "Share of the time of all nodes in the 7 days before each point, by reason: a confirmed"
            " fault, or maintenance (repairs are part of it). Always of 30 days.",
            "每个时间点之前 7 天内，节点停用时间按原因的占比：已确认的故障，或维护（含维修）。"
            "固定显示 30 天。",
        ),
        over_time(
            f"sum by (reason) (nodevitals:out_of_service:seconds7d{{{BY_POOL}}})"
            f" / on () group_left () {NODE_TIME}",
            "{{reason}}",
        ),
        unit="percentunit",
        width=8,
        stacked=True,
        colours={"fault": RED, "maintenance": BLUE},
        since=MONTH,
    )


def began(say: Say) -> timeseries.Panel:
    return chart(
        say("Faults that began per day, 30 days", "每日新发故障数（30 天）"),
        say(
            "Confirmed faults that began in the 24 hours before each point, by component. Always of"
            " 30 days.",
            "每个时间点之前 24 小时内新发的已确认故障数，按组件统计。固定显示 30 天。",
        ),
        over_time(f"sum by (component) (nodevitals:faults_began:count1d{{{BY_POOL}}})"),
        unit="short",
        width=8,
        stacked=True,
        since=MONTH,
    )


def kinds(say: Say) -> bargauge.Panel:
    began = f'nodevitals:node_change{{{CLUSTER}, change="fault_began"}}'
    return bars(
        say("Most frequent faults (7 days)", "最常见故障（7 天）"),
        say(
            "The ten faults that began most often in 7 days.",
            "7 天内新发次数最多的十种故障。",
        ),
        now(f"topk(10, sum by (fault) ({in_pool(f'count_over_time({began}[7d])')}))", "{{fault}}"),
        unit="short",
        width=8,
        height=10,
        steps=PLAIN,
    )


def offenders(say: Say) -> table.Panel:
    """The nodes with the most faults."""
    worst = f"topk(10, {FAULTS})"

    def column(found: str) -> str:
        return f"sum by (cluster, instance) ({found}) and on (cluster, instance) {worst}"

    node = say("Node", "节点")
    faults = say("Faults (30 days)", "故障（30 天）")
    out = f"nodevitals:node_out_of_service:seconds7d{{{CLUSTER}}}"
    return grid(
        say("Repeat offenders", "反复故障节点"),
        say(
            "The ten nodes with the most faults in 30 days. A node that fails again after its"
            " repair"
            " should be tested before it has jobs, and its parts replaced.",
            "30 天内故障最多的十个节点。维修后再次失效的节点，应先测试再投入作业，并更换部件。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(
                say("Now", "当前"),
                rows(column(f"nodevitals:node_state{{{CLUSTER}}}")),
                mappings=[states(say)],
            ),
            Column(faults, rows(column(FAULTS)), steps=SEEN),
            Column(
                say("Failures (7 days)", "失效（7 天）"),
                rows(column(f"nodevitals:node_failures:count7d{{{CLUSTER}}}")),
                steps=((None, "text"), (2, RED)),
            ),
            Column(say("Out of service (7 days)", "停用（7 天）"), rows(column(out)), unit="s"),
        ],
        width=16,
        height=10,
        sort_by=faults,
        empty=say("No faults in 30 days", "30 天内无故障"),
    )
