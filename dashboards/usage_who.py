"""Usage over time, and by owner, queue and pool."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import Link, chart
from dashboards.queries import over_time, rows
from dashboards.states import BLUE, GREEN, GREY, RED, YELLOW
from dashboards.tables import Column, grid
from dashboards.usage_queries import (
    BOOKED,
    IDLE,
    IDLE_SHARE,
    MEASURED,
    NUMBERS,
    POOL,
    USER,
    energy_of,
    hours_of,
    mean_of,
)


def top_owners(state: str) -> str:
    """Return the ten owners with the most hours in the whole range, the same at all its times."""
    hours = hours_of(state, "owner").replace("[$__range]", "[$__range] @ end()")
    return f"topk(10, {hours})"


def by_state(say: Say) -> timeseries.Panel:
    words = {
        "used": (say("used", "使用中"), GREEN),
        "idle": (say("idle", "占用未使用"), YELLOW),
        "unmeasured": (say("booked, utilization not known", "已占用，利用率未知"), "light-blue"),
        "unbooked": (say("used without a pod", "无 Pod 使用"), "purple"),
        "free": (say("free", "空闲可用"), BLUE),
        "unavailable": (say("unavailable", "不可用"), RED),
        "unknown": (say("unknown", "未知"), GREY),
    }
    return chart(
        say("Accelerators by use", "加速卡使用状态"),
        say(
            "What all accelerators of the pools do, over time. Much idle beside little free: "
            "owners keep what others wait for. Much free: jobs do not fit, or there are none.",
            "所选资源池中全部加速卡的状态变化。空闲占用多而可用少：有人占而不用；"
            "可用很多：作业放不下或没有作业。",
        ),
        *(
            over_time("12 * " + mean_of(f'{POOL}, state="{state}"'), word).interval("10m")
            for state, (word, _) in words.items()
        ),
        unit="short",
        stacked=True,
        colours=dict(words.values()),
    )


def by_owner(say: Say) -> timeseries.Panel:
    selector = f"{USER}, {BOOKED}"
    mean, top = mean_of(selector, "owner"), top_owners(BOOKED)
    return chart(
        say("Booked by owner", "各负责人占用量"),
        say(
            "Booked accelerators of the ten owners with the most booked hours in the time range.",
            "所选时间范围内占用卡时最多的十位负责人的占用量变化。",
        ),
        over_time(f"12 * ({mean}) and on (owner) {top}", "{{owner}}").interval("10m"),
        unit="short",
        stacked=True,
    )


def ranking(
    say: Say, title: tuple[str, str], label: str, column: tuple[str, str], width: int
) -> table.Panel:
    """Hours by one label: who has the most, and how much of it is idle."""
    idle, booked = hours_of(IDLE, label), hours_of(BOOKED, label)
    measured = hours_of(MEASURED, label)
    name = say(*column)
    booked_hours = say("Booked hours", "占用卡时")
    link: Link | None = None if label == "pool" else link_to(say, "job", name, **{label: name})
    top = f"and on ({label}) topk(50, {booked})"
    return grid(
        say(*title),
        say(
            "The fifty with the most booked hours in the time range, with their idle share and "
            "energy, and what they have booked now. Hours before the rules were installed are "
            "missing. Empty name: without one.",
            "所选时间范围内占用卡时最多的五十项，含空闲占比、能耗和当前占用量。"
            "规则安装之前的卡时不计入。名称为空表示未设置。",
        ),
        [
            Column(name, label, link=link),
            Column(
                say("Booked now", "当前占用"),
                rows(f"sum by ({label}) ({NUMBERS}{{{USER}, {BOOKED}}}) {top}"),
                decimals=0,
            ),
            Column(booked_hours, rows(f"topk(50, {booked})"), decimals=0),
            Column(
                say("Idle hours", "空闲卡时"),
                rows(f"(({idle}) or on ({label}) 0 * {measured}) {top}"),
                decimals=0,
            ),
            Column(
                say("Idle share", "空闲占比"),
                rows(f"(({idle}) or on ({label}) 0 * {measured}) / ({measured} > 0) {top}"),
                "percentunit",
                steps=IDLE_SHARE,
                decimals=0,
            ),
            Column(
                say("Energy", "能耗"), rows(f"({energy_of(label)}) {top}"), "kwatth", decimals=0
            ),
        ],
        width=width,
        height=8,
        sort_by=booked_hours,
    )


def idle_owners(say: Say) -> timeseries.Panel:
    selector = f"{USER}, {IDLE}"
    mean, top = mean_of(selector, "owner"), top_owners(IDLE)
    return chart(
        say("Idle by owner", "各负责人空闲占用量"),
        say(
            "Accelerators that are booked and not used, of the ten owners with the most idle hours "
            "in the time range. A flat line over days is forgotten, a comb is a slow start.",
            "所选时间范围内空闲卡时最多的十位负责人已占用但未使用的加速卡。连续数天的水平线多为遗忘，"
            "锯齿状多为启动缓慢。",
        ),
        over_time(f"12 * ({mean}) and on (owner) {top}", "{{owner}}").interval("10m"),
        unit="short",
        stacked=True,
    )


def power(say: Say) -> timeseries.Panel:
    energy = mean_of(USER, "pool", "nodevitals:usage_energy:joules")
    return chart(
        say("Power by pool", "各资源池功耗"),
        say(
            "Power draw of the accelerators, without servers and cooling. Missing where devices do "
            "not report it.",
            "加速卡功耗，不含服务器和散热；设备未上报时缺失。",
        ),
        over_time(f"{energy} / 300", "{{pool}}").interval("10m"),
        unit="watt",
        stacked=True,
    )
