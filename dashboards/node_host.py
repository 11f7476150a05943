"""The node's host, and the probes of its agent."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.language import Say
from dashboards.node_graphs import increase, quiet
from dashboards.node_queries import RANGE, per, scraped
from dashboards.panels import Steps, chart
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, RED, YELLOW, yes_no
from dashboards.tables import Column, grid

PROBE = "probe, target"
NONE_OR: Steps = ((None, GREEN), (1, YELLOW))
LOAD = 'minutes="5"'
LATE: Steps = ((None, GREEN), (3, RED))


def host(say: Say) -> list[timeseries.Panel]:
    """CPU, memory, load, clock and the kernel's messages."""
    memory = scraped("node_memory_available_bytes")
    return [
        chart(
            say("CPU and memory", "CPU 与内存"),
            say(
                "Share of CPU time and of memory in use. Full memory: the kernel will end "
                "processes; see the events.",
                "CPU 时间与内存的使用率。内存耗尽时内核会终止进程，请查看内核事件。",
            ),
            over_time(scraped("node_cpu_utilization_ratio"), "CPU"),
            over_time(
                f"1 - {memory} / {scraped('node_memory_total_bytes')}", say("memory", "内存")
            ),
            unit="percentunit",
            highest=1,
            width=8,
        ),
        chart(
            say("Load and blocked processes", "负载与阻塞进程"),
            say(
                "Load of 5 minutes per CPU, and processes in uninterruptible sleep: many of them "
                "wait for a mount or a driver that hangs.",
                "每 CPU 的 5 分钟负载，以及处于不可中断睡眠（D 状态）的进程数；"
                "数量多时说明挂载点或驱动挂起。",
            ),
            over_time(
                f"{scraped('node_load_average', LOAD)} / on (instance) {scraped('node_cpus')}",
                say("load per CPU", "每 CPU 负载"),
            ),
            over_time(scraped("node_blocked_processes"), say("blocked processes", "阻塞进程数")),
            unit="short",
            width=8,
        ),
        chart(
            say("Clock", "时钟"),
            say(
                "What the kernel still has to correct, and the maximum error. A growing error: no "
                "time daemon synchronizes the clock.",
                "时钟待校正的偏移与最大误差。误差持续增长：没有时间同步服务。",
            ),
            over_time(scraped("node_clock_offset_seconds"), say("offset", "偏移")),
            over_time(
                scraped("node_clock_maximum_error_seconds"), say("maximum error", "最大误差")
            ),
            unit="s",
            lowest=None,
            width=8,
        ),
        quiet(
            say,
            chart(
                say("Kernel events", "内核事件"),
                say(
                    "Kernel messages per step, by event: out of memory, hung tasks, I/O and memory "
                    "errors. Empty: none, which is good.",
                    "每个采样步长内的内核消息（按事件）：内存不足、任务挂起、I/O 与内存错误等。"
                    "为空：没有事件。",
                ),
                over_time(increase("event", scraped("kernel_events_total")), "{{event}}"),
                over_time(
                    increase("driver, event", scraped("kernel_device_events_total")),
                    "{{driver}} {{event}}",
                ),
                unit="short",
                width=12,
            ),
        ),
        quiet(
            say,
            chart(
                say("Memory errors of the host", "主机内存错误"),
                say(
                    "New errors that memory controllers count, per step. Uncorrected ones, or many "
                    "corrected: replace the module. Empty: none, which is good.",
                    "内存控制器每个采样步长内新增的错误。不可纠正或大量可纠正错误：请更换内存条。"
                    "为空：没有错误。",
                ),
                over_time(
                    increase("controller, kind", scraped("node_memory_errors_total")),
                    "{{controller}} {{kind}}",
                ),
                unit="short",
                width=12,
            ),
        ),
    ]


def nvme(say: Say) -> table.Panel:
    """One row per NVMe controller."""
    labels = "device, model, serial, firmware"
    info = f"group by ({labels}) (last_over_time({scraped('node_nvme_info')}{RANGE}))"
    return grid(
        say("NVMe", "NVMe"),
        say(
            "NVMe controllers. Not live: it is resetting or dead; see the kernel events.",
            "NVMe 控制器。不在线：正在复位或已失效，请查看内核事件。",
        ),
        [
            Column(say("Device", "设备"), "device", width=90),
            Column(say("Model", "型号"), "model"),
            Column(say("Serial", "序列号"), "serial"),
            Column(say("Firmware", "固件"), "firmware"),
            Column("", rows(info)),
            Column(
                say("Live", "在线"),
                rows(per("device", scraped("node_nvme_live"))),
                mappings=[yes_no(say)],
                width=80,
            ),
        ],
        width=10,
        height=10,
        sort_by=say("Device", "设备"),
        descending=False,
    )


def probes(say: Say) -> table.Panel:
    """One row per probe and target of the agent."""
    success = scraped("probe_last_success_timestamp_seconds")
    # When it was scraped: the time since then is no fault of the probe.
    age = per(PROBE, f"timestamp({success}) - {success}")
    interval = per(PROBE, scraped("probe_interval_seconds"))
    failed = scraped("probe_runs_total", 'outcome=~"error|timeout|stuck"')
    name = say("Probe", "探测项")
    return grid(
        say("Probes", "探测项"),
        say(
            "The agent's probes. Not working: what it reports is unknown, see the log of the "
            "agent. Stuck: a driver or a file system does not return. Age in intervals: of the "
            "last success; over 3 its samples are gone.",
            "采集器的各探测项。未成功：其内容未知，请查看采集器日志。卡住：驱动或文件系统未返回。"
            "数据年龄以探测间隔计，超过 3 时数据已失效。",
        ),
        [
            Column(name, "probe"),
            Column(say("Target", "对象"), "target"),
            Column(
                say("Working", "成功"),
                rows(per(PROBE, scraped("probe_success"))),
                mappings=[yes_no(say)],
                width=80,
            ),
            Column(say("Age", "数据年龄"), rows(age), "s"),
            Column(
                say("Age in intervals", "数据年龄（间隔数）"),
                rows(f"{age} / {interval}"),
                steps=LATE,
                decimals=1,
            ),
            Column(
                say("Duration", "耗时"), rows(per(PROBE, scraped("probe_duration_seconds"))), "s"
            ),
            Column(
                say("Stuck for", "卡住时长"),
                rows(per(PROBE, scraped("probe_stuck_seconds"))),
                "s",
                NONE_OR,
            ),
            Column(
                say("Failed runs", "失败次数"),
                rows(f"round(sum by ({PROBE}) (increase({failed}{RANGE})))"),
                "short",
                NONE_OR,
            ),
        ],
        width=14,
        height=10,
        sort_by=name,
        descending=False,
    )


def durations(say: Say) -> timeseries.Panel:
    return chart(
        say("Duration of probes", "探测耗时"),
        say(
            "Duration of the last run of each probe. A rising line: what it reads responds more "
            "and more slowly.",
            "各探测项最近一次运行的耗时。持续上升：被探测对象响应越来越慢。",
        ),
        over_time(scraped("probe_duration_seconds"), "{{probe}} {{target}}"),
        unit="s",
        width=24,
        height=7,
    )
