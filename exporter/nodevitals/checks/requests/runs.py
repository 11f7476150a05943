"""The tests of a check on each pair, and the time limit of a collective.

In: a resolved request without problems. Out: series, and one TestSettings for each size of each of
them; seconds.

A series is one operation between one device of the source and one of the target. A pair runs all
series of a check one after the other, and a result has their reports in this order. So the part of
a request and of its results that belongs to one series is a request and results as well, which are
judged as if they were the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest, RunResult, TestRequest
from nodevitals.checks.requests.sizes import parse_sizes, spelled
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.report import LATENCY

# Extra time of one test: the agents agree, the tool starts, and the hosts resolve names.
START_SECONDS = 15.0
# The slowest links that end a test in time: 10 Gb/s, for Ethernet 100 Mb/s. Bytes per second.
SLOWEST = {"perftest": 1.25e9, "iperf3": 12.5e6}
# Extra time of a collective: the launcher starts all ranks, which load their libraries.
LAUNCH_SECONDS = 60.0
LAUNCH_SECONDS_PER_NODE = 0.2
# The lowest bus bandwidth with which a collective ends in time.
SLOWEST_BUS = 1e9
WARM_UP = 5
# The longest round trip with which a latency test ends in time.
SLOWEST_MESSAGE_SECONDS = 1e-3


LATENCY_BYTES = 8
"""Size of a message of a latency where the sizes of the check are those of a bandwidth."""


class Series(NamedTuple):
    """One operation between two devices, with messages of some sizes."""

    device: str
    peer_device: str
    """Device of the target; '' where it has the same name."""
    operation: str
    sizes: tuple[int, ...]
    first: int
    """Place of its first report in a result."""

    @property
    def name(self) -> str:
        """`write_bw mlx5_0`: unique in a check."""
        return f"{self.operation} {self.devices}".rstrip()

    @property
    def devices(self) -> str:
        """`mlx5_0`, or `mlx5_0 - mlx5_3` where the rails are crossed."""
        return f"{self.device} - {self.peer_device}" if self.peer_device else self.device


def words_of(text: str) -> tuple[str, ...]:
    """The words of a list such as `mlx5_0,mlx5_1`, each once."""
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def series_of(test: TestRequest, names: Collection[str] = ()) -> tuple[Series, ...]:
    """The series of a resolved test: by operation, then by device; of a check of nodes, one. With
    `names`, those of a repetition that tested only these.
    """
    if not test.sizes:
        return (Series("", "", "", (), 0),)
    operations, devices = words_of(test.operation), words_of(test.device)
    only_latencies = all(operation in LATENCY for operation in operations)
    found: list[Series] = []
    first = 0
    for operation in operations:
        is_short = operation in LATENCY and not only_latencies
        sizes = (LATENCY_BYTES,) if is_short else sizes_of(test)
        for device in devices:
            for peer in devices if test.crossed else (device,):
                series = Series(device, "" if peer == device else peer, operation, sizes, first)
                if not names or series.name in names:
                    found.append(series)
                    first += len(sizes)
    return tuple(found)


def request_of(request: CheckRequest, series: Series) -> CheckRequest:
    """The request of one series alone."""
    test = replace(
        request.test,
        device=series.device,
        crossed=False,
        operation=series.operation,
        sizes=spelled(series.sizes),
    )
    expected = request.expected_bytes_per_second
    return replace(
        request,
        test=test,
        expected_bytes_per_second=None if series.operation in LATENCY else expected,
    )


def results_of(results: Iterable[RunResult], series: Series) -> list[RunResult]:
    """The results of one series alone, of runs that tested all."""
    part = slice(series.first, series.first + len(series.sizes))
    return [
        replace(
            result,
            reports=result.reports[part],
            ports_bytes_per_second=result.ports_bytes_per_second[part],
            port_limits=result.port_limits[part],
        )
        for result in results
    ]


def by_node(texts: Iterable[tuple[str, str]]) -> str:
    """The commands or outputs of a result, each below the name of its node as a comment of a
    shell.
    """
    return "\n".join(f"# {node}\n{text}" for node, text in texts if text)


def sizes_of(test: TestRequest) -> tuple[int, ...]:
    """The sizes of the messages in bytes, smallest first."""
    return parse_sizes(test.sizes)


def pair_tests(request: CheckRequest, names: Collection[str] = ()) -> tuple[TestSettings, ...]:
    """The tests of each pair: of all series or those with these names, and of each the smallest
    message first.
    """
    return tuple(
        _test(request, series, size)
        for series in series_of(request.test, names)
        for size in series.sizes
    )


def _test(request: CheckRequest, series: Series, size: int) -> TestSettings:
    test, latency = request.test, series.operation in LATENCY
    iterations = test.iterations or 1000
    if latency and series.sizes != sizes_of(test):
        iterations = 1000  # those of the request are for a bandwidth
    return TestSettings(
        tool="iperf3" if test.tool == "iperf3" else "perftest",
        operation=series.operation,
        device=series.device,
        peer_device=series.peer_device,
        ib_port=test.port,
        message_bytes=size,
        iterations=iterations,
        queue_pairs=1 if latency else test.queue_pairs,
        seconds=None if latency else test.seconds,
        gid_index=test.gid_index,
        traffic_class=test.traffic_class,
        timeout=_seconds(test, series.operation, size, iterations),
    )


def _seconds(test: TestRequest, operation: str, size: int, iterations: int) -> float:
    if operation in LATENCY:
        return START_SECONDS + iterations * (SLOWEST_MESSAGE_SECONDS + size / SLOWEST["perftest"])
    if test.seconds is not None:
        return START_SECONDS + test.seconds
    return START_SECONDS + iterations * size * test.queue_pairs / SLOWEST[str(test.tool)]


def warm_up_of(test: TestRequest) -> int:
    """The iterations of a collective before those that are timed."""
    return WARM_UP if test.warm_up_iterations is None else test.warm_up_iterations


def collective_seconds(request: CheckRequest, nodes: int) -> float:
    """The time limit of one collective over this number of nodes."""
    rounds = 2 * ((request.test.iterations or 20) + warm_up_of(request.test))
    moved = sum(2 * size * rounds for size in sizes_of(request.test))
    return LAUNCH_SECONDS + LAUNCH_SECONDS_PER_NODE * nodes + moved / SLOWEST_BUS
