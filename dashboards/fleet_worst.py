"""The worst ten: RDMA ports, NVLinks, nodes in fabric tests, and accelerators."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards.board import link_to
from dashboards.language import Say
from dashboards.panels import Steps
from dashboards.queries import CLUSTER, in_pool, rows
from dashboards.states import ORANGE, RED, YELLOW
from dashboards.tables import Column, grid

ANY: Steps = ((None, "text"), (1, ORANGE))


def panels(say: Say) -> Sequence[Builder[Panel]]:
    """Return the panels of the row."""
    return [ports(say), nvlinks(say), fabric(say), devices(say)]


def _node(say: Say) -> Column:
    node = say("Node", "节点")
    return Column(node, "instance", link=link_to(say, "node", node, instance=node))


def _errors(kind: str) -> str:
    return in_pool(
        f'sum_over_time(nodevitals:link_errors:increase5m{{{CLUSTER}, kind="{kind}"}}[1d])'
    )


def ports(say: Say) -> table.Panel:
    """The RDMA ports with the most flaps, then link errors, then transport errors."""
    key = "cluster, instance, device, port"
    rank = f"1e12 * ({_errors('flap')}) or 1e6 * ({_errors('link')}) or ({_errors('transport')})"
    worst = f"topk(10, sum by ({key}) ({rank}))"

    def column(kind: str) -> str:
        return f"sum by ({key}) ({_errors(kind)}) and on ({key}) {worst}"

    return grid(
        say("Worst RDMA ports in 24 hours", "24 小时内最差 RDMA 端口"),
        say(
            "Ordered by flaps, then link errors (cable, transceiver, switch port), then transport"
            " errors (retries, packets out of order: congestion or the other end). Clean or replace"
            " the cable of a port that stands out.",
            "依次按链路抖动次数、链路错误（线缆、光模块、交换机端口）和传输错误"
            "（重传、乱序：拥塞或对端问题）排序。对明显突出的端口，请清洁或更换线缆。",
        ),
        [
            _node(say),
            Column(say("Device", "设备"), "device"),
            Column(say("Port", "端口"), "port", width=60),
            Column(say("Flaps", "抖动"), rows(column("flap")), unit="short", steps=ANY),
            Column(say("Link errors", "链路错误"), rows(column("link")), unit="short", steps=ANY),
            Column(say("Transport errors", "传输错误"), rows(column("transport")), unit="short"),
        ],
        width=12,
        sort_by=say("Flaps", "抖动"),
        empty=say("No errors in 24 hours", "24 小时内无错误"),
    )


def nvlinks(say: Say) -> table.Panel:
    """The GPUs with NVLinks down, then those with the most errors."""
    key = "cluster, instance, device, uuid"
    # The value of the fault is the number of links that are up.
    down = in_pool(
        f'nodevitals_nvidia_nvlinks_expected{{{CLUSTER}, job="nodevitals"}} - on ({key})'
        f' nodevitals:fault{{{CLUSTER}, fault="nvlink_down"}}'
    )
    errors = f"sum by ({key}) ({_errors('nvlink')})"
    worst = f"topk(10, sum by ({key}) (1e9 * sum by ({key}) ({down}) or {errors}))"
    return grid(
        say("Worst NVLinks", "最差 NVLink"),
        say(
            "GPUs whose NVLinks are down now, and errors of their links in 24 hours. Errors on"
            " one GPU point to it or its connector, on all GPUs of a node to an NVSwitch.",
            "当前有 NVLink 断开的 GPU，以及 24 小时内的链路错误数。仅一块 GPU 出错多为该 GPU"
            " 或连接器问题，"
            "整个节点的 GPU 均出错则多为 NVSwitch 问题。",
        ),
        [
            _node(say),
            Column(say("GPU", "GPU"), "device", width=60),
            Column(
                say("Links down", "断开链路"),
                rows(f"sum by ({key}) ({down}) and on ({key}) {worst}"),
                steps=((None, "text"), (1, RED)),
            ),
            Column(
                say("Errors", "错误"),
                rows(f"{errors} and on ({key}) {worst}"),
                unit="short",
                steps=ANY,
            ),
            Column("UUID", "uuid"),
        ],
        width=12,
        sort_by=say("Links down", "断开链路"),
        empty=say("All NVLinks up, no errors in 24 hours", "NVLink 全部正常，24 小时内无错误"),
    )


def fabric(say: Say) -> table.Panel:
    """The nodes with the lowest bandwidth, compared with what is expected of the same test."""
    key = "cluster, instance, tool, operation, device, message_bytes"

    def of_nodes(metric: str) -> str:
        return (
            f"max by ({key}) ({metric}{{{CLUSTER}}} * on (cluster, node) group_left (instance)"
            f" (0 * nodevitals:fabric_name{{{CLUSTER}}} + 1))"
        )

    bandwidth = of_nodes("nodevitals:fabric_node:bandwidth")
    share = in_pool(f"{bandwidth} / {of_nodes('nodevitals:fabric_node:bandwidth_baseline')}")
    worst = f"bottomk(10, {share} < 0.95)"
    expected = say("Of expected", "占预期")
    return grid(
        say("Slowest nodes in fabric tests", "带宽测试最慢节点"),
        say(
            "Nodes under 95 %: median bandwidth of the node's pairs, compared with the expected"
            " bandwidth or the"
            " median"
            " of the last day. One node that is slow with all partners has a bad port or cable.",
            "低于 95% 的节点：节点各测试对的带宽中位数，与预期带宽或近一日中位数相比。"
            "若某节点与所有对端的带宽均偏低，多为其端口或线缆问题。",
        ),
        [
            _node(say),
            Column(say("Device", "设备"), "device"),
            Column(say("Test", "测试"), "operation"),
            Column(say("Size", "消息大小"), "message_bytes", unit="bytes"),
            Column(say("Bandwidth", "带宽"), rows(f"{bandwidth} and on ({key}) {worst}"), "Bps"),
            Column(
                expected,
                rows(worst),
                unit="percentunit",
                steps=((None, RED), (0.6, ORANGE), (0.8, YELLOW), (0.9, "text")),
                decimals=0,
            ),
        ],
        width=12,
        sort_by=expected,
        descending=False,
        empty=say("No node is slow", "无偏慢节点"),
    )


def devices(say: Say) -> table.Panel:
    """The accelerators with the most faults, then ECC errors, then seconds of slowdown."""
    key = "cluster, instance, device, uuid"

    def summed(metric: str, matchers: str = "") -> str:
        chosen = in_pool(f"sum_over_time({metric}{{{CLUSTER}{matchers}}}[1d])")
        return f"sum by ({key}) ({chosen})"

    chosen = in_pool(f"nodevitals:accelerator_faults:count7d{{{CLUSTER}}}")
    faults = f"sum by ({key}) ({chosen})"
    ecc = "nodevitals:accelerator_ecc_errors:increase5m"
    uncorrected = summed(ecc, ', kind="uncorrected"')
    corrected = summed(ecc, ', kind="corrected"')
    slow = summed("nodevitals:accelerator_slowdown:increase5m")
    union = " or ".join(
        f'label_replace({weight} * {found}, "part", "{number}", "", "")'
        for number, (weight, found) in enumerate(
            ((1e12, faults), (1e9, uncorrected), (1e3, corrected), (1, slow))
        )
    )
    worst = f"topk(10, sum by ({key}) ({union}))"

    def column(found: str) -> str:
        return f"{found} and on ({key}) {worst}"

    return grid(
        say("Worst accelerators", "最差加速卡"),
        say(
            "Ordered by the faults that began in 7 days, then by memory errors and time with"
            " reduced"
            " clocks in 24 hours. Replace a device that comes back after each reset.",
            "依次按 7 天内新发故障数、24 小时内显存错误数和降频时长排序。"
            "复位后反复出现故障的设备应更换。",
        ),
        [
            _node(say),
            Column(say("Device", "设备"), "device", width=70),
            Column(say("Faults", "故障"), rows(column(faults)), steps=ANY),
            Column(say("ECC uncorrected", "不可纠正 ECC"), rows(column(uncorrected)), steps=ANY),
            Column(
                say("ECC corrected", "可纠正 ECC"),
                rows(column(corrected)),
                unit="short",
                decimals=0,
            ),
            Column(say("Slowed down", "降频时长"), rows(column(slow)), unit="s", decimals=0),
            Column("UUID", "uuid"),
        ],
        width=12,
        sort_by=say("Faults", "故障"),
        empty=say("No faults or errors", "无故障或错误"),
    )
