"""What happened on the node, and who was on it: states, alerts, faults and pods over time."""

from __future__ import annotations

from grafana_foundation_sdk.builders import prometheus, statetimeline, table

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.node_queries import RANGE, VENDORS, named_object, per, ranked, recorded
from dashboards.panels import timeline
from dashboards.queries import over_time, rows
from dashboards.states import BLUE, GREEN, GREY, mapping, severity_ranks, states
from dashboards.tables import Column, grid


def components(say: Say) -> statetimeline.Panel:
    return timeline(
        say("States", "状态变化"),
        say(
            "State of each component over time. A gap: nothing was recorded.",
            "各组件状态随时间的变化。空白：当时没有数据。",
        ),
        over_time(per("component", recorded("nodevitals:component_state")), "{{component}}"),
        mappings=[states(say)],
        height=9,
    )


def alerts(say: Say) -> statetimeline.Panel:
    fired = ranked("ALERTS", 'alertstate="firing"')
    return _quiet(
        say,
        say("Alerts over time", "告警时间线"),
        say(
            "When each alert of this node fired. Those that fire together often have one cause: "
            "the one that started first. Empty: none fired.",
            "该节点各告警的触发时段。同时触发的告警往往同一原因，请先看最早的一个。"
            "为空：没有告警。",
        ),
        over_time(per("alertname, object", named_object(fired)), "{{alertname}} {{object}}"),
    )


def faults(say: Say) -> statetimeline.Panel:
    found = ranked("nodevitals:fault")
    return _quiet(
        say,
        say("Faults over time", "故障时间线"),
        say(
            "Current faults, also those too short for an alert: a fault that comes and goes is a "
            "loose contact, or a limit that is often reached. Empty: none.",
            "故障随时间的变化，包括未持续到触发告警的故障；"
            "反复出现的故障可能是接触不良或经常触及上限。为空：没有故障。",
        ),
        over_time(per("fault, object", named_object(found)), "{{fault}} {{object}}"),
    )


def _quiet(
    say: Say, title: str, description: str, query: prometheus.Dataquery
) -> statetimeline.Panel:
    """Severities over time; where there are none, the panel says so."""
    panel = timeline(title, description, query, mappings=[severity_ranks(say)], width=12)
    return panel.no_value(say("none", "无"))


def pods_over_time(say: Say) -> statetimeline.Panel:
    booked = recorded("nodevitals:job_device", VENDORS)
    return timeline(
        say("Pods over time", "Pod 时间线"),
        say(
            "Which pod had which accelerator when: compare with the alerts above. Empty: none, or "
            "no exporter reports pods.",
            "各加速器在何时被哪个 Pod 使用，可与上方告警对照。"
            "为空：没有 Pod，或没有采集 Pod 信息。",
        ),
        over_time(per("device, namespace, pod", booked), "{{device}} {{namespace}}/{{pod}}"),
        mappings=[mapping({"1": (say("running", "运行中"), BLUE)})],
        height=10,
    )


def pods(say: Say) -> table.Panel:
    """Pods of the time range, with their jobs."""
    booked = recorded("nodevitals:job_device", VENDORS)
    pod = "namespace, pod, owner, job_name, queue"
    namespace, job = say("Namespace", "命名空间"), say("Job", "作业")
    ever = f"count by ({pod}) (group by (uuid, {pod}) (last_over_time({booked}{RANGE})))"
    here = f"group by ({pod}) ({booked}) or 0 * {ever}"
    return grid(
        say("Pods and jobs", "Pod 与作业"),
        say(
            "Pods that had accelerators of this node within the time range, and whether they are "
            "still here: their owners are affected by its faults.",
            "所选时间范围内使用过该节点加速器的 Pod，以及是否仍在运行；节点故障会影响其负责人。",
        ),
        [
            Column(namespace, "namespace"),
            Column("Pod", "pod", link=link_to(say, "job", job, namespace=namespace, pod="Pod")),
            Column(job, "job_name"),
            Column(say("Owner", "负责人"), "owner"),
            Column(say("Queue", "队列"), "queue"),
            Column(say("Accelerators", "加速器数"), rows(ever)),
            Column(
                say("Now", "当前"),
                rows(here),
                mappings=[
                    mapping(
                        {
                            "1": (say("running", "运行中"), GREEN),
                            "0": (say("ended", "已结束"), GREY),
                        }
                    )
                ],
            ),
        ],
        height=7,
        sort_by=say("Now", "当前"),
        empty=say("No pods", "无 Pod"),
    )
