"""The fleet: is anything wrong, what, where, since when, and what to do. Below the first screen:
what changed, the worst links and devices, data and versions, reliability.
"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import (
    fleet_alerts,
    fleet_changes,
    fleet_data,
    fleet_places,
    fleet_reliability,
    fleet_worst,
)
from dashboards.board import Board
from dashboards.language import Say
from dashboards.panels import number
from dashboards.queries import BY_POOL, CLUSTER, over_time
from dashboards.states import GREEN, GREY, STATE_COLOURS, state_words


def board(say: Say) -> Board:
    """Return the dashboard."""
    made = Board(
        say,
        "fleet",
        ("Fleet", "集群总览"),
        (
            "Health of all nodes and accelerators: what is wrong, where, since when, what to do.",
            "所有节点和加速卡的健康状态：哪里异常、从何时开始、如何处理。",
        ),
        ["cluster", "pool"],
    )
    made.alerts(f'{CLUSTER}, severity="critical"')
    return made.rows(
        ("", [*numbers(say), *fleet_alerts.panels(say)]),
        (say("Changes", "变化"), fleet_changes.panels(say)),
        (say("Worst links and devices", "最差链路与设备"), fleet_worst.panels(say)),
        (say("Reliability", "可靠性"), fleet_reliability.panels(say)),
        (say("Places", "机柜与 NVLink 域"), fleet_places.places(say)),
        (say("Jobs", "作业"), fleet_places.jobs(say)),
        (say("Freshness and versions", "数据时效与版本"), fleet_data.panels(say)),
    )


def numbers(say: Say) -> Sequence[Builder[Panel]]:
    """Return the numbers of nodes and of accelerators in each state, the worst first."""
    nodes = {
        "lost": say(
            "Nothing reaches the node, or devices or mounts of it are gone. Look at its row below.",
            "节点无法连通，或其设备、挂载点已丢失。请查看下方对应行。",
        ),
        "failed": say(
            "Nodes with a critical fault: jobs on them fail. Their alerts say what to do.",
            "存在严重故障的节点，其上作业会失败。处理方法见对应告警。",
        ),
        "degraded": say(
            "Nodes with a warning: jobs go on. Repair them in working hours.",
            "存在警告级故障的节点，作业仍可运行。可在工作时间处理。",
        ),
        "unknown": say(
            "Nodes about which a part of the data is missing: not known to be healthy.",
            "部分数据缺失的节点，无法确认其健康。",
        ),
        "maintenance": say(
            "Nodes with planned work: their alerts are muted.",
            "处于计划内维护的节点，其告警已静音。",
        ),
        "healthy": say(
            "Nodes without any fault, monitored completely.", "监控完整且无任何故障的节点。"
        ),
    }
    devices = {
        "lost": say("GPUs and NPUs that are gone.", "已丢失的 GPU 和 NPU。"),
        "failed": say(
            "GPUs and NPUs with a critical fault: jobs on them fail.",
            "存在严重故障的 GPU 和 NPU，其上作业会失败。",
        ),
        "degraded": say("GPUs and NPUs with a warning.", "存在警告级故障的 GPU 和 NPU。"),
        "unknown": say(
            "GPUs and NPUs that cannot be read now, also those of nodes without data.",
            "当前无法读取的 GPU 和 NPU，包括无数据节点上的设备。",
        ),
        "healthy": say("GPUs and NPUs without any fault.", "无任何故障的 GPU 和 NPU。"),
    }
    return [
        *(count(say, "nodevitals:nodes:count", "Nodes", "节点", *one) for one in nodes.items()),
        *(
            count(say, "nodevitals:accelerators:count", "Devices", "设备", *one)
            for one in devices.items()
        ),
        in_service(say),
    ]


def count(
    say: Say, metric: str, english: str, chinese: str, state: str, description: str
) -> stat.Panel:
    """Return the number of objects in a state: coloured where there is one."""
    good = GREEN if state != "healthy" else GREY
    word = state_words(say)[state]
    if state == "maintenance":
        word = say("in maintenance", "维护中")
    everything = f"sum({metric}{{{BY_POOL}}})"
    return number(
        say(f"{english} {word}", f"{chinese}：{word}"),
        description,
        over_time(f'sum({metric}{{{BY_POOL}, state="{state}"}}) or 0 * {everything}'),
        steps=((None, good), (1, STATE_COLOURS[state])),
        width=4,
        height=3,
    )


def in_service(say: Say) -> stat.Panel:
    return number(
        say("In service", "在役率"),
        say(
            "Share of the nodes that can run jobs: healthy, degraded or unknown. The others are"
            " lost,"
            " failed or in maintenance.",
            "可运行作业的节点占比（正常、降级或未知）；其余为丢失、故障或维护中。",
        ),
        over_time(
            f'sum(nodevitals:nodes:count{{{BY_POOL}, state=~"healthy|degraded|unknown"}})'
            f" / sum(nodevitals:nodes:count{{{BY_POOL}}})"
        ),
        unit="percentunit",
        steps=((None, "red"), (0.8, "yellow"), (0.9, GREEN)),
        width=4,
        height=3,
        decimals=1,
    )
