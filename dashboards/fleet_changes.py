"""What changed: states and faults over time, changes of 24 hours, and the vendors' fault codes."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel, ValueMap, ValueMappingResult

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import BY_POOL, CLUSTER, in_pool, in_pool_or_fleet, over_time, rows
from dashboards.states import GREEN, RED, STATE_COLOURS, actions, state_words
from dashboards.tables import Column, grid

CHANGE_LABELS = "cluster, instance, change, component, what, where"


def panels(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels of the row."""
    return [
        states_over_time(
            say,
            "nodevitals:nodes:count",
            say("Nodes that are not healthy", "异常节点数"),
            say(
                "Number of nodes in each state but healthy. A step of many nodes at once has one"
                " cause:"
                " see the fleet incidents and the changes.",
                "除“正常”外各状态的节点数。大量节点同时变化通常出自同一原因，"
                "请查看集群事件与变化列表。",
            ),
        ),
        states_over_time(
            say,
            "nodevitals:accelerators:count",
            say("Accelerators that are not healthy", "异常加速卡数"),
            say(
                "Number of GPUs and NPUs in each state but healthy. Unknown includes those of nodes"
                " without data.",
                "除“正常”外各状态的 GPU 和 NPU 数；“未知”包括无数据节点上的设备。",
            ),
        ),
        faults_over_time(say),
        changes(say),
        codes(say),
    ]


def states_over_time(say: Say, metric: str, title: str, description: str) -> timeseries.Panel:
    words = state_words(say)
    # An accelerator in maintenance has the state of its faults.
    good = {"healthy", "maintenance"} if "accelerators" in metric else {"healthy"}
    bad = [state for state in reversed(words) if state not in good]
    everything = f"0 * sum({metric}{{{BY_POOL}}})"
    return chart(
        title,
        description,
        *(
            over_time(f'sum({metric}{{{BY_POOL}, state="{state}"}}) or {everything}', words[state])
            for state in bad
        ),
        unit="short",
        width=8,
        stacked=True,
        colours={words[state]: STATE_COLOURS[state] for state in bad},
    )


def faults_over_time(say: Say) -> timeseries.Panel:
    return chart(
        say("Faults by component", "各组件故障数"),
        say(
            "Number of faults that exist, by component, also those too short for an alert. A"
            " component"
            " that grows on its own names the cause.",
            "各组件当前存在的故障数，包括尚未触发告警的短时故障。单独增长的组件即为原因所在。",
        ),
        over_time(f"sum by (component) (nodevitals:faults:count{{{BY_POOL}}})", "{{component}}"),
        unit="short",
        width=8,
        stacked=True,
    )


def changes(say: Say) -> table.Panel:
    """One row per change, the newest first."""
    found = f"max_over_time(nodevitals:node_change{{{CLUSTER}}}[1d])"
    for label in ("domain_name", "fault"):
        found = f'label_replace({found}, "what", "$1", "{label}", "(.+)")'
    found = f'label_join({found}, "versions", " → ", "previous", "version")'
    found = f'label_replace({found}, "what", "$1", "versions", "(.+ → .+)")'
    for label in ("part", "kind"):
        found = f'label_replace({found}, "component", "$1", "{label}", "(.+)")'
    for label in ("model", "domain", "device_id"):
        found = f'label_replace({found}, "where", "$1", "{label}", "(.+)")'
    node = say("Node", "节点")
    when = say("When", "时间")
    return grid(
        say("What changed in 24 hours", "24 小时内的变化"),
        say(
            "Faults that began and ended, fleet incidents, nodes that joined or left (an hour after"
            " the last scrape), and versions that changed. Look here first for what came before a"
            " fault. The newest 200.",
            "故障的开始与结束、集群事件、节点的加入与离开（最后一次采集一小时后）以及版本变更。"
            "排查故障前因时请先查看此表。仅列最近 200 条。",
        ),
        [
            Column(
                when,
                rows(
                    f"topk(200, max by ({CHANGE_LABELS}) ({in_pool_or_fleet(found)})) * 1000",
                ),
                unit="dateTimeAsIso",
                width=150,
            ),
            Column(say("Change", "变化"), "change", mappings=[_words(say)], width=130),
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            Column(say("Component", "组件"), "component", width=110),
            Column(say("What", "内容"), "what"),
            Column(say("Device", "设备"), "where"),
        ],
        width=14,
        height=10,
        sort_by=when,
        empty=say("No change in 24 hours", "24 小时内无变化"),
    )


def _words(say: Say) -> ValueMap:
    words = {
        "fault_began": (say("fault began", "故障开始"), RED),
        "fault_ended": (say("fault ended", "故障结束"), GREEN),
        "incident_began": (say("incident began", "事件开始"), RED),
        "incident_ended": (say("incident ended", "事件结束"), GREEN),
        "node_joined": (say("node joined", "节点加入"), "blue"),
        "node_left": (say("node left", "节点离开"), "orange"),
        "version": (say("version changed", "版本变更"), "purple"),
    }
    return ValueMap(
        options={
            value: ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, (text, colour)) in enumerate(words.items())
        }
    )


def codes(say: Say) -> table.Panel:
    """One row per code that the vendors' drivers reported."""
    own = f"{{{CLUSTER}, job=`nodevitals`}}"
    found = " or ".join(
        f'label_replace({in_pool(reported)}, "name", "{name} $1", "{label}", "(.+)")'
        for reported, name, label in (
            (f"nodevitals_nvidia_xid_last_timestamp_seconds{own} > time() - 86400", "Xid", "xid"),
            (
                f"nodevitals_nvidia_sxid_last_timestamp_seconds{own} > time() - 86400",
                "SXid",
                "sxid",
            ),
            (f"timestamp(nodevitals_ascend_fault_code{own})", "Ascend", "code"),
        )
    )
    nodes = f"count by (name, action) (group by (cluster, instance, name, action) ({found}))"
    devices = (
        "count by (name, action)"
        f" (group by (cluster, instance, device, uuid, name, action) ({found}))"
    )
    return grid(
        say("Fault codes in 24 hours", "24 小时内的故障码"),
        say(
            "Xid and SXid of NVIDIA within 24 hours, fault codes that Ascend NPUs report now."
            " Action is"
            " what the vendor recommends: restart job means the job's own error, no fault of the"
            " device. A code on many nodes at once points to software, one on a single device to"
            " it.",
            "24 小时内的 NVIDIA Xid、SXid，以及 Ascend NPU 当前上报的故障码。"
            "“处理”为厂商建议的动作；"
            "“重启作业”表示作业自身错误，并非设备故障。同一故障码出现在多个节点多为软件问题，"
            "仅出现在单个设备则多为该设备问题。",
        ),
        [
            Column(say("Code", "故障码"), "name"),
            Column(say("Action", "处理"), "action", mappings=[actions(say)], width=120),
            Column(say("Devices", "设备数"), rows(devices), width=80),
            Column(say("Nodes", "节点数"), rows(nodes), width=80),
            Column(
                say("Last", "最近一次"),
                rows(f"max by (name, action) ({found}) * 1000"),
                unit="dateTimeFromNow",
            ),
        ],
        width=10,
        height=10,
        sort_by=say("Devices", "设备数"),
        empty=say("No fault code in 24 hours", "24 小时内无故障码"),
    )
