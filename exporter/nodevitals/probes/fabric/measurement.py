"""A configured test on its node: the command line, the result in the output, and the records of
tests that ran.
"""

from __future__ import annotations

from typing import Optional, Union

import msgspec
from msgspec.structs import replace

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import exists
from nodevitals.probes.common.rdma import gid_of_port
from nodevitals.probes.fabric.node.addresses import ends
from nodevitals.probes.fabric.node.port import facts_here, link_of, promised
from nodevitals.probes.fabric.orders import AcceptedOrder, FinishedOrder
from nodevitals.probes.fabric.protocol import Opened
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import PARSERS, iperf3, perftest
from nodevitals.probes.fabric.tools.report import (
    NOT_TESTED,
    Reason,
    Report,
    ResultRow,
    failed,
    still_transferring,
)

# NVIDIA's own multi-node check demands this of an idle link. Messages below 1 MiB may not fill the
# link with one queue pair (https://github.com/Mellanox/ngc_multinode_perf).
LINE_RATE_SHARE = 0.9
LARGE_BYTES = 1 << 20
# Highest bytes per second of a link whose rate is unknown: 4X XDR has 800 Gb/s.
FASTEST_LINK = 100e9


def problem_of(test: TestSettings, host: Host, node: str) -> Report | None:
    """What this node lacks for a test and the tool would not report: iperf3 has no option for the
    device. `class/net` contains bonds and VLANs, which are devices, and the file bonding_masters.
    """
    if test.tool != "iperf3" or exists(host.sys(f"class/net/{test.device}/ifindex")) is not False:
        return None
    return failed("no_device", f"{node} has no network device {test.device}: write another one")


def bytes_of(test: TestSettings, host: Host, ran_seconds: float | None = None) -> float:
    """The most bytes that a test moves, or moved while its tool ran for so long. For a test with a
    duration: the bytes that its link carries in that time or, without a known rate, its tool.
    """
    if test.seconds is None:
        return test.total_bytes
    seconds = test.seconds if ran_seconds is None else min(test.seconds, ran_seconds)
    return seconds * (link_of(test, host).rate or fastest_of(test))


def fastest_of(test: TestSettings) -> float:
    """Highest bytes per second of the tool on any link."""
    if test.tool == "iperf3":
        return min(FASTEST_LINK, test.queue_pairs * iperf3.FASTEST_STREAM)
    return FASTEST_LINK


def expected_of(test: TestSettings, host: Host) -> float | None:
    """Bytes per second of a healthy link: as configured, or a share of the link's rate, at most of
    what its PCIe slot can carry, if messages are large enough; None if unknown.
    """
    if test.expected is not None or test.is_latency:
        return test.expected
    rate = promised(test, facts_here(test, host)) or link_of(test, host).rate
    return rate * LINE_RATE_SHARE if rate and test.message_bytes >= LARGE_BYTES else None


def client_command(test: TestSettings, host: Host, peer: str, opened: Opened) -> list[str]:
    """The command line of the client for a test that this peer opened. iperf3 connects the devices
    of both nodes by their addresses, where both have one.
    """
    there, here = ends(test, opened.address)
    return command(test, host, opened.port, there or peer, here)


def command(
    test: TestSettings, host: Host, port: int, peer: str | None = None, own: str = ""
) -> list[str]:
    """The command line of the client on this node; without a peer, of the server. `own` is the
    address that iperf3 sends from. The GID is chosen for each test, unless it is configured: its
    index differs between nodes and may change.
    """
    if test.tool == "iperf3" or test.gid_index is not None:
        return argv(test, test.gid_index, port, peer, own)
    gid = gid_of_port(host, test.device, test.ib_port)
    return argv(test, None if gid is None else gid.index, port, peer)


def argv(
    test: TestSettings,
    gid_index: int | None,
    port: int,
    peer: str | None = None,
    own: str = "",
) -> list[str]:
    """The command line for a known GID; iperf3 sends from `own`, an address."""
    if test.tool == "iperf3":
        sizes = (test.total_bytes, test.message_bytes, test.queue_pairs)
        return iperf3.argv(port, peer, *sizes, test.seconds, test.traffic_class, own)
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
    """The report of a test that did not end in time. `connected`: its client was connected to the
    peer's tool, as the tools are while they transfer.
    """
    if connected:
        return still_transferring(test.timeout)
    return failed("timeout", f"no result in {test.timeout:g} s")


def judge(test: TestSettings, text: str, status: int) -> Report:
    """The result of this test by its client's output: one row, or why there is none."""
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


class FailedTests:
    """The failures of the tests that ran one after the other. After one, those with larger messages
    that are otherwise the same are left out.
    """

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, Reason]] = {}

    def add(self, test: TestSettings, report: Report) -> None:
        """Take a report."""
        if report.reason is not None:
            self._failed.setdefault(_without_size(test), (test.message_bytes, report.reason))

    def left_out(self, test: TestSettings) -> Report | None:
        """The report of a test that is left out; None where it must run."""
        size, reason = self._failed.get(_without_size(test), (0, None))
        if reason is None or size >= test.message_bytes:
            return None
        return failed(reason, NOT_TESTED)


def _without_size(test: TestSettings) -> str:
    return replace(test, message_bytes=1, iterations=5).key


class StartedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that this node started at `time` (seconds since the epoch). `skipped` is one of SKIPS
    if it was not started or was stopped, else ''; `seconds` is how long the tool ran here, `bytes`
    the most that it can have moved.
    """

    test: TestSettings
    source: str
    peer: str
    time: float
    seconds: float = 0.0
    bytes: float = 0.0
    skipped: str = ""
    report: Optional[Report] = None
    ordered: bool = False
    """Whether the hub ordered it."""
    forced: bool = False
    """Whether it ran even though the node may have been in use."""


class ServedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that a peer started: how long its server side ran here, and the most bytes it
    moved.
    """

    test: TestSettings
    seconds: float
    bytes: float


FinishedTest = Union[StartedTest, ServedTest, AcceptedOrder, FinishedOrder]
