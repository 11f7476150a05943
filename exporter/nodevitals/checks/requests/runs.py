"""What a check runs on each pair, and how long a collective may take.

In: a resolved request without problems. Out: one TestSettings per size; seconds.
"""

from __future__ import annotations

from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.probes.fabric.settings import TestSettings

# Of one test: the agents agree, the tool starts, and the hosts resolve names.
START_SECONDS = 15.0
# Links down to 10 Gb/s, and Ethernet down to 100 Mb/s, end their tests in time. Bytes per second.
SLOWEST = {"perftest": 1.25e9, "iperf3": 12.5e6}
# Of a collective: the launcher starts all ranks, and these load their libraries.
LAUNCH_SECONDS = 60.0
LAUNCH_SECONDS_PER_NODE = 0.2
# The slowest bus bandwidth that a collective must not exceed its time with.
SLOWEST_BUS = 1e9
WARM_UP = 5
# Longest round trip of a latency test that must not exceed its time.
SLOWEST_MESSAGE_SECONDS = 1e-3


def sizes_of(test: TestRequest) -> tuple[int, ...]:
    """The sizes of the messages in bytes, smallest first."""
    return parse_sizes(test.sizes)


def tests_of(request: CheckRequest) -> tuple[TestSettings, ...]:
    """The tests of each pair, one per size, smallest first."""
    return tuple(_test(request, size) for size in sizes_of(request.test))


def _test(request: CheckRequest, size: int) -> TestSettings:
    test = request.test
    iterations = test.iterations or 1000
    return TestSettings(
        tool="iperf3" if test.tool == "iperf3" else "perftest",
        operation=test.operation,
        device=test.device,
        ib_port=test.port,
        message_bytes=size,
        iterations=iterations,
        queue_pairs=test.queue_pairs,
        seconds=test.seconds,
        gid_index=test.gid_index,
        traffic_class=test.traffic_class,
        expected=request.expected_bytes_per_second,
        timeout=_seconds(test, size, iterations),
    )


def _seconds(test: TestRequest, size: int, iterations: int) -> float:
    if test.seconds is not None:
        return START_SECONDS + test.seconds
    if test.operation.endswith("_lat"):
        return START_SECONDS + iterations * (SLOWEST_MESSAGE_SECONDS + size / SLOWEST["perftest"])
    return START_SECONDS + iterations * size * test.queue_pairs / SLOWEST[str(test.tool)]


def collective_seconds(request: CheckRequest, nodes: int) -> float:
    """Longest time of one collective over so many nodes."""
    rounds = 2 * ((request.test.iterations or 20) + WARM_UP)
    moved = sum(2 * size * rounds for size in sizes_of(request.test))
    return LAUNCH_SECONDS + LAUNCH_SECONDS_PER_NODE * nodes + moved / SLOWEST_BUS
