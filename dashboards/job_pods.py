"""Pods of a job: phase and restarts, CPU, memory, network and block I/O."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel, ValueMap, ValueMappingResult

from dashboards.board import link_to
from dashboards.job_queries import JOB, recorded
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import over_time, rows
from dashboards.states import BLUE, GREEN, GREY, RED, YELLOW
from dashboards.tables import Column, grid

KEY = "cluster, namespace, pod, owner, job_name, queue"
# kube-state-metrics may have no label cluster.
KUBERNETES = 'cluster=~"$cluster|", namespace=~"$namespace", pod=~"$pod"'
PHASES = ("Running", "Succeeded", "Pending", "Unknown", "Failed")


def panels(say: Say) -> list[Builder[Panel]]:
    """Return the panels of the row."""
    return [pods(say), *resources(say)]


def pods(say: Say) -> table.Panel:
    had = f"max by ({KEY}) (last_over_time(nodevitals:pod_accelerators:count{{{JOB}}}[$__range]))"
    restarts = (
        f"round(sum by (namespace, pod) (increase(kube_pod_container_status_restarts_total"
        f"{{{KUBERNETES}}}[$__range])))"
    )
    phases = " or on (namespace, pod) ".join(
        f'max by (namespace, pod) (kube_pod_status_phase{{phase="{phase}", {KUBERNETES}}} == 1) '
        f"* 0 + {value}"
        for value, phase in enumerate(PHASES)
    )

    def of_pods(value: str) -> str:
        return f"0 * {had} + on (namespace, pod) group_left () ({value})"

    worst = f"topk(100, {of_pods(restarts)} or on (namespace, pod) 0 * {had})"
    pod = say("Pod", "Pod")
    again = say("Restarts", "重启次数")
    only = f"and on (namespace, pod) {worst}"
    return grid(
        say("Pods with devices", "占用设备的 Pod"),
        say(
            "Pods that have devices, or had some in the time range; at most a hundred, those with "
            "restarts first. Phase and restarts are from kube-state-metrics and empty without it. "
            "Failed or restarting: read the log of the pod, then the faults above.",
            "时间范围内占用过设备的 Pod，最多一百个，重启过的在前。"
            "阶段和重启次数来自 kube-state-metrics，未接入时为空。"
            "失败或反复重启：先看 Pod 日志，再看上方故障。",
        ),
        [
            Column(pod, "pod", link=link_to(say, "job", pod, pod=pod)),
            Column(say("Namespace", "命名空间"), "namespace"),
            Column(say("Job", "作业"), "job_name"),
            Column(say("Owner", "负责人"), "owner"),
            Column(say("Queue", "队列"), "queue"),
            Column(say("Devices", "设备数"), rows(f"({had}) {only}")),
            Column(
                say("Phase", "阶段"), rows(f"({of_pods(phases)}) {only}"), mappings=[_phases(say)]
            ),
            Column(
                again,
                rows(f"({of_pods(restarts)}) {only}"),
                steps=((None, GREEN), (1, YELLOW)),
            ),
        ],
        sort_by=again,
    )


def _phases(say: Say) -> ValueMap:
    words = {
        "Running": (say("running", "运行中"), GREEN),
        "Succeeded": (say("succeeded", "已完成"), BLUE),
        "Pending": (say("pending", "等待中"), YELLOW),
        "Unknown": (say("unknown", "未知"), GREY),
        "Failed": (say("failed", "失败"), RED),
    }
    return ValueMap(
        options={
            str(value): ValueMappingResult(text=words[phase][0], color=words[phase][1], index=value)
            for value, phase in enumerate(PHASES)
        }
    )


def resources(say: Say) -> list[timeseries.Panel]:
    """What cAdvisor measures of the pods."""
    source = say(
        " From cAdvisor: empty where it is not scraped.", "数据来自 cAdvisor，未采集时为空。"
    )
    both = {"received": say("received", "接收"), "transmitted": say("transmitted", "发送")}
    disk = {"read": say("read", "读"), "written": say("written", "写")}
    return [
        _resource(
            "pod_cpu:cores",
            say("CPU", "CPU"),
            say(
                "CPU time of the pods, in cores. High while the devices are idle: the data loader "
                "or the compilation is the bottleneck.",
                "Pod 使用的 CPU 核数。CPU 高而设备空闲：瓶颈在数据加载或编译。",
            )
            + source,
            "none",
            {"": say("cores", "核")},
        ),
        _resource(
            "pod_memory:bytes",
            say("Memory", "内存"),
            say(
                "Working set of the pods. A steady rise ends with the OOM killer.",
                "Pod 的内存工作集。持续上升最终会触发 OOM。",
            )
            + source,
            "bytes",
            {"": say("working set", "工作集")},
        ),
        _resource(
            "pod_network:bytes_rate5m",
            say("Network", "网络"),
            say(
                "Bytes per second of the pods' network interfaces, without RDMA. With hostNetwork "
                "it is the traffic of the whole node.",
                "Pod 网卡流量，不含 RDMA。使用 hostNetwork 时为整个节点的流量。",
            )
            + source,
            "Bps",
            both,
        ),
        _resource(
            "pod_block_io:bytes_rate5m",
            say("Block I/O", "块设备读写"),
            say(
                "Bytes per second read from and written to local disks. Network file systems are "
                "not part of it.",
                "本地磁盘读写流量，不含网络文件系统。",
            )
            + source,
            "Bps",
            disk,
        ),
    ]


def _resource(
    metric: str, title: str, description: str, unit: str, directions: dict[str, str]
) -> timeseries.Panel:
    matchers = {way: f'direction="{way}"' if way else "" for way in directions}
    return chart(
        title,
        description,
        *(
            over_time(f"sum({recorded(metric, matchers[way])})", word)
            for way, word in directions.items()
        ),
        unit=unit,
        width=6,
        height=7,
    )
