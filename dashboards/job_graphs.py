"""Devices of a job over time: their temperature, clock and power."""

from __future__ import annotations

from grafana_foundation_sdk.builders import timeseries

from dashboards.job_queries import recorded
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import over_time

ROW = "uuid, namespace, pod"
LINES = 64
"""More lines than that are one colour, and a job of eight nodes has as many devices."""


def panels(say: Say) -> list[timeseries.Panel]:
    """Return the graphs, three in a row."""
    return [temperature(say), clock(say), power(say)]


def temperature(say: Say) -> timeseries.Panel:
    """The hottest first: heat is what a graph over time explains."""
    return _of_devices(
        say,
        say("Temperature", "温度"),
        say(
            "One line per device, and the mean of all. One hotter than the others: its cooling; "
            "all devices of a node: its fans or air flow. A line that ends: the device is no "
            f"longer read. Of more than {LINES} devices, the hottest in the time range.",
            "每个设备一条曲线，另有全部设备的平均值。仅一个偏高：检查其散热；同一节点全部偏高："
            "检查风扇或风道；曲线中断：该设备已读不到。"
            f"超过 {LINES} 个设备时，只画时间范围内温度最高的。",
        ),
        "temperature_celsius",
        "topk",
        "celsius",
    )


def clock(say: Say) -> timeseries.Panel:
    """Only of GPUs."""
    return _of_devices(
        say,
        say("SM clock of the GPUs", "GPU SM 频率"),
        say(
            "One line per GPU, and the mean of all. One that is low while the others are not is "
            "slowed down: by heat, power or its driver. NPUs do not report theirs. Of more than "
            f"{LINES} GPUs, the slowest in the time range.",
            "每个 GPU 一条曲线，另有全部 GPU 的平均值。只有一个偏低：因温度、供电或驱动而降频。"
            f"NPU 不上报频率。超过 {LINES} 个 GPU 时，只画时间范围内频率最低的。",
        ),
        "sm_clock_hertz",
        "bottomk",
        "hertz",
    )


def power(say: Say) -> timeseries.Panel:
    """Of each device; the sum stands at the top of the dashboard."""
    return _of_devices(
        say,
        say("Power per device", "单设备功耗"),
        say(
            "One line per device, and the mean of all. Lower than the others: the device waits, or "
            "is slowed down; all of them low: the job waits. Of more than "
            f"{LINES} devices, the lowest in the time range.",
            "每个设备一条曲线，另有全部设备的平均值。只有一个偏低：该设备在等待或已降频；全部偏低：作业在等待。"
            f"超过 {LINES} 个设备时，只画时间范围内功耗最低的。",
        ),
        "power_watts",
        "bottomk",
        "watt",
    )


def _of_devices(
    say: Say, title: str, description: str, measure: str, choose: str, unit: str
) -> timeseries.Panel:
    """A graph of what a rule records per device and pod. What is chosen is what was there at any
    time in the range: a device that is lost ends, and is not left out.
    """
    every = recorded(f"job_device:{measure}")
    extreme = {"topk": "max_over_time", "bottomk": "min_over_time"}[choose]
    chosen = f"{choose}({LINES}, {extreme}({every}[$__range] @ end()))"
    return chart(
        title,
        description,
        over_time(f"avg({every})", say("mean", "平均")),
        over_time(f"{every} and on ({ROW}) {chosen}", "{{instance}} {{device}}"),
        unit=unit,
        lowest=None if unit == "celsius" else 0.0,
        width=8,
    )
