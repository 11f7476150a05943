"""The first screen: fleet incidents, firing alerts, and the state of each component of the nodes
that are not healthy.
"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.queries import CLUSTER, in_pool, in_pool_or_fleet, rows
from dashboards.states import actions, severity_ranks, states
from dashboards.tables import Column, grid

RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"
INCIDENT = f'{{{CLUSTER}, alertname="FleetIncident"'
INCIDENT_LABELS = "cluster, kind, domain, domain_name"
ALERT_LABELS = "cluster, alertname, instance, component, what, where, action"


def panels(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels of the first screen, below the numbers."""
    return [incidents(say), alerts(say), components(say)]


def incidents(say: Say) -> table.Panel:
    """One row per fleet incident that fires."""
    firing = f'ALERTS{INCIDENT}, alertstate="firing"}}'
    ranked = f"max by ({INCIDENT_LABELS}) ({_rank(firing)})"
    started = f"ALERTS_FOR_STATE{INCIDENT}}} and ignoring (alertstate) {firing}"
    since = f"min by ({INCIDENT_LABELS}) ({started}) * 1000"
    affected = (
        f"count by ({INCIDENT_LABELS}) (group by ({INCIDENT_LABELS}, instance)"
        f" (nodevitals:incident_nodes{{{CLUSTER}}})) and on ({INCIDENT_LABELS}) {firing}"
    )
    of = (
        f"(0 * max by ({INCIDENT_LABELS}) ({firing}))"
        f" + on (cluster, domain, domain_name) group_left () nodevitals:domain:nodes{{{CLUSTER}}}"
    )
    runbook = (say("Runbook", "处理手册"), f"{RUNBOOKS}/FleetIncident.md")
    return grid(
        say("Fleet incidents", "集群事件"),
        say(
            "Faults of many nodes with one probable cause: look there before any single node. The"
            " alerts of these nodes for it are muted. Select what they share for the runbook.",
            "多个节点因同一可能原因出现的故障：请先排查共同原因，再看单个节点。"
            "相关节点的同类告警已静音。点击共同点可打开处理手册。",
        ),
        [
            Column(say("Severity", "级别"), rows(ranked), mappings=[severity_ranks(say)], width=90),
            Column(say("Kind", "类型"), "kind"),
            Column(say("What they share", "共同点"), "domain"),
            Column(say("Name", "名称"), "domain_name", link=runbook),
            Column(say("Nodes affected", "受影响节点"), rows(affected)),
            Column(say("of", "总数"), rows(of)),
            Column(say("Since", "开始时间"), rows(since), unit="dateTimeFromNow"),
            Column(say("Cluster", "集群"), "cluster"),
        ],
        height=4,
        sort_by=say("Severity", "级别"),
        empty=say("No fleet incident", "无集群事件"),
    )


def _rank(alerts: str) -> str:
    """Return alerts with a value by severity."""
    named = alerts.rstrip("}")
    return " or ".join(
        f'{rank} * {named}, severity="{severity}"}}'
        for rank, severity in ((3, "critical"), (2, "warning"), (1, "info"))
    )


def alerts(say: Say) -> table.Panel:
    """One row per alert that fires and is not muted by an incident or maintenance."""
    chosen = (
        f'{{{CLUSTER}, alertname!="", component!~"job|fleet", severity=~"critical|warning|info"'
    )
    firing = f'ALERTS{chosen}, alertstate="firing"}}'
    muted = (
        f' unless on (cluster, instance, fault) ALERTS{{{CLUSTER}, alertname="InsideFleetIncident",'
        f' alertstate="firing"}} unless on (cluster, instance) ALERTS{{{CLUSTER},'
        ' alertname="NodeMaintenance", alertstate="firing"}'
    )
    ranked = _identified("max", in_pool_or_fleet(f"({_rank(firing)}){muted}"))
    started = f"(ALERTS_FOR_STATE{chosen}}} and ignoring (alertstate) {firing}){muted}"
    node = say("Node", "节点")
    runbook = (say("Runbook", "处理手册"), f"{RUNBOOKS}/${{__value.raw}}.md")
    return grid(
        say("Firing alerts", "正在触发的告警"),
        say(
            "Alerts that are not part of a fleet incident and not of a node in maintenance. Select"
            " the"
            " alert for its runbook, the node for its dashboard. Action is what repairs the fault.",
            "不属于集群事件且节点不在维护中的告警。点击告警打开处理手册，点击节点打开节点仪表盘。"
            "“处理”列为修复该故障的动作。",
        ),
        [
            Column(say("Severity", "级别"), rows(ranked), mappings=[severity_ranks(say)], width=72),
            Column(say("Alert", "告警"), "alertname", link=runbook, width=170),
            Column(node, "instance", link=link_to(say, "node", node, instance=node), width=95),
            Column(say("Component", "组件"), "component", width=95),
            Column(say("Fault", "故障"), "what", width=130),
            Column(say("Device", "设备"), "where", width=90),
            Column(say("Action", "处理"), "action", mappings=[actions(say)], width=100),
            Column(
                say("Since", "开始时间"),
                rows(f"{_identified('min', in_pool_or_fleet(started))} * 1000"),
                unit="dateTimeFromNow",
                width=110,
            ),
        ],
        width=13,
        height=10,
        sort_by=say("Severity", "级别"),
        empty=say("No firing alert", "无触发中的告警"),
    )


def _identified(operation: str, found: str) -> str:
    """Return alerts with the labels `what` (fault and code) and `where` (device, mount, …)."""
    found = f'label_join({found}, "device_port", "/", "device", "port")'
    for label in ("target", "source", "peer", "mountpoint", "pci_bus_id", "interface", "member"):
        found = f'label_replace({found}, "where", "$1", "{label}", "(.+)")'
    found = f'label_replace({found}, "where", "$1", "device_port", "(.*[^/])/?")'
    found = f'label_replace({found}, "what", "$1", "fault", "(.+)")'
    for label, name in (("xid", "Xid"), ("sxid", "SXid"), ("code", "")):
        found = f'label_replace({found}, "what", "{name} $1", "{label}", "(.+)")'
    return f"{operation} by ({ALERT_LABELS}) ({found})"


def components(say: Say) -> table.Panel:
    """One row per node that is not healthy, one column per component."""
    node = say("Node", "节点")
    worst = say("State", "状态")
    kinds = {
        "accelerator": say("Devices", "加速卡"),
        "rdma": say("RDMA", "RDMA"),
        "network": say("Network", "网络"),
        "mount": say("Mounts", "挂载点"),
        "fabric": say("Fabric", "带宽测试"),
        "node": say("System", "系统"),
        "agent": say("Agent", "采集器"),
    }
    faulty = in_pool(f"nodevitals:node_state{{{CLUSTER}}} > 0")
    link = link_to(say, "node", node, instance=node)
    columns = [
        Column(node, "instance", link=link, width=95),
        Column(
            worst, rows(f"sum by (cluster, instance) ({faulty})"), mappings=[states(say)], width=90
        ),
    ]
    for component, title in kinds.items():
        state = f'nodevitals:component_state{{{CLUSTER}, component="{component}"}}'
        chosen = f"sum by (cluster, instance) ({state} and on (cluster, instance) ({faulty}))"
        columns.append(Column(title, rows(chosen), mappings=[states(say)], width=78))
    return grid(
        say("Nodes that are not healthy", "异常节点"),
        say(
            "The worst first. State of each component; empty where a component is not monitored."
            " Select a node for its dashboard.",
            "按严重程度排序，列出各组件状态；空白表示该组件未监控。点击节点打开节点仪表盘。",
        ),
        columns,
        width=11,
        height=10,
        sort_by=worst,
        empty=say("All nodes are healthy", "所有节点正常"),
    )
