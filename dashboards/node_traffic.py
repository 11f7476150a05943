"""Graphs of the node's RDMA ports and mounts, and its fabric tests."""

from __future__ import annotations

from grafana_foundation_sdk.builders import table, timeseries

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.node_graphs import increase, quiet, rate
from dashboards.node_queries import recorded, scraped
from dashboards.panels import Steps, chart
from dashboards.queries import CLUSTER, over_time, rows
from dashboards.states import GREEN, GREY, RED, YELLOW, mapping
from dashboards.tables import Column, grid

PORT = "{{device}}/{{port}}"
TEST = "tool, operation, device, message_bytes"
SHARE: Steps = ((None, RED), (0.66, YELLOW), (0.8, GREEN))


def rdma(say: Say) -> list[timeseries.Panel]:
    """Throughput, errors and congestion of the RDMA ports."""
    received, sent = (
        scraped(f"rdma_port_{way}_bytes_total") for way in ("received", "transmitted")
    )
    return [
        chart(
            say("RDMA throughput", "RDMA 吞吐"),
            say(
                "Bits per second per port, both directions together. Ports of a job are equally "
                "busy: one below the others is slow or not used.",
                "各端口吞吐（收发合计）。同一作业的各端口应当均衡；明显偏低者较慢或未被使用。",
            ),
            over_time(
                f"8 * ({rate('device, port', received)} + {rate('device, port', sent)})", PORT
            ),
            unit="bps",
            width=8,
        ),
        quiet(
            say,
            chart(
                say("RDMA errors", "RDMA 错误"),
                say(
                    "New errors per step, by the driver's counter. If they continue: cable, "
                    "transceiver, switch port. Empty: none, which is good.",
                    "每个采样步长内新增的错误（按驱动计数器）。"
                    "持续出现时请检查线缆、光模块、交换机端口。为空：没有错误。",
                ),
                over_time(
                    increase("device, port, counter", scraped("rdma_port_errors_total")),
                    f"{PORT} {{{{counter}}}}",
                ),
                unit="short",
                width=8,
            ),
        ),
        quiet(
            say,
            chart(
                say("RDMA congestion", "RDMA 拥塞"),
                say(
                    "Congestion events per second, by counter: marks, notifications and waits. "
                    "None "
                    "is an error; a lasting rise means that the fabric is overloaded or a peer is "
                    "slow.",
                    "每秒拥塞事件（按计数器）：ECN 标记、CNP 与等待。均非错误；"
                    "持续升高表示网络过载或对端较慢。",
                ),
                over_time(
                    f"{rate('counter', scraped('rdma_port_congestion_total'))} > 0", "{{counter}}"
                ),
                unit="cps",
                width=8,
            ),
        ),
    ]


def network(say: Say) -> timeseries.Panel:
    received, sent = (scraped(f"network_{way}_bytes_total") for way in ("received", "transmitted"))
    return chart(
        say("Network throughput", "网络吞吐"),
        say(
            "Bits per second per interface and bond, both directions together.",
            "各接口与 bond 的吞吐（收发合计）。",
        ),
        over_time(
            f"8 * ({rate('interface', received)} + {rate('interface', sent)})", "{{interface}}"
        ),
        unit="bps",
        width=8,
    )


def mount_latency(say: Say) -> list[timeseries.Panel]:
    """Each step of the mounts' checks, and the total beside what is usual."""
    return [
        chart(
            say("Mount latency by step", "挂载点延迟（按步骤）"),
            say(
                "Duration of each step of the checks. Slow fsync or create: the filer's metadata "
                "or journal; slow read: its network. A gap: the check hangs or fails.",
                "检查各步骤的耗时。fsync、create 变慢：存储元数据或日志；"
                "read 变慢：到存储的网络。中断：检查挂起或失败。",
            ),
            over_time(scraped("mount_step_seconds"), "{{mountpoint}} {{step}}"),
            unit="s",
            width=8,
        ),
        chart(
            say("Mount latency and what is usual", "挂载点延迟与平时值"),
            say(
                "Write and read together, the mean of 5 minutes, and its median of an hour.",
                "读写合计延迟的 5 分钟平均值，以及一小时中位数。",
            ),
            over_time(recorded("nodevitals:mount_seconds:avg5m"), "{{mountpoint}}"),
            over_time(
                recorded("nodevitals:mount_seconds:median1h"),
                "{{mountpoint}} " + say("usual", "平时"),
            ),
            unit="s",
            width=8,
        ),
    ]


def fabric_medians(say: Say) -> timeseries.Panel:
    """The node's median bandwidth against its expectation and the cluster's median."""
    node = f'{CLUSTER}, node="$fabric_name"'
    test = "{{operation}} {{device}} {{message_bytes}}"
    median = f"nodevitals:fabric_node:bandwidth{{{node}}}"
    cluster = (
        f"max by (cluster, {TEST}) (nodevitals:fabric:bandwidth{{{CLUSTER}}}) "
        f"and on (cluster, {TEST}) {median}"
    )
    return chart(
        say("Fabric bandwidth", "互联带宽"),
        say(
            "Median of the node's tests, what is expected of it, and the median of the cluster. "
            "Below both: check the rate and errors of the port, PCIe width and the cable.",
            "该节点测试的中位数、预期值与集群中位数。"
            "低于两者：请检查端口速率与错误、PCIe 宽度及线缆。",
        ),
        over_time(f"8 * {median}", test),
        over_time(
            f"8 * nodevitals:fabric_node:bandwidth_baseline{{{node}}}",
            f"{test} {say('expected', '预期')}",
        ),
        over_time(f"8 * ({cluster})", f"{test} {say('cluster', '集群')}"),
        unit="bps",
        width=24,
        height=7,
    )


def fabric_tests(say: Say) -> list[table.Panel]:
    """The last test with each partner, as source and as peer."""
    return [
        _tests(say, ("Fabric tests as source", "互联测试（作为源端）"), "source", "peer"),
        _tests(say, ("Fabric tests as peer", "互联测试（作为对端）"), "peer", "source"),
    ]


def _tests(say: Say, title: tuple[str, str], here: str, there: str) -> table.Panel:
    chosen = f'job="nodevitals", {CLUSTER}, {here}="$fabric_name"'
    test = f"{there}, {TEST}"

    def last(metric: str, *labels: str) -> str:
        return f"max by ({', '.join((test, *labels))}) (nodevitals_fabric_{metric}{{{chosen}}})"

    usual = f"nodevitals:fabric:bandwidth_usual{{{CLUSTER}}}"
    configured = scraped("fabric_bandwidth_expected_bytes_per_second")
    expected = f"max by ({TEST}) ({configured} or on ({TEST}) {usual})"
    bandwidth = last("bandwidth_bytes_per_second")
    latency = f'max by ({test}) (nodevitals_fabric_latency_seconds{{{chosen}, statistic="median"}})'
    usual_latency = f"max by ({TEST}) (nodevitals:fabric:latency{{{CLUSTER}}})"
    partner = say("Partner", "对方节点")
    return grid(
        say(*title),
        say(
            "The last test with each partner. If all partners are slow, this node is; if one is, "
            "see that node. Of expected: of the configured bandwidth, or else of the cluster's "
            "median; for latencies the median divided by it. A failure has its reason, no value.",
            "与每个对方节点的最近一次测试。全部偏慢：本节点有问题；仅一个偏慢：请查看对方节点。"
            "达标率相对配置值（未配置时为集群中位数），延迟取集群中位数与其之比。"
            "失败时显示原因，无带宽值。",
        ),
        [
            Column(partner, there, link=link_to(say, "node", partner, instance=partner)),
            Column(say("Device", "设备"), "device"),
            Column(say("Operation", "操作"), "operation"),
            Column(say("Message bytes", "消息字节数"), "message_bytes"),
            Column(say("Bandwidth", "带宽"), rows(f"8 * {bandwidth}"), "bps"),
            Column(
                say("Of expected", "达标率"),
                rows(
                    f"{bandwidth} / on ({TEST}) group_left () ({expected}) or on ({test}) "
                    f"1 / ({latency} / on ({TEST}) group_left () ({usual_latency}))"
                ),
                "percentunit",
                SHARE,
                decimals=0,
            ),
            Column(say("Latency", "延迟"), rows(latency), "s"),
            Column("", rows(last("failure", "reason"))),
            Column(
                say("Failure", "失败原因"),
                "reason",
                mappings=[mapping({"peer_busy": (say("peer busy", "对端忙"), GREY)})],
            ),
        ],
        width=12,
        height=9,
        sort_by=say("Of expected", "达标率"),
        descending=False,
    )
