"""The row of the Self dashboard on scrapes and on what agents cost."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import chart
from dashboards.queries import CLUSTER, NODE, in_pool, over_time, rows
from dashboards.states import GREEN, ORANGE, RED, YELLOW
from dashboards.tables import Column, grid

AGENT = f'job="nodevitals", {NODE}'
CPU = f"rate(process_cpu_seconds_total{{{AGENT}}}[$__rate_interval])"
MEMORY = f"process_resident_memory_bytes{{{AGENT}}}"


def panels(say: Say) -> list[Builder[Panel]]:
    """Return the graphs over all agents, and the table of the most expensive ones."""
    return [
        _spread(
            say,
            say("Scrape duration", "抓取耗时"),
            say(
                "Time of a scrape. An agent answers from memory within milliseconds: a second "
                "means a slow network or a node without free CPU.",
                "单次抓取耗时。采集器从内存直接应答，通常为毫秒级：达到秒级说明网络慢或节点 CPU "
                "耗尽。",
            ),
            "scrape_seconds",
            "s",
        ),
        _spread(
            say,
            say("Samples per scrape", "每次抓取样本数"),
            say(
                "Number of samples of an agent. The highest grows without end: a label with many "
                "values; choose its node and look for it with topk(10, count by (__name__)).",
                "采集器每次抓取的样本数。最大值持续增长：某个标签取值过多；选定该节点，用 "
                "topk(10, count by (__name__)) 查找。",
            ),
            "scrape_samples",
            "short",
        ),
        _spread(
            say,
            say("Size of a scrape", "抓取大小"),
            say(
                "Uncompressed bytes of a scrape. Empty unless Prometheus runs with the feature "
                "extra-scrape-metrics.",
                "单次抓取的未压缩字节数。仅当 Prometheus 启用 extra-scrape-metrics 特性时有数据。",
            ),
            "scrape_bytes",
            "bytes",
        ),
        _spread(
            say,
            say("Memory of the main process", "主进程内存"),
            say(
                "Resident memory of the agent without its workers. It levels off within an hour; "
                "a line that rises for days is a leak: restart the agent and report it.",
                "采集器主进程（不含工作进程）的常驻内存。一小时内应趋于平稳；持续数天上升为内存泄"
                "漏：请重启采集器并反馈。",
            ),
            "memory_bytes",
            "bytes",
        ),
        _spread(
            say,
            say("CPU of an agent", "采集器 CPU"),
            say(
                "CPU time of the agent and of its ended workers, in cores. Above 0.1: a probe "
                "with too short an interval, or a tool that is started too often.",
                "采集器及其已结束工作进程占用的 CPU 核数。超过 0.1：探针间隔过短，或外部工具启动"
                "过于频繁。",
            ),
            "cpu",
            "none",
        ),
        workers(say),
        losses(say),
        history(say),
        most_expensive(say),
    ]


def _recorded(name: str) -> str:
    return f'max(nodevitals:agents:{name}{{{CLUSTER}, pool=~"$pool"}})'


def _spread(
    say: Say, title: str, description: str, name: str, unit: str, width: int = 8
) -> timeseries.Panel:
    """Return a graph of the highest value and the median (of several pools, the highest)."""
    return chart(
        title,
        description,
        over_time(_recorded(f"{name}:max"), say("highest", "最高")),
        over_time(_recorded(f"{name}:median"), say("median", "中位")),
        unit=unit,
        width=width,
    )


def workers(say: Say) -> timeseries.Panel:
    return chart(
        say("Worker processes", "工作进程"),
        say(
            "Worker processes of all agents of the chosen pools. A stuck one survived SIGKILL: a "
            "driver or file system holds it, and only a reboot ends it.",
            "所选资源池中采集器的工作进程总数。stuck 表示 SIGKILL 也无法结束：被驱动或文件系统阻"
            "塞，只能重启节点。",
        ),
        over_time(
            f'sum by (state) (nodevitals:agents:workers:count{{{CLUSTER}, pool=~"$pool"}})',
            "{{state}}",
        ),
        unit="short",
        width=8,
        colours={"live": GREEN, "stuck": RED},
    )


def losses(say: Say) -> timeseries.Panel:
    lost = f'nodevitals:agents:lost:rate5m{{{CLUSTER}, pool=~"$pool"}}'
    average = f"avg_over_time({lost}[$__rate_interval])"
    return chart(
        say("Lost rows, messages and connections per hour", "每小时丢弃的记录、日志与连接"),
        say(
            "History rows that could not be written (a slow or full disk), log messages dropped, "
            "connections closed over the limit (too many scrapers), and replacements of the fork "
            "server. Empty is good.",
            "未能写入的历史记录（磁盘慢或已满）、丢弃的日志、因超限关闭的连接（抓取方过多）、"
            "fork server 替换次数。为空即正常。",
        ),
        over_time(f"3600 * sum by (kind) ({average}) > 0", "{{kind}}"),
        unit="short",
        width=12,
    )


def history(say: Say) -> timeseries.Panel:
    return _spread(
        say,
        say("Rows in the history", "历史记录行数"),
        say(
            "Rows of the local database of state changes. It is trimmed by itself; a node far "
            "above the others has a device that changes state all the time.",
            "本地状态变化数据库的行数，会自动清理；某节点远高于其他节点：有设备状态频繁变化。",
        ),
        "history_rows",
        "short",
        width=12,
    )


def most_expensive(say: Say) -> table.Panel:
    keys = "cluster, instance"
    largest = f"topk(50, {in_pool(MEMORY)})"

    def column(title: str, value: str, unit: str, **more: Any) -> Column:
        limited = f"max by ({keys}) ({value}) and on ({keys}) {largest}"
        return Column(title, rows(limited), unit, **more)

    node = say("Node", "节点")
    memory = say("Memory", "内存")
    return grid(
        say("Agents that use most memory", "内存占用最高的采集器"),
        say(
            "The 50 agents with the largest main process, and what else they cost. Far above the "
            "others: its number of samples, or a worker that is stuck.",
            "主进程内存最大的 50 个采集器及其他开销。明显高于其他节点：查样本数或卡住的工作进程。",
        ),
        [
            Column(node, "instance", link=link_to(say, "node", node, instance=node)),
            column(memory, MEMORY, "bytes"),
            column(say("CPU cores", "CPU 核"), CPU, "none", decimals=3),
            column(
                say("Scrape", "抓取耗时"),
                f"scrape_duration_seconds{{{AGENT}}}",
                "s",
                steps=((None, GREEN), (1, YELLOW), (5, RED)),
            ),
            column(say("Samples", "样本数"), f"scrape_samples_scraped{{{AGENT}}}", "short"),
            column(
                say("Stuck workers", "卡住的工作进程"),
                f'nodevitals_worker_processes{{{AGENT}, state="stuck"}}',
                "short",
                steps=((None, GREEN), (1, ORANGE)),
            ),
            column(
                say("Restarts in 1 h", "1 小时重启"),
                f"changes(process_start_time_seconds{{{AGENT}}}[1h])",
                "short",
                steps=((None, GREEN), (1, YELLOW), (4, RED)),
            ),
            column(
                say("Running for", "已运行"),
                f"time() - process_start_time_seconds{{{AGENT}}}",
                "s",
            ),
            Column(say("Cluster", "集群"), "cluster"),
        ],
        sort_by=memory,
    )
