"""Devices of a job: the worst in a table, stragglers, utilization and memory over time."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import job_graphs
from dashboards.board import link_to
from dashboards.job_queries import DEVICES, of_devices, recorded, scraped
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW, states
from dashboards.tables import Column, grid

ROW = "uuid, namespace, pod"
OF_ONE_JOB = "cluster, namespace, job_name"


def panels(say: Say) -> list[Builder[Panel]]:
    """Return the panels of the row."""
    return [
        devices(say),
        utilization(say),
        lowest_pods(say),
        memory(say),
        *job_graphs.panels(say),
        stragglers(say),
    ]


def devices(say: Say) -> table.Panel:
    """The worst hundred: faulty ones, then by their utilization."""
    state, utilization = recorded("job_device:state"), recorded("job_device:utilization")
    # More rows than that take seconds, and no one reads them. A product has no name, which
    # would be a column of its own.
    worst = f"topk(100, {recorded('job_device:rank')})"
    used, total = (
        f"({scraped(f'accelerator_memory_{name}_bytes')} and on (uuid) {worst})"
        for name in ("used", "total")
    )

    def column(title: str, value: str, unit: str, **more: Any) -> Column:
        return Column(title, rows(of_devices(value, f"(0 * {worst} + 1)")), unit, **more)

    return grid(
        say("Devices, worst first", "设备（异常优先）"),
        say(
            "The hundred worst devices of the job: by state, then by the lowest utilization over 5 "
            "minutes. Empty: not reported. Unknown: no agent reports the device.",
            "作业中最差的 100 个设备：先按状态，再按最近 5 分钟利用率从低到高。"
            "空白表示未上报；未知表示采集器没有该设备的数据。",
        ),
        [
            *_who(say),
            # The sort of the table is stable: among equals, the order of the first query stays.
            Column(
                say("Utilization", "利用率"),
                rows(f"sort(1 * {utilization} and on ({ROW}) {worst})"),
                "percentunit",
                decimals=0,
            ),
            Column(
                say("State", "状态"),
                rows(f"1 * {state} and on ({ROW}) {worst}"),
                mappings=[states(say)],
            ),
            column(
                say("Memory", "显存"),
                f"{used} / ({total} > 0)",
                "percentunit",
                decimals=0,
            ),
            column(
                say("Temperature", "温度"),
                scraped("accelerator_temperature_celsius"),
                "celsius",
                steps=((None, GREEN), (80, YELLOW), (90, RED)),
            ),
            column(
                say("Power", "功耗"),
                scraped("accelerator_power_watts"),
                "watt",
                decimals=0,
            ),
        ],
        sort_by=say("State", "状态"),
    )


def _who(say: Say) -> list[Column]:
    node = say("Node", "节点")
    return [
        Column(node, "instance", link=link_to(say, "node", node, instance=node)),
        Column(say("Device", "设备"), "device", width=90),
        Column(say("Pod", "Pod"), "pod"),
        Column(say("Job", "作业"), "job_name"),
        Column(say("Owner", "负责人"), "owner"),
    ]


def utilization(say: Say) -> timeseries.Panel:
    mean = f"sum({recorded('pod_utilization:sum')}) / sum({recorded('pod_utilization:count')})"
    return chart(
        say("Utilization", "利用率"),
        say(
            "Mean of the devices and the lowest of them, averaged over 5 minutes. The lowest far "
            "below the mean: one device waits for work, or is not used. All at 0: the job hangs.",
            "设备利用率的平均值与最低值（5 分钟平均）。最低值远低于平均值：有设备在等待或未使用；"
            "全部为 0：作业可能卡住。",
        ),
        over_time(mean, say("mean", "平均")),
        over_time(f"min({recorded('pod_utilization:min')})", say("lowest", "最低")),
        unit="percentunit",
        highest=1.0,
        width=8,
    )


def lowest_pods(say: Say) -> timeseries.Panel:
    lowest = recorded("pod_utilization:min")
    return chart(
        say("Pods with the lowest utilization", "利用率最低的 Pod"),
        say(
            "Lowest utilization of a device, of the ten pods that are lowest at the end of the "
            "time range. A pod that drops alone is the cause, the others wait for it.",
            "时间范围终点处最低的十个 Pod 的设备最低利用率。若只有一个 Pod 先下降，"
            "其他 Pod 通常是在等待它。",
        ),
        over_time(
            f"{lowest} and on (cluster, namespace, pod) bottomk(10, {lowest} @ end())",
            "{{namespace}}/{{pod}}",
        ),
        unit="percentunit",
        highest=1.0,
        width=8,
    )


def memory(say: Say) -> timeseries.Panel:
    used = recorded("pod_accelerator_memory_used:bytes")
    total = recorded("pod_accelerator_memory_total:bytes")
    pods = "cluster, namespace, pod"
    return chart(
        say("Device memory", "显存使用率"),
        say(
            "Share of the device memory in use: all devices, and the fullest pod. Near 100 % the "
            "next allocation may fail; frameworks that reserve memory stay there.",
            "显存使用率：全部设备以及最高的 Pod。接近 100% 时下一次分配可能失败；"
            "预留显存的框架会一直处于高位。",
        ),
        over_time(f"sum({used}) / sum({total})", say("all", "全部")),
        over_time(
            f"max(sum by ({pods}) ({used}) / sum by ({pods}) ({total}))",
            say("fullest pod", "最高的 Pod"),
        ),
        unit="percentunit",
        highest=1.0,
        width=8,
    )


def stragglers(say: Say) -> table.Panel:
    """The devices that are slowest against the median of their job."""
    utilization = recorded("job_device:utilization_of_median")
    slowest = f"bottomk(20, {utilization})"
    # Medians only of the jobs that these belong to.
    peers = f"{DEVICES} and on ({OF_ONE_JOB}) {slowest}"

    def against_median(value: str) -> str:
        median = f"quantile by ({OF_ONE_JOB}) (0.5, {of_devices(value, f'({peers})')}) > 0"
        own = of_devices(value, f"(0 * {slowest} + 1)")
        return f"({own}) / on ({OF_ONE_JOB}) group_left () ({median})"

    measures = {
        say("Utilization / median", "利用率/中位数"): f"sort(1 * {slowest})",
        say("Clock / median", "频率/中位数"): against_median(scraped("nvidia_sm_clock_hertz")),
        say("Power / median", "功耗/中位数"): against_median(scraped("accelerator_power_watts")),
    }
    steps = ((None, RED), (0.7, ORANGE), (0.9, GREEN))
    slowdowns = f"sum by (uuid) ({scraped('nvidia_slowdown_active')})"
    columns = [
        Column(title, rows(value), "percentunit", steps=steps, decimals=0)
        for title, value in measures.items()
    ]
    return grid(
        say("Stragglers", "慢设备"),
        say(
            "The twenty devices with the lowest utilization against the median of their job, with "
            "clock and power of now. A low clock or a slowdown: the device is slow, replace its "
            "node. A low utilization at the normal clock: it waits. Pods without a job are left "
            "out.",
            "利用率相对本作业中位数最低的 20 个设备，并列出当前频率和功耗。频率低或正在降频："
            "设备本身变慢，请更换节点；频率正常但利用率低：设备在等待。不含没有作业名的 Pod。",
        ),
        [
            *_who(say),
            *columns,
            Column(
                say("Slowdowns", "降频原因数"),
                rows(of_devices(slowdowns, f"(0 * {slowest} + 1)")),
                steps=((None, GREEN), (1, ORANGE)),
            ),
        ],
        sort_by=next(iter(measures)),
        descending=False,
        height=8,
    )
