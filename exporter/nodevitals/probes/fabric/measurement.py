"""A configured test for its tool: the link, the command line, and the result from the output."""

from __future__ import annotations

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import exists, read_integer, read_text
from nodevitals.probes.common.rdma_fields import parse_rate
from nodevitals.probes.common.rdma_gids import gid_of_port
from nodevitals.probes.fabric.admission import TestedLink
from nodevitals.probes.fabric.report import Report, ResultRow, failed, still_transferring
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import PARSERS, iperf3, perftest

MEGABIT = 1e6 / 8
# NVIDIA's own multi-node check demands this of an idle link. Messages below 1 MiB may not fill the
# link with one queue pair (https://github.com/Mellanox/ngc_multinode_perf).
LINE_RATE_SHARE = 0.9
LARGE_BYTES = 1 << 20
# Bytes per second of a link whose rate is unknown, at most: 4X XDR has 800 Gb/s.
FASTEST_LINK = 100e9


def link_of(test: TestSettings, host: Host) -> TestedLink:
    """The link whose traffic shows that it is in use."""
    if test.tool == "perftest":
        folder = f"class/infiniband/{test.device}/ports/{test.ib_port}"
        return TestedLink(
            tuple(f"{folder}/counters/{name}" for name in ("port_xmit_data", "port_rcv_data")),
            4,
            parse_rate(read_text(host.sys(f"{folder}/rate")) or ""),
        )
    folder = f"class/net/{test.device}"
    speed = read_integer(host.sys(f"{folder}/speed"))
    files = tuple(f"{folder}/statistics/{name}" for name in ("tx_bytes", "rx_bytes"))
    return TestedLink(files, 1, speed * MEGABIT if speed else None)


def problem_of(test: TestSettings, host: Host, node: str) -> Report | None:
    """What this node lacks for a test, which the tool itself would not report: iperf3 is not told
    the device. Beside bonds and VLANs, which are devices, `class/net` has the file bonding_masters.
    """
    if test.tool != "iperf3" or exists(host.sys(f"class/net/{test.device}/ifindex")) is not False:
        return None
    return failed("no_device", f"{node} has no network device {test.device}: write another one")


def bytes_of(test: TestSettings, host: Host, ran_seconds: float | None = None) -> float:
    """The most bytes that a test moves, or moved while its tool ran for so long: of one with a
    duration, what its link carries in that time, or where its rate is unknown, the tool moves.
    """
    if test.seconds is None:
        return test.total_bytes
    seconds = test.seconds if ran_seconds is None else min(test.seconds, ran_seconds)
    return seconds * (link_of(test, host).rate or fastest_of(test))


def fastest_of(test: TestSettings) -> float:
    """Bytes per second that the tool moves at most, whatever the link."""
    if test.tool == "iperf3":
        return min(FASTEST_LINK, test.queue_pairs * iperf3.FASTEST_STREAM)
    return FASTEST_LINK


def expected_of(test: TestSettings, host: Host) -> float | None:
    """Bytes per second of a healthy link: as configured, or a share of the link's rate where
    messages are large enough; None where unknown.
    """
    if test.expected is not None or test.is_latency:
        return test.expected
    rate = link_of(test, host).rate
    return rate * LINE_RATE_SHARE if rate and test.message_bytes >= LARGE_BYTES else None


def command(test: TestSettings, host: Host, port: int, peer: str | None = None) -> list[str]:
    """The client's command line on this node, or the server's where there is no peer. The GID is
    chosen anew each time, unless it is given: its index differs between nodes, and may change.
    """
    if test.tool == "iperf3" or test.gid_index is not None:
        return argv(test, test.gid_index, port, peer)
    gid = gid_of_port(host, test.device, test.ib_port)
    return argv(test, None if gid is None else gid.index, port, peer)


def argv(
    test: TestSettings, gid_index: int | None, port: int, peer: str | None = None
) -> list[str]:
    """The same, for a known GID."""
    if test.tool == "iperf3":
        sizes = (test.total_bytes, test.message_bytes, test.queue_pairs)
        return iperf3.argv(port, peer, *sizes, test.seconds, test.traffic_class)
    options = perftest.PerftestOptions(
        operation=test.operation,
        device=test.device,
        ib_port=test.ib_port,
        gid_index=gid_index,
        message_bytes=test.message_bytes,
        iterations=test.iterations,
        queue_pairs=test.queue_pairs,
        seconds=test.seconds,
        traffic_class=test.traffic_class,
    )
    return perftest.argv(options, port, peer)


def unfinished(test: TestSettings, connected: bool) -> Report:
    """The report of a test that did not end in its time; `connected` is whether its client was
    connected to the peer's tool, as both tools are for as long as they transfer.
    """
    if connected:
        return still_transferring(test.timeout)
    return failed("timeout", f"no result in {test.timeout:g} s")


def judge(test: TestSettings, text: str, status: int) -> Report:
    """The result of this test from its client's output: one row, or why there is none."""
    report = PARSERS[test.tool](text)
    if report.outcome != "ok":
        return report
    rows = [row for row in report.rows if _is_of(test, row)]
    if not rows:
        return failed("harness", "no row of the configured size", report.rows)
    if status != 0:
        return failed("harness", f"{test.tool} ended with status {status}", rows)
    return Report(outcome="ok", rows=(rows[-1],))


def _is_of(test: TestSettings, row: ResultRow) -> bool:
    figure = row.latency_seconds if test.is_latency else row.bandwidth_bytes_per_second
    return figure is not None and (test.tool == "iperf3" or row.message_bytes == test.message_bytes)
