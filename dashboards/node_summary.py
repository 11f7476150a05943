"""The top of the node dashboard: what is there of what is expected, and what fires."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat, table
from grafana_foundation_sdk.models.common import BigValueTextMode

from dashboards.language import Say
from dashboards.node_queries import HERE, named_object, per, recorded, scraped, seen
from dashboards.panels import Column, grid, number
from dashboards.queries import now, rows
from dashboards.states import BLUE, GREEN, GREY, RED, YELLOW, SEVERITIES, mapping, severity_levels, states

RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks"
ALERT = "alertname, level, component, fault, action, object"
UNKNOWN = -1
"""Value of a count that is not known, where it should be."""


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
            "State of each monitored component. Unknown: its probes fail, so it may be anything.",
            "各受监控组件的状态。未知：探测失败，实际情况无法判断。",
        ),
        now(per("component", recorded("nodevitals:component_state")), "{{component}}"),
        mappings=[states(say)],
        steps=((None, GREY),),
        width=13,
    ).text_mode(BigValueTextMode.VALUE_AND_NAME)


def schedulable(say: Say) -> stat.Panel:
    """Kubernetes' cordon, where kube-state-metrics is scraped, which may have no label cluster."""
    target = f'up{{job="nodevitals", {HERE}}}'
    name = f'label_replace({target}, "node", "$1", "instance", "([^:]+)(?::[0-9]+)?")'
    return number(
        say("Schedulable", "可调度"),
        say(
            "Whether Kubernetes starts new pods here (kube-state-metrics). Cordoned: find out why "
            "before you uncordon it. Empty without Kubernetes.",
            "Kubernetes 是否向该节点调度新 Pod（来自 kube-state-metrics）。"
            "若已禁止调度，恢复前请先查明原因。未接入 Kubernetes 时为空。",
        ),
        now(
            f'max(kube_node_spec_unschedulable{{cluster=~"$cluster|", node!=""}} '
            f'and on (node) ({target} or {name}))'
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
    running = recorded("nodevitals:node_maintenance")
    end = f"1000 * {per('', recorded('nodevitals:node_maintenance:end'))}"
    reason = f"group by (reason) ({scraped('node_maintenance_info')})"
    return number(
        say("Maintenance", "维护"),
        say(
            "Planned work: its reason and when it ends. The node's alerts are not notified "
            "meanwhile. Without an end: a cordon, or the label maintenance of its configuration.",
            "计划内维护的原因与结束时间。维护期间该节点告警不发送通知。"
            "“无结束时间”来自禁止调度或配置中的 maintenance 标签。",
        ),
        now(
            f"({reason} * on () group_left () ({end})) or on () ({end}) "
            f"or on () {per('', f'0 * {running} + 1')} "
            f"or on () {per('', '0 * ' + recorded('nodevitals:node_seen'))}",
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


def strip(say: Say) -> list[stat.Panel]:
    """Return the counts of what is there, of what is expected."""
    ports = scraped("rdma_port_expected_rate_bytes_per_second")
    interfaces = scraped("network_up")
    mounts = scraped("probe_success", 'probe="mounts"')
    peers, probes = scraped("peer_reachable"), scraped("probe_success")
    return [
        _accelerators(say, "nvidia", "GPU"),
        _accelerators(say, "ascend", "NPU"),
        _count(
            say,
            ("RDMA ports", "RDMA 端口"),
            ("Active ports, of those that had a link before.", "曾经连通的端口中，当前激活的数量。"),
            f"sum({scraped('rdma_port_up')} and on (device, port) {ports})",
            ports,
        ),
        _count(
            say,
            ("Interfaces", "网络接口"),
            (
                "Network interfaces and bonds that are up, of those that were before.",
                "曾经连通的网络接口与 bond 中，当前连通的数量。",
            ),
            f"sum({interfaces})",
            f"({interfaces} == 1) or on (interface) "
            + scraped("network_expected_speed_bytes_per_second"),
            known=f"count({seen(interfaces)})",
        ),
        _count(
            say,
            ("Mounts", "挂载点"),
            (
                "Mount points that are mounted, readable, writable and intact.",
                "已挂载且可读、可写、数据完整的挂载点数量。",
            ),
            f'sum({mounts} unless on (target) label_replace({_broken_mounts()}, "target", "$1", '
            f'"mountpoint", "(.+)")) or 0 * count({mounts})',
            mounts,
        ),
        _count(
            say,
            ("Peers reached", "可达对端"),
            (
                "Connections to other nodes. If few are missing, see those nodes; if most are, "
                "see the network of this one.",
                "到其他节点的连接数。仅缺少个别时请查看对端节点；大部分缺失时请检查本节点网络。",
            ),
            f"sum({peers})",
            peers,
            mild=True,
        ),
        _count(
            say,
            ("Probes", "探测项"),
            (
                "Probes whose last run succeeded. What a failing probe reports is unknown.",
                "最近一次运行成功的探测项数量。探测失败的内容均为未知。",
            ),
            f"sum({probes})",
            probes,
            mild=True,
        ),
        fabric(say),
    ]


def _broken_mounts() -> str:
    wrong = ("present", "as_expected", "readable", "writable", "content_intact")
    return " or on (mountpoint) ".join(scraped(f"mount_{one}") + " == 0" for one in wrong)


def _accelerators(say: Say, vendor: str, kind: str) -> stat.Panel:
    """As the configuration expects, or else as many as there ever were."""
    of_vendor = f'vendor="{vendor}"'
    expected, baseline = (
        scraped(f"accelerators_{name}", of_vendor) for name in ("expected", "baseline")
    )
    return _count(
        say,
        (f"{kind}s", kind),
        (
            f"{kind}s that answer, of those that are configured or were ever there.",
            f"有响应的 {kind} 数量，对比配置值或历史最大值。",
        ),
        f"sum({scraped('accelerators_present', of_vendor)})",
        f"{expected} < 0",
        known=f"sum({seen(expected)} or on (vendor) {seen(baseline)})",
    )


def _count(
    say: Say,
    title: tuple[str, str],
    description: tuple[str, str],
    present: str,
    expected: str,
    mild: bool = False,
    known: str = "",
) -> stat.Panel:
    """Return a panel that reads `7 of 8`; its colour comes from the share that is missing.

    `present` is a number; `expected` are series to count. `known` is what to expect where neither
    is there now: it then reads `? of 8`.
    """
    whole = f"(count({expected}) or {known or f'count({seen(expected)})'})"
    both = (
        f'count_values("present", {present}) '
        f'* on () group_left (expected) count_values("expected", {whole} > 0) '
        f"* on () group_left () (clamp_min(1 - ({present}) / {whole}, 0))"
    )
    lost = (
        f'label_replace(count_values("expected", {whole} > 0) * {UNKNOWN}, "present", "?", "", "")'
    )
    texts = f'label_join({both} or on () {lost}, "text", "{say(" of ", " / ")}", "present", "expected")'
    nothing = f'label_replace(vector({UNKNOWN}), "text", "–", "", "")'
    return number(
        say(*title),
        say(
            f"{description[0]} Red or yellow: some are missing, see the table below. "
            '"?": no answer now. Empty: the node has none.',
            f"{description[1]}红色或黄色：有缺失，详见下方表格。“?”：当前无响应。为空：该节点没有此类设备。",
        ),
        now(f"{texts} or on () {nothing}", "{{text}}"),
        unit="percentunit",
        steps=((None, GREY), (0, GREEN), (1e-6, YELLOW if mild else RED), (0.5, RED)),
    ).text_mode(BigValueTextMode.NAME)


def fabric(say: Say) -> stat.Panel:
    """The slowest of the node's medians against its baseline."""
    tested = 'cluster=~"$cluster", node="$fabric_name"'
    return number(
        say("Bandwidth of expected", "带宽达标率"),
        say(
            "Median bandwidth of the node's tests, as a share of what is configured, or else of "
            "the last day; of several kinds of tests the worst. Below 80 %: see the tests below.",
            "该节点带宽测试的中位数与配置值（未配置时为最近一天）之比；多种测试取最差者。"
            "低于 80% 时请查看下方的测试表。",
        ),
        now(
            f"min(nodevitals:fabric_node:bandwidth{{{tested}}} "
            f"/ nodevitals:fabric_node:bandwidth_baseline{{{tested}}})"
        ),
        unit="percentunit",
        steps=((None, GREY), (0, RED), (0.8, GREEN)),
        decimals=0,
    )


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
    since = named_object(f"(({of_node}) and ignoring (alertstate) {firing}) * 1000")
    # For the order of the rows.
    for severity, level in SEVERITIES.items():
        since = f'label_replace({since}, "level", "{level}", "severity", "{severity}")'
    alert = say("Alert", "告警")
    runbook = f'{RUNBOOKS}/${{__data.fields["{alert}"]:percentencode}}.md'
    return grid(
        say("Firing alerts", "当前告警"),
        say(
            "Alerts of this node, the worst first, and fleet incidents that it is part of. The "
            "name leads to the runbook. Empty: nothing fires.",
            "该节点的告警（最严重的在前）及其所属的集群级事件。点击告警名称查看处置手册。为空：无告警。",
        ),
        [
            Column(say("Severity", "级别"), "level", mappings=[severity_levels(say)], width=100),
            Column(alert, "alertname", link=(say("Runbook", "处置手册"), runbook), width=240),
            Column(say("Object", "对象"), "object", width=320),
            Column(say("Since", "开始时间"), rows(per(ALERT, since)), "dateTimeFromNow", width=160),
            Column(say("Action", "处置动作"), "action", width=160),
            Column(say("Component", "组件"), "component", width=140),
            Column(say("Fault", "故障类型"), "fault"),
        ],
        height=7,
        sort_by=say("Severity", "级别"),
        descending=False,
    )
