"""The row of the hardware dashboard on the chassis, by its BMC: parts that are not ok, then power,
temperatures and fans over time.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.models.dashboard import ValueMap

from dashboards.language import Say
from dashboards.node_queries import RANGE, scraped
from dashboards.panels import chart
from dashboards.queries import over_time, rows
from dashboards.states import GREY, ORANGE, RED, YELLOW, mapping
from dashboards.tables import Column, grid

# Sensors of a graph: a BMC has up to a hundred.
SENSORS = 8


def panels(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    unset = say(" Empty: the probe bmc reads no BMC.", "为空：探针 bmc 未读取到 BMC。")
    return [
        parts(say),
        chart(
            say("Chassis temperatures", "机箱温度"),
            say(
                "Air that enters, and the hottest sensors of the time range. Inlet high on all "
                "nodes of a rack: the cooling of the room.",
                "进风温度，以及时间范围内最热的传感器。若同机柜各节点进风温度都高，请检查机房制冷。",
            )
            + unset,
            over_time(scraped("bmc_inlet_temperature_celsius"), say("inlet air", "进风")),
            over_time(_highest("bmc_temperature_celsius"), "{{sensor}}"),
            unit="celsius",
            width=6,
        ),
        chart(
            say("Chassis power", "机箱功率"),
            say(
                "Power that the whole chassis draws. A step down while jobs run: a power supply "
                "or its feed was lost, and the GPUs are slowed down.",
                "整机功率。作业运行中突然下降：可能失去一路电源，GPU 被降频。",
            )
            + unset,
            over_time(scraped("bmc_power_watts"), say("chassis", "整机")),
            unit="watt",
            width=5,
        ),
        chart(
            say("Fans", "风扇转速"),
            say(
                "Speed of the slowest fans of the time range. One below the others is worn out or "
                "blocked; all high: hot air, or a fan has failed.",
                "时间范围内转速最低的风扇。单个偏低：磨损或受阻；全部偏高：进风过热或有风扇失效。",
            )
            + unset,
            over_time(_lowest("bmc_fan_speed_rpm"), "{{sensor}}"),
            unit="rotrpm",
            width=5,
        ),
    ]


def _highest(name: str) -> str:
    """Return the sensors with the highest values, the same ones at all times."""
    one = scraped(name)
    return f"{one} and topk({SENSORS}, max_over_time({one}{RANGE} @ end()))"


def _lowest(name: str) -> str:
    one = scraped(name)
    return f"{one} and bottomk({SENSORS}, min_over_time({one}{RANGE} @ end()))"


def parts(say: Say) -> table.Panel:
    """One row per part that is not ok, and per kind of new events."""
    kinds = {
        "power_supply": (say("power supply", "电源"), 'state!~"ok|absent"'),
        "fan": (say("fan", "风扇"), 'state!~"ok|absent"'),
        "temperature": (say("temperature", "温度"), 'state!="ok"'),
        "battery": (say("battery", "电池"), 'state!~"ok|absent"'),
    }
    found = [
        _part(scraped(f"bmc_{kind}_state", matcher), word)
        for kind, (word, matcher) in kinds.items()
    ]
    redundancy = scraped("bmc_redundancy", 'state!="full"')
    found.append(_part(redundancy, say("redundancy", "冗余")))
    events = f"round(increase({scraped('bmc_events_total')}{RANGE})) > 0"
    found.append(_named(_part(events, say("new events", "新事件")), "type", "severity"))
    unreadable = _part(scraped("bmc_unreadable"), "BMC")
    found.append(_named(unreadable, "part", "reason"))
    union = " or ".join(found)
    sensor = say("Sensor", "传感器")
    return grid(
        say("Chassis parts that are not ok", "异常的机箱部件"),
        say(
            "Power supplies, fans, temperatures and redundancy by the limits of the BMC itself, "
            "new entries of its event log by type, and what could not be read. An empty slot is "
            "no fault.",
            "按 BMC 自身阈值判定的电源、风扇、温度与冗余异常，按类型统计的新事件日志，"
            "以及无法读取的部分。空槽位不算故障。",
        ),
        [
            Column(say("Part", "部件"), "what", width=130),
            Column(sensor, "sensor"),
            Column(say("State", "状态"), "state", mappings=[_states(say)], width=130),
            Column(say("Number", "数量"), rows(f"max by (what, sensor, state) ({union})")),
        ],
        width=8,
        height=8,
        sort_by=sensor,
        descending=False,
        empty=say("All parts are ok", "所有部件正常"),
    )


def _part(expression: str, word: str) -> str:
    return f'label_replace({expression}, "what", "{word}", "", "")'


def _named(expression: str, name: str, state: str) -> str:
    """Return the series with two of their labels as `sensor` and `state`."""
    with_name = f'label_replace({expression}, "sensor", "$1", "{name}", "(.+)")'
    return f'label_replace({with_name}, "state", "$1", "{state}", "(.+)")'


def _states(say: Say) -> ValueMap:
    return mapping(
        {
            "failed": (say("failed", "失效"), RED),
            "input_lost": (say("no input", "无输入"), RED),
            "critical": (say("critical", "严重"), RED),
            "lost": (say("lost", "失去冗余"), RED),
            "predictive_failure": (say("will fail", "预测失效"), ORANGE),
            "configuration_error": (say("configuration", "配置错误"), ORANGE),
            "degraded": (say("degraded", "降级"), YELLOW),
            "warning": (say("warning", "警告"), YELLOW),
            "low": (say("low", "电量低"), YELLOW),
            "inactive": (say("inactive", "未启用"), GREY),
        }
    )
