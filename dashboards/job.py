"""A job: its devices, what they do and what is wrong with them, its nodes, and its pods.

A job is what its variables choose: a pod, a job, an owner, a queue or a namespace.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table

from dashboards import job_devices, job_nodes, job_pods
from dashboards.board import Board, link_to
from dashboards.job_queries import (
    JOB,
    NODES,
    RUNBOOKS,
    on_nodes,
    or_none,
    recorded,
)
from dashboards.language import Say
from dashboards.panels import number
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, GREY, ORANGE, RED, YELLOW, severities, yes_no
from dashboards.tables import Column, grid

PODS = recorded("pod_accelerators:count")
ALERT = "alertname, severity, component, action, cluster, instance, device"
ALERTS = f'{CLUSTER}, severity=~"critical|warning", scope=~"device|node"'


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "job",
        ("Job", "作业"),
        (
            (
                "Devices, nodes and pods of a pod, job, owner, queue or namespace. Choose one of "
                "them. For a job that has ended, choose a time range that ends before it."
            ),
            (
                "某个 Pod、作业、负责人、队列或命名空间所用的设备、节点和 Pod。请先选择其一；"
                "查看已结束的作业时，请将时间范围的终点设在作业结束之前。"
            ),
        ),
        ["cluster", "namespace", "owner", "queue", "job_name", "pod", "job_nodes"],
        hidden=["job_nodes"],
        check="/checks/for?nodes=${job_nodes:csv}",
    )
    made.alerts(f'{CLUSTER}, severity="critical", scope=~"device|node"')
    return made.rows(
        ("", [*summary(say), faults(say)]),
        (say("Devices", "设备"), job_devices.panels(say)),
        (say("Nodes of the job", "作业所在节点"), job_nodes.panels(say)),
        (say("Pods", "Pod"), job_pods.panels(say)),
    )


def summary(say: Say) -> list[stat.Panel]:
    """Return the numbers at the top."""
    nodes = f"group by (cluster, instance) ({NODES})"
    return [
        number(
            say("Faulty devices", "故障设备"),
            say(
                "Devices of the job with a critical fault, or lost. Save a checkpoint and restart "
                "elsewhere.",
                "作业所用设备中有严重故障或已丢失的数量。请保存检查点并换节点重启。",
            ),
            over_time(or_none(f"sum({recorded('pod_accelerators_faulty:count')})", PODS)),
            steps=((None, GREEN), (1, RED)),
        ),
        number(
            say("Nodes not healthy", "异常节点"),
            say(
                "Nodes of the job that are degraded, failed, lost, unknown or in maintenance.",
                "作业所在节点中处于降级、故障、丢失、未知或维护状态的数量。",
            ),
            over_time(or_none(f"count({on_nodes('nodevitals:node_state > 0', nodes)})", NODES)),
            steps=((None, GREEN), (1, ORANGE)),
        ).max_data_points(40),
        number(
            say("Idle devices", "空闲设备"),
            say(
                "Booked devices whose utilization was below the threshold idle_utilization for 5 "
                "minutes. If it stays: the job hangs, waits for data, or has more than it needs.",
                "已被占用、但最近 5 分钟利用率低于阈值 idle_utilization 的设备数。"
                "长期如此：作业可能卡住、在等数据，或申请过多。",
            ),
            over_time(or_none(f"sum({recorded('pod_accelerators_idle:count')})", PODS)),
            steps=((None, GREEN), (1, YELLOW)),
        ),
        number(
            say("Utilization", "利用率"),
            say(
                "Mean utilization of the devices over 5 minutes. Empty where no device reports it.",
                "设备最近 5 分钟的平均利用率；没有数据时为空。",
            ),
            over_time(
                f"sum({recorded('pod_utilization:sum')}) / sum({recorded('pod_utilization:count')})"
            ),
            unit="percentunit",
            steps=(),
            decimals=0,
        ),
        _plain(say("Devices", "设备数"), say(*_DEVICES), f"sum({PODS})"),
        _plain(say("Nodes", "节点数"), say(*_NODES), f"count({nodes})"),
        _plain(say("Pods", "Pod 数"), say(*_PODS), f"count({PODS})"),
        number(
            say("Power", "功耗"),
            say("Power draw of the devices together.", "所有设备的总功耗。"),
            over_time(f"sum({recorded('pod_accelerator_power:watts')})"),
            unit="watt",
            steps=(),
        ),
    ]


_DEVICES = (
    "GPUs and NPUs that the pods have. A device that several pods share counts for each.",
    "Pod 占用的 GPU/NPU 数量；多个 Pod 共享的设备按每个 Pod 各计一次。",
)
_NODES = ("Nodes on which the pods have devices.", "Pod 占用设备所在的节点数。")
_PODS = ("Pods that have devices.", "占用设备的 Pod 数量。")


def _plain(title: str, description: str, expression: str) -> stat.Panel:
    return number(title, description, over_time(expression), steps=())


def faults(say: Say) -> table.Panel:
    """Alerts on the nodes and devices of the job, now and in the range."""
    there = f"last_over_time(nodevitals:pod_node{{{JOB}}}[$__range])"
    fired = f'last_over_time(ALERTS{{alertstate="firing", {ALERTS}}}[$__range])'
    started = f"last_over_time(ALERTS_FOR_STATE{{{ALERTS}}}[$__range])"
    node, alert = say("Node", "节点"), say("Alert", "告警")
    runbook = (say("Runbook", "处理手册"), f"{RUNBOOKS}/${{__value.text}}.md")
    begun = say("Since", "开始时间")
    return grid(
        say("Faults on its devices and nodes", "设备与节点故障"),
        say(
            "Alerts that fire, or fired in the time range, on the nodes of the job; also on "
            "devices that it does not have. Firing: still now. The alert leads to its runbook.",
            "作业所在节点在时间范围内触发过的告警，包括该节点上不属于此作业的设备。"
            "“触发中”表示目前仍存在。点击告警查看处理手册。",
        ),
        [
            Column(say("Severity", "级别"), "severity", mappings=[severities(say)], width=100),
            Column(alert, "alertname", link=runbook),
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Device", "设备"), "device", width=100),
            Column(
                say("Firing", "触发中"),
                rows(
                    f"max by ({ALERT}) ({on_nodes(fired, there)}) * 0 + 1 and on ({ALERT}) "
                    f'ALERTS{{alertstate="firing", {ALERTS}}} or on ({ALERT}) '
                    f"max by ({ALERT}) ({on_nodes(fired, there)}) * 0"
                ),
                mappings=[yes_no(say, good=False)],
                width=90,
            ),
            Column(
                begun,
                rows(
                    f"1000 * max by ({ALERT}) ({on_nodes(started, there)}) and on ({ALERT}) {fired}"
                ),
                unit="dateTimeAsIso",
                steps=((None, GREY),),
            ),
            Column(say("Action", "处置"), "action"),
        ],
        height=8,
        sort_by=begun,
    )
