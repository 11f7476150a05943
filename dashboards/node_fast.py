"""The row of the node dashboard with second-level data: from the job nodevitals-fast, which has
samples while a lease of the hub lasts.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import prometheus, timeseries

from dashboards.language import Say
from dashboards.node_queries import INTERVAL, recorded
from dashboards.panels import chart
from dashboards.queries import over_time

# The step that a query may have, from which Grafana derives $__rate_interval: four of them.
STEP = "1s"


def _fast(name: str) -> str:
    return recorded(f"nodevitals_{name}", 'job="nodevitals-fast"')


def _rate(by: str, name: str) -> str:
    return f"sum by ({by}) (rate({_fast(name)}{INTERVAL}))"


def _each_second(expression: str, legend: str) -> prometheus.Dataquery:
    return over_time(expression, legend).interval(STEP)


def second_level(say: Say) -> list[timeseries.Panel]:
    """Return the row."""
    empty = say(
        " Empty while the node has no lease: nodevitals fast NODE --probe rdma,network.",
        "为空：未申请秒级监控；命令为 nodevitals fast NODE --probe rdma,network。",
    )
    ports, interface = "device, port", "interface"
    return [
        chart(
            say("RDMA throughput, each second", "RDMA 吞吐（秒级）"),
            say("Bits per second per port and direction.", "各端口收发吞吐。") + empty,
            _each_second(
                f"8 * {_rate(ports, 'rdma_port_received_bytes_total')}", "{{device}}/{{port}} in"
            ),
            _each_second(
                f"8 * {_rate(ports, 'rdma_port_transmitted_bytes_total')}",
                "{{device}}/{{port}} out",
            ),
            unit="bps",
            width=12,
        ),
        chart(
            say("RDMA congestion, each second", "RDMA 拥塞（秒级）"),
            say(
                "Congestion events per second, by port and counter.",
                "各端口每秒拥塞事件，按计数器统计。",
            )
            + empty,
            _each_second(
                _rate("device, port, counter", "rdma_port_congestion_total"),
                "{{device}}/{{port}} {{counter}}",
            ),
            unit="cps",
            width=12,
        ),
        chart(
            say("Network throughput, each second", "网络吞吐（秒级）"),
            say("Bits per second per interface and direction.", "各网卡收发吞吐。") + empty,
            _each_second(
                f"8 * {_rate(interface, 'network_received_bytes_total')}", "{{interface}} in"
            ),
            _each_second(
                f"8 * {_rate(interface, 'network_transmitted_bytes_total')}", "{{interface}} out"
            ),
            unit="bps",
            width=24,
        ),
    ]
