"""The tests of a check on each pair, and the time limit of a collective.

In: a resolved request without problems. Out: one TestSettings per size; seconds.
"""

from __future__ import annotations

from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.probes.fabric.settings import TestSettings

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
    """The time limit of one collective over this number of nodes."""
    rounds = 2 * ((request.test.iterations or 20) + WARM_UP)
    moved = sum(2 * size * rounds for size in sizes_of(request.test))
    return LAUNCH_SECONDS + LAUNCH_SECONDS_PER_NODE * nodes + moved / SLOWEST_BUS
