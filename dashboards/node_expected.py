"""The expectation strip of the node dashboard: what is there, of what is expected."""

from __future__ import annotations

from grafana_foundation_sdk.builders import stat
from grafana_foundation_sdk.models.common import BigValueTextMode

from dashboards.language import Say
from dashboards.node_queries import scraped, seen
from dashboards.panels import number
from dashboards.queries import now
from dashboards.states import GREEN, GREY, RED, YELLOW

UNKNOWN = -1
"""Value of a count that is not known, where it should be."""


def strip(say: Say) -> list[stat.Panel]:
    """Return the counts of what is there, of what is expected."""
    ports = scraped("rdma_port_expected_rate_bytes_per_second")
    interfaces = scraped("network_up")
    speeds = scraped("network_expected_speed_bytes_per_second")
    mounts = scraped("probe_success", 'probe="mounts"')
    peers, probes = scraped("peer_reachable"), scraped("probe_success")
    return [
        _accelerators(say, "nvidia", "GPU"),
        _accelerators(say, "ascend", "NPU"),
        _count(
            say,
            ("RDMA ports", "RDMA 端口"),
            (
                "Active ports, of those that had a link before.",
                "曾经连通的端口中，当前激活的数量。",
            ),
            f"sum({scraped('rdma_port_up')} and on (device, port) {ports})",
            _number_of(ports),
        ),
        _count(
            say,
            ("Interfaces", "网络接口"),
            (
                "Network interfaces and bonds that are up, of those that were before.",
                "曾经连通的网络接口与 bond 中，当前连通的数量。",
            ),
            f"sum({interfaces})",
            _number_of(f"({interfaces} == 1) or on (interface) {speeds}", interfaces),
        ),
        _count(
            say,
            ("Mounts", "挂载点"),
            (
                "Mount points that are mounted, readable, writable and intact.",
                "已挂载且可读、可写、数据完整的挂载点数量。",
            ),
            f'sum({mounts} unless on (target) label_replace({_broken_mounts()}, "target", "$1", '
            f'"mountpoint", "(.+)")) or 0 * count({mounts})',
            _number_of(mounts),
        ),
        _count(
            say,
            ("Peers reached", "可达对端"),
            (
                "Connections to other nodes. Few are missing: see those nodes; most: this one.",
                "到其他节点的连接数。仅缺少个别时请查看对端节点；大部分缺失时请检查本节点网络。",
            ),
            f"sum({peers})",
            _number_of(peers),
            mild=True,
        ),
        _count(
            say,
            ("Probes", "探测项"),
            (
                "Probes whose last run succeeded. What a failing probe reports is unknown.",
                "最近一次运行成功的探测项数量。探测失败的内容均为未知。",
            ),
            f"sum({probes})",
            _number_of(probes),
            mild=True,
        ),
        fabric(say),
    ]


def _broken_mounts() -> str:
    wrong = ("present", "as_expected", "readable", "writable", "content_intact")
    return " or on (mountpoint) ".join(scraped(f"mount_{one}") + " == 0" for one in wrong)


def _accelerators(say: Say, vendor: str, kind: str) -> stat.Panel:
    """As the configuration expects, or else as many as there ever were."""
    of_vendor = f'vendor="{vendor}"'
    configured, ever = (
        scraped(f"accelerators_{name}", of_vendor) for name in ("expected", "baseline")
    )
    return _count(
        say,
        (f"{kind}s", kind),
        (
            f"{kind}s that answer, of those that are configured or were ever there.",
            f"有响应的 {kind} 数量，对比配置值或历史最大值。",
        ),
        f"sum({scraped('accelerators_present', of_vendor)})",
        f"sum({configured} or on (vendor) {ever}) "
        f"or sum({seen(configured)} or on (vendor) {seen(ever)})",
    )


def _number_of(series: str, before: str = "") -> str:
    """Return their number now, or else within the day."""
    return f"count({series}) or count({seen(before or series)})"


def _count(
    say: Say,
    title: tuple[str, str],
    description: tuple[str, str],
    present: str,
    expected: str,
    mild: bool = False,
) -> stat.Panel:
    """Return a panel that reads `7 of 8`; its colour comes from the share that is missing.

    Without a current answer it reads `? of 8`.
    """
    whole = f'count_values("expected", ({expected}) > 0)'
    both = (
        f'count_values("present", {present}) * on () group_left (expected) {whole} '
        f"* on () group_left () clamp_min(1 - ({present}) / ({expected}), 0)"
    )
    lost = f'label_replace({whole} * {UNKNOWN}, "present", "?", "", "")'
    texts = (
        f'label_join({both} or on () {lost}, "text", "{say(" of ", " / ")}", "present", "expected")'
    )
    nothing = f'label_replace(vector({UNKNOWN}), "text", "–", "", "")'
    return number(
        say(*title),
        say(
            f"{description[0]} Red or yellow: some are missing, see the table below. "
            '"?": no answer now. Empty: the node has none.',
            f"{description[1]}红色或黄色：有缺失，详见下方表格。"
            "“?”：当前无响应。为空：该节点没有此类设备。",
        ),
        now(f"{texts} or on () {nothing}", "{{text}}"),
        unit="percentunit",
        steps=((None, GREY), (0, GREEN), (1e-6, YELLOW if mild else RED), (0.5, RED)),
    ).text_mode(BigValueTextMode.NAME)


def fabric(say: Say) -> stat.Panel:
    """The lowest of the node's medians against its baseline and the cluster's median."""
    node = 'cluster=~"$cluster", node="$fabric_name"'
    test = "on (cluster, tool, operation, device, message_bytes) group_left ()"
    median = f"nodevitals:fabric_node:bandwidth{{{node}}}"
    return number(
        say("Fabric bandwidth", "互联带宽"),
        say(
            "Median bandwidth of the node's tests, as a share of what is configured or was usual "
            "for it, and of the median of the cluster; the lowest counts. Below 80 %: see the "
            "tests below.",
            "该节点带宽测试中位数与配置值（未配置时为自身平时值）及集群中位数之比，取最低者。"
            "低于 80% 时请查看下方的测试表。",
        ),
        now(
            f"min({median} / nodevitals:fabric_node:bandwidth_baseline{{{node}}} or "
            f'label_replace({median} / {test} nodevitals:fabric:bandwidth{{cluster=~"$cluster"}}, '
            '"of", "cluster", "", ""))'
        ),
        unit="percentunit",
        steps=((None, GREY), (0, RED), (0.8, GREEN)),
        decimals=0,
    )
