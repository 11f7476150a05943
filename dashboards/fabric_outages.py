"""The row of the Fabric dashboard on ports that were down for a moment: jobs fail, tests do not
notice it.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.board import link_to
from dashboards.fabric_queries import in_place
from dashboards.language import Say
from dashboards.panels import Steps, chart
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import RED
from dashboards.tables import Column, grid

PORT = "cluster, instance, device, port"
# At one, the alert RdmaPortOutage fires.
LONG: Steps = ((None, "text"), (1, RED))


def outages(say: Say) -> list[table.Panel | timeseries.Panel]:
    """Return the row."""
    agent = f'job="nodevitals", {CLUSTER}'
    longest = in_place(f"nodevitals_rdma_port_longest_down_seconds{{{agent}}} > 0")
    worst = f"topk(20, max by ({PORT}) ({longest}))"
    limit = 'on () group_left () nodevitals:threshold{threshold="link_outage_seconds"}'
    down = f"increase(nodevitals_rdma_port_down_seconds_total{{{agent}}}[1h])"
    faults = in_place(
        f'nodevitals:fault{{{CLUSTER}, fault=~"rdma_port_outage|network_interface_outage"}}'
    )
    node, outage = say("Node", "节点"), say("Longest outage", "最长中断")
    return [
        grid(
            say("Longest outages of RDMA ports", "RDMA 端口最长中断"),
            say(
                "The twenty ports with the longest outage within the last hour. Red: longer than "
                "NCCL waits (threshold link_outage_seconds), so that jobs fail. Several ports of "
                "one switch: the switch.",
                "最近一小时内中断最长的二十个端口。红色：超过 NCCL 的等待时间"
                "（阈值 link_outage_seconds），作业会失败。同一交换机的多个端口：请检查交换机。",
            ),
            [
                Column(node, "instance", link=link_to(say, "hardware", node, instance=node)),
                Column(say("Device", "设备"), "device"),
                Column(say("Port", "端口"), "port", width=70),
                Column(outage, rows(worst), "s"),
                Column(
                    say("Of the threshold", "占阈值"),
                    rows(f"{worst} / {limit}"),
                    "percentunit",
                    LONG,
                    decimals=0,
                ),
                Column(
                    say("Down in an hour", "一小时内断开"),
                    rows(f"round(max by ({PORT}) ({down} and on ({PORT}) {worst}))"),
                    "s",
                ),
            ],
            width=14,
            height=8,
            sort_by=outage,
            empty=say("No outage within the last hour", "最近一小时内无中断"),
        ),
        chart(
            say("Ports with an outage", "发生中断的端口"),
            say(
                "Ports that were down for longer than jobs wait, within the hour before, by kind. "
                "Empty: none, which is good.",
                "过去一小时内中断时间超过作业等待时间的端口数（按类型）。为空：没有中断。",
            ),
            over_time(f"count by (fault) ({faults})", "{{fault}}"),
            unit="short",
            width=10,
            stacked=True,
        ),
    ]
