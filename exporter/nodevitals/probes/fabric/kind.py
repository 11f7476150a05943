"""What a configured test means for its tool: the link it uses, the command, the figure it gives."""

from __future__ import annotations

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import read_integer, read_text
from nodevitals.probes.common.rdma_fields import parse_rate
from nodevitals.probes.common.rdma_gids import gid_of_port
from nodevitals.probes.fabric.gate import Link
from nodevitals.probes.fabric.report import Report, Row, failed
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import PARSERS, iperf3, perftest

MEGABIT = 1e6 / 8
# What NVIDIA's own multi-node check asks of an idle link, for messages that can fill it: below
# 1 MiB one queue pair may not (https://github.com/Mellanox/ngc_multinode_perf).
LINE_RATE_SHARE = 0.9
LARGE_BYTES = 1 << 20


def link_of(test: TestSettings, host: Host) -> Link:
    """The link whose traffic tells that somebody needs it."""
    if test.tool == "perftest":
        folder = f"class/infiniband/{test.device}/ports/{test.ib_port}"
        return Link(
            tuple(f"{folder}/counters/{name}" for name in ("port_xmit_data", "port_rcv_data")),
            4,
            parse_rate(read_text(host.sys(f"{folder}/rate")) or ""),
        )
    folder = f"class/net/{test.device}"
    speed = read_integer(host.sys(f"{folder}/speed"))
    files = tuple(f"{folder}/statistics/{name}" for name in ("tx_bytes", "rx_bytes"))
    return Link(files, 1, speed * MEGABIT if speed else None)


def expected_of(test: TestSettings, host: Host) -> float | None:
    """Bytes a second of a sound link: as configured, or of the line rate where messages are large
    enough; None where nobody knows.
    """
    if test.expected is not None or test.is_latency:
        return test.expected
    rate = link_of(test, host).rate
    return rate * LINE_RATE_SHARE if rate and test.message_bytes >= LARGE_BYTES else None


def command(test: TestSettings, host: Host, port: int, peer: str | None = None) -> list[str]:
    """The client's command line on this node, or the server's where there is no peer. The GID is
    chosen anew each time: its index is not the same on all nodes, nor for ever.
    """
    if test.tool == "iperf3":
        return argv(test, None, port, peer)
    gid = gid_of_port(host, test.device, test.ib_port)
    return argv(test, None if gid is None else gid.index, port, peer)


def argv(
    test: TestSettings, gid_index: int | None, port: int, peer: str | None = None
) -> list[str]:
    """The same, for a GID that is known."""
    if test.tool == "iperf3":
        return iperf3.argv(port, peer, test.total_bytes, test.message_bytes, test.queue_pairs)
    wanted = perftest.Test(
        operation=test.operation,
        device=test.device,
        ib_port=test.ib_port,
        gid_index=gid_index,
        message_bytes=test.message_bytes,
        iterations=test.iterations,
        queue_pairs=test.queue_pairs,
    )
    return perftest.argv(wanted, port, peer)


def judge(test: TestSettings, text: str, status: int) -> Report:
    """What a client's output says of this test: one row, or why there is none."""
    report = PARSERS[test.tool](text)
    if report.outcome != "ok":
        return report
    rows = [row for row in report.rows if _is_of(test, row)]
    if not rows:
        return failed("harness", "no row of the size that was asked for", report.rows)
    if status != 0:
        return failed("harness", f"{test.tool} ended with status {status}", rows)
    return Report(outcome="ok", rows=(rows[-1],))


def _is_of(test: TestSettings, row: Row) -> bool:
    figure = row.latency_seconds if test.is_latency else row.bandwidth_bytes_per_second
    return figure is not None and (test.tool == "iperf3" or row.message_bytes == test.message_bytes)
