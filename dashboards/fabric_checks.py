"""The row of the Fabric dashboard on checks of the hub: the newest results, and their trend."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.language import Say
from dashboards.panels import Steps, chart
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, RED, YELLOW, mapping
from dashboards.tables import Column, grid

HUB = f'job="nodevitals-hub", {CLUSTER}, tool=~"$tool|", operation=~"$operation|"'
KEYS = "cluster, pool, kind, tool, operation, device"
SHARE: Steps = ((None, RED), (0.8, YELLOW), (0.9, GREEN))


def checks(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    empty = say(" Empty: no hub is scraped.", "为空：未采集检测服务。")
    return [newest(say, empty), findings(say, empty), ratios(say, empty)]


def newest(say: Say, empty: str) -> table.Panel:
    outcome = f"nodevitals_check_outcome{{{HUB}, outcome="
    value = f'0 * {outcome}"ok"}} or 0 * {outcome}"unknown"}} + 1 or 0 * {outcome}"bad"}} + 2'
    age = f"time() - nodevitals_check_end_timestamp_seconds{{{HUB}}}"
    words = {
        "0": (say("ok", "正常"), GREEN),
        "1": (say("unknown", "未知"), YELLOW),
        "2": (say("bad", "异常"), RED),
    }
    when, page = say("Age", "距今"), say("Page", "页面")
    return grid(
        say("Newest checks", "最近的检测"),
        say(
            "Newest check of each pool, tool and operation, as the hub has it; its page, which the "
            "hub names where it has an external_url, has the verdict. "
            "The ratio is the worst of all sizes over the median of up to eight checks before it.",
            "每个资源池、工具和操作的最近一次检测；详细结论见其页面（检测服务设置了 external_url 时"
            "提供）。比值为所有消息大小中"
            "最差的一项与此前最多八次检测中位数之比。",
        )
        + empty,
        [
            Column(say("Pool", "资源池"), "pool"),
            Column(say("Kind", "类型"), "kind"),
            Column(say("Tool", "工具"), "tool"),
            Column(say("Operation", "操作"), "operation"),
            Column(say("Device", "设备"), "device"),
            Column(
                say("Outcome", "结果"),
                rows(f"max by ({KEYS}) ({value})"),
                mappings=[mapping(words)],
            ),
            Column(
                say("Over baseline", "与基线之比"),
                rows(f"min by ({KEYS}) (nodevitals:check:baseline_ratio{{{HUB}}})"),
                "percentunit",
                steps=SHARE,
            ),
            Column(when, rows(f"min by ({KEYS}) ({age})"), "s"),
            Column("", rows(f"max by ({KEYS}, page) (nodevitals_check_page_info{{{HUB}}})")),
            Column(page, "page", link=(say("Page of the check", "检测页面"), "${__value.raw}")),
        ],
        width=16,
        sort_by=when,
        descending=False,
    )


def findings(say: Say, empty: str) -> table.Panel:
    keys = "cluster, pool, kind, subject, level, reason"
    ratio, subject = say("Ratio", "比值"), say("Subject", "对象")
    form = f'${{hub}}/checks/for?nodes=${{__data.fields["{subject}"]:percentencode}}'
    return grid(
        say("Found bad", "异常项"),
        say(
            "Nodes, links and rails that the newest checks found bad, and their figure over the "
            "usual one; 0 where there is none. Empty is good.",
            "最近检测中异常的节点、链路和轨道，及其测量值与正常值之比；没有测量值时为 0。"
            "为空即正常。",
        )
        + empty,
        [
            Column(subject, "subject", link=(say("Check it again", "再次检测"), form)),
            Column(say("Pool", "资源池"), "pool"),
            Column(say("Reason", "原因"), "reason"),
            Column(
                ratio,
                rows(f"min by ({keys}) (nodevitals_check_finding_ratio{{{HUB}}})"),
                "percentunit",
                steps=SHARE,
            ),
        ],
        width=8,
        sort_by=ratio,
        descending=False,
    )


def ratios(say: Say, empty: str) -> timeseries.Panel:
    return chart(
        say("Checks over their baselines", "检测结果与基线之比"),
        say(
            "Worst of all message sizes from 1 MB on, over the median of the checks before. Below "
            "80 %, the collective of a pool raises an alert.",
            "1 MB 及以上各消息大小中最差的一项，与此前检测中位数之比。"
            "资源池的集合通信低于 80 % 时告警。",
        )
        + empty,
        over_time(
            f"min by ({KEYS}) (nodevitals:check:baseline_ratio{{{HUB}}})",
            "{{pool}} {{kind}} {{tool}} {{operation}} {{device}}",
        ),
        unit="percentunit",
        width=24,
    )
