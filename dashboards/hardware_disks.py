"""The row of the hardware dashboard on disks: their health, arrays and mappings, and I/O."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_graphs import rate
from dashboards.node_queries import RANGE, per, recorded, scraped
from dashboards.panels import Steps, chart
from dashboards.queries import over_time, rows
from dashboards.states import GREEN, GREY, ORANGE, RED, YELLOW, mapping, yes_no
from dashboards.tables import Column, grid

DISK = "device"
# Of a graph: a storage node has dozens of disks.
DISKS = 10
NONE_OR: Steps = ((None, GREEN), (1, YELLOW))
NONE_MISSING: Steps = ((None, GREEN), (1, RED))
# A disk at its limit is hot, as in the rules.
MARGIN: Steps = ((None, RED), (1e-3, GREEN))
# The worst verdict of the rules on a disk.
VERDICTS = ("disk_wear_high", "disk_hot", "disk_media_errors", "disk_failing", "nvme_failed")


def panels(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    busy = f"clamp_max({rate(DISK, scraped('disk_busy_seconds_total'))}, 1)"
    operation = "device, operation"
    seconds = rate(operation, scraped("disk_operation_seconds_total"))
    operations = rate(operation, scraped("disk_operations_total"))
    return [
        disks(say),
        arrays(say),
        chart(
            say("Busy disks", "磁盘繁忙度"),
            say(
                "Share of time with I/O, of the busiest disks of the time range; also arrays and "
                "mappings.",
                "有 I/O 在处理的时间占比，取时间范围内最繁忙的磁盘，包括阵列与映射设备。",
            ),
            over_time(_most(busy, "disk_busy_seconds_total"), "{{device}}"),
            unit="percentunit",
            highest=1,
            width=7,
        ),
        chart(
            say("Time per request", "单次 I/O 耗时"),
            say(
                "Mean time of a request from queue to end, of the busiest disks. A line far above "
                "those of like disks: this disk is worn out or failing.",
                "请求从排队到完成的平均耗时，取最繁忙的磁盘。明显高于同类磁盘：该盘老化或即将失效。",
            ),
            over_time(
                _most(f"{seconds} / ({operations} > 0)", "disk_busy_seconds_total"),
                "{{device}} {{operation}}",
            ),
            unit="s",
            width=7,
        ),
    ]


def _most(expression: str, counter: str) -> str:
    """Return the devices whose counter grew most in the time range."""
    grown = f"sum by ({DISK}) (increase({scraped(counter)}{RANGE} @ end()))"
    return f"{expression} and on ({DISK}) topk({DISKS}, {grown})"


def disks(say: Say) -> table.Panel:
    """One row per disk, the worst first."""
    temperature = per(DISK, scraped("disk_temperature_celsius"))
    limit = per(DISK, scraped("disk_temperature_limit_celsius"))
    policy = 'on () group_left () nodevitals:threshold{threshold="disk_celsius"}'
    limits = f"({limit} or on ({DISK}) 0 * {temperature} + {policy})"
    used = per(DISK, scraped("disk_used_ratio"))
    # Written at a constant rate over its life, so far and from now on.
    left = f"{per(DISK, scraped('disk_power_on_seconds_total'))} * (1 - {used}) / ({used} > 0)"
    verdict = say("Verdict", "结论")
    return grid(
        say("Disk health", "磁盘健康"),
        say(
            "One row per disk, the worst first. Verdict: by the rules. Life left: at the disk's "
            "own average, while the alert DiskWearHigh goes by the last 14 days. Below limit: to "
            "its own limit, or the threshold disk_celsius. New media errors: of the time range.",
            "每块磁盘一行，最差的在前。结论来自告警规则。剩余寿命按全生命周期平均写入估算，"
            "告警 DiskWearHigh 则按最近 14 天。距上限：对照磁盘自身温度上限或阈值 disk_celsius。"
            "新增介质错误为所选时间范围内。",
        ),
        [
            Column(say("Device", "设备"), DISK, width=90),
            Column(verdict, rows(per(DISK, _verdict())), mappings=[_verdicts(say)], width=120),
            Column(
                "",
                rows(
                    f"topk by ({DISK}) (1, group by ({DISK}, model, serial) ("
                    f"last_over_time({scraped('disk_info')}{RANGE})))"
                ),
            ),
            Column(say("Model", "型号"), "model"),
            Column(say("Serial", "序列号"), "serial"),
            Column(say("Worn", "已磨损"), rows(used), "percentunit", decimals=0),
            Column(say("Life left", "剩余寿命"), rows(left), "s", decimals=1),
            Column(
                say("Spare", "备用块"),
                rows(per(DISK, scraped("disk_spare_ratio"))),
                "percentunit",
                decimals=0,
            ),
            Column(
                say("New media errors", "新增介质错误"),
                rows(per(DISK, f"round(increase({scraped('disk_media_errors_total')}{RANGE}))")),
                "short",
                NONE_OR,
            ),
            Column(
                say("Bad sectors", "坏扇区"),
                rows(f"sum by ({DISK}) ({scraped('disk_sectors')})"),
                "short",
            ),
            Column(say("Temperature", "温度"), rows(temperature), "celsius", decimals=0),
            Column(
                say("Below limit", "距上限"),
                rows(f"{limits} - on ({DISK}) {temperature}"),
                "celsius",
                MARGIN,
                decimals=0,
            ),
            Column("", rows(f"group by ({DISK}, reason) ({scraped('disk_unreadable')})")),
            Column(say("Not read", "未读取原因"), "reason", width=110),
        ],
        height=8,
        sort_by=verdict,
    )


def _verdict() -> str:
    """The place of the worst fault in VERDICTS, from 2 on; 1 not readable, 0 neither."""
    faults = (
        f"0 * {recorded('nodevitals:fault', f'fault=&{fault}&')} + {place}".replace("&", '"')
        for place, fault in enumerate(VERDICTS, 2)
    )
    others = f"0 * {scraped('disk_unreadable')} + 1 or 0 * {scraped('disk_info')}"
    return " or ".join((*faults, others))


def _verdicts(say: Say) -> ValueMap:
    return mapping(
        {
            "6": (say("not live", "已失效"), RED),
            "5": (say("failing", "即将失效"), RED),
            "4": (say("media errors", "介质错误"), ORANGE),
            "3": (say("hot", "过热"), ORANGE),
            "2": (say("wears out", "磨损过快"), YELLOW),
            "1": (say("not read", "未读取"), GREY),
            "0": (say("ok", "正常"), GREEN),
        }
    )


def arrays(say: Say) -> table.Panel:
    """One row per md array and device-mapper device."""
    paths, running = (per(DISK, scraped(f"disk_multipath_paths{end}")) for end in ("", "_running"))
    level = f'label_replace({scraped("disk_array_info")}, "kind", "$1", "level", "(.+)")'
    kind = f"group by ({DISK}, kind, name) ({level} or {scraped('disk_mapping_info')})"
    missing = say("Missing", "缺失")
    return grid(
        say("Arrays and mappings", "阵列与映射设备"),
        say(
            "md arrays, LVM, encryption, multipath. Missing: members or paths that lack. Suspended:"
            " all I/O waits, and processes hang.",
            "md 阵列、LVM、加密与 multipath。缺失：缺少的成员或路径数。已挂起：所有 I/O 等待，"
            "相关进程会挂起。",
        ),
        [
            Column(say("Device", "设备"), DISK, width=80),
            Column("", rows(kind)),
            Column(say("Kind", "类型"), "kind", width=90),
            Column(say("Name", "名称"), "name"),
            Column("", rows(f"group by ({DISK}, state) ({scraped('disk_array_state')})")),
            Column(say("State", "状态"), "state"),
            Column(
                missing,
                rows(f"{per(DISK, scraped('disk_array_degraded'))} or {paths} - {running}"),
                steps=NONE_MISSING,
                width=80,
            ),
            Column("", rows(f"group by ({DISK}, action) ({scraped('disk_array_sync_action')})")),
            Column(say("Sync", "同步"), "action"),
            Column(
                say("Done", "进度"),
                rows(per(DISK, scraped("disk_array_sync_progress_ratio"))),
                "percentunit",
                decimals=0,
            ),
            Column(
                say("Suspended", "已挂起"),
                rows(per(DISK, scraped("disk_mapping_suspended"))),
                mappings=[yes_no(say, good=False)],
                width=90,
            ),
        ],
        width=10,
        height=8,
        sort_by=missing,
        empty=say("No arrays", "无阵列"),
    )
