"""The top of the node dashboard: the state of the node, whether it is in service, what fires."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table
from grafana_foundation_sdk.models.common import BigValueTextMode

from dashboards.board import link_here
from dashboards.language import Say
from dashboards.node_queries import RANKS, named_object, per, recorded, scraped
from dashboards.panels import number
from dashboards.queries import now, rows
from dashboards.states import (
    BLUE,
    GREEN,
    GREY,
    actions,
    mapping,
    severity_ranks,
    states,
)
from dashboards.tables import Column, grid

RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"
ALERT = "alertname, component, action, object"


def state(say: Say) -> stat.Panel:
    """The worst of the node's components, or its maintenance."""
    return number(
        say("Node", "节点状态"),
        say(
            "State of the node: the worst of its components, or maintenance. "
            "When it is not healthy, read the alerts below.",
            "节点状态：取各组件中最差者；维护期间显示维护中。异常时请先看下方告警。",
        ),
        now(per("instance", recorded("nodevitals:node_state"))),
        mappings=[states(say)],
        steps=((None, GREY),),
    )


def components(say: Say) -> stat.Panel:
    """One tile per component."""
    return number(
        say("Components", "组件状态"),
        say(
            "State of each monitored component. Unknown: its probes fail, so it may be anything. "
            "The link leads to the node's chassis, disks, modules and services.",
            "各受监控组件的状态。未知：探测失败，实际情况无法判断。"
            "点击链接查看该节点的机箱、磁盘、光模块与服务。",
        ),
        now(per("component", recorded("nodevitals:component_state")), "{{component}}"),
        mappings=[states(say)],
        steps=((None, GREY),),
        width=13,
        link=link_here(say, "hardware", say("Node hardware", "节点硬件")),
    ).text_mode(BigValueTextMode.VALUE_AND_NAME)


def schedulable(say: Say) -> stat.Panel:
    """Kubernetes' cordon: by the agent, or else by kube-state-metrics, which may have no label
    cluster.
    """
    return number(
        say("Schedulable", "可调度"),
        say(
            "Whether Kubernetes starts new pods here (probe kubernetes, or kube-state-metrics). "
            "Cordoned: find out why before you uncordon it. Empty without Kubernetes.",
            "Kubernetes 是否向该节点调度新 Pod（来自探针 kubernetes 或 kube-state-metrics）。"
            "若已禁止调度，恢复前请先查明原因。未接入 Kubernetes 时为空。",
        ),
        now(
            f"1 - min({scraped('node_schedulable')}) or "
            f'max(kube_node_spec_unschedulable{{cluster=~"$cluster|", node!=""}} '
            f"and on (node) {recorded('nodevitals:node_name')})"
        ),
        mappings=[
            mapping(
                {
                    "0": (say("yes", "是"), GREEN),
                    "1": (say("cordoned", "已禁止调度"), BLUE),
                }
            )
        ],
        steps=((None, GREY),),
    )


def maintenance(say: Say) -> stat.Panel:
    """Planned work: its reason and its end."""
    end = f"1000 * {per('', recorded('nodevitals:node_maintenance:end'))}"
    until = f"{end} or on () {per('', '0 * ' + recorded('nodevitals:node_maintenance') + ' + 1')}"
    source = per("source", recorded("nodevitals:node_maintenance_source"))
    reason = (
        f"group by (reason) ({scraped('node_maintenance_info')}) or on () topk(1, "
        f'label_replace({source}, "reason", "$1", "source", "(.*)"))'
    )
    none = per("", "0 * " + recorded("nodevitals:node_seen"))
    return number(
        say("Maintenance", "维护"),
        say(
            "Planned work: its reason and when it ends. The node's alerts are not notified "
            "meanwhile. Without an end: a cordon, or the label maintenance of its configuration.",
            "计划内维护的原因与结束时间。维护期间该节点告警不发送通知。"
            "“无结束时间”来自禁止调度或配置中的 maintenance 标签。",
        ),
        now(
            f"({reason}) * on () group_left () ({until}) or on () "
            f'label_replace({none}, "reason", "–", "", "")',
            "{{reason}}",
        ),
        unit="dateTimeFromNow",
        mappings=[
            mapping(
                {
                    "0": (say("none", "无"), GREEN),
                    "1": (say("no end", "无结束时间"), BLUE),
                }
            )
        ],
        steps=((None, GREY), (0, BLUE)),
        width=5,
    ).text_mode(BigValueTextMode.VALUE_AND_NAME)


def alerts(say: Say) -> table.Panel:
    """What fires for this node, and the fleet incidents that it is part of."""
    serious = 'severity=~"critical|warning|info"'
    of_node = (
        recorded("ALERTS_FOR_STATE", serious)
        + ' or ALERTS_FOR_STATE{cluster=~"$cluster", peer=~"$fabric_name", peer!="", '
        + f"{serious}}}"
        + ' or ALERTS_FOR_STATE{alertname="FleetIncident", cluster=~"$cluster"} '
        + "and on (cluster, domain, domain_name, kind) "
        + recorded("nodevitals:incident_nodes")
    )
    firing = f'ALERTS{{alertstate="firing", cluster=~"$cluster", {serious}}}'
    since = f"({of_node}) and ignoring (alertstate) {firing}"
    ranked = " or ".join(
        f"0 * (({since}) and on (severity) "
        f'label_replace(vector(1), "severity", "{one}", "", "")) + {rank}'
        for one, rank in RANKS.items()
    )
    alert = say("Alert", "告警")
    runbook = f'{RUNBOOKS}/${{__data.fields["{alert}"]:percentencode}}.md'
    return grid(
        say("Firing alerts", "当前告警"),
        say(
            "Alerts of this node, the worst first, and fleet incidents that it is part of. Select "
            "the alert for its runbook. Action is what repairs the fault.",
            "该节点的告警（最严重的在前）及其所属的集群事件。点击告警打开处理手册。"
            "“处理”列为修复该故障的动作。",
        ),
        [
            Column(
                say("Severity", "级别"),
                rows(per(ALERT, named_object(ranked))),
                mappings=[severity_ranks(say)],
                width=100,
            ),
            Column(alert, "alertname", link=(say("Runbook", "处理手册"), runbook), width=240),
            Column(say("Component", "组件"), "component", width=140),
            Column(say("Object", "对象"), "object"),
            Column(
                say("Since", "开始时间"),
                rows(f"min by ({ALERT}) ({named_object(since)}) * 1000"),
                "dateTimeFromNow",
                width=160,
            ),
            Column(say("Action", "处理"), "action", mappings=[actions(say)], width=160),
        ],
        height=6,
        sort_by=say("Severity", "级别"),
        empty=say("No firing alert", "无告警"),
    )
