"""What a check will cost at most, before it starts.

In: a resolved request without problems. Out: Cost. The rate of the links is not known: times are
those after which tests are ended, and where a test takes a stated time, bytes are those of the
fastest link, or the most that iperf3's streams move.
"""

from __future__ import annotations

from nodevitals.checks.model import CheckRequest, Cost
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.requests.runs import WARM_UP, collective_seconds, sizes_of, tests_of
from nodevitals.probes.fabric.measurement import fastest_of
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.report import LATENCY

# 1.6 Tb/s, in bytes per second: no port of today is faster.
FASTEST = 200e9
# Between two rounds: orders are sent to the agents.
ROUND_SECONDS = 1.0
NODE_CHECK_SECONDS = 60.0
PARALLEL_PAIRS = 256


def cost(request: CheckRequest, parallel_pairs: int = PARALLEL_PAIRS) -> Cost:
    """The cost of a resolved request, of which so many pairs are tested at a time."""
    if request.kind == "collective":
        return _of_collective(request)
    if request.kind == "node":
        count = len(request.nodes)
        seconds = NODE_CHECK_SECONDS
        return Cost(
            nodes=count, runs=count, node_seconds=count * seconds, seconds=seconds, bytes=0.0
        )
    plan = Plan(request)
    tests = tests_of(request)
    of_a_pair = sum(test.timeout for test in tests)
    in_a_round = plan.runs // len(plan) if len(plan) else 0
    turns = -(-in_a_round // parallel_pairs)
    return Cost(
        nodes=len(request.nodes),
        runs=plan.runs,
        node_seconds=2 * plan.runs * of_a_pair,
        seconds=len(plan) * turns * (of_a_pair + ROUND_SECONDS),
        bytes=plan.runs * sum(_bytes(request, test) for test in tests),
    )


def _bytes(request: CheckRequest, of_size: TestSettings) -> float:
    test, size = request.test, of_size.message_bytes
    if test.seconds is not None:
        rate = fastest_of(of_size) if test.tool == "iperf3" else FASTEST
        return rate * test.seconds
    both = 2 if test.operation in LATENCY else 1
    return float(both * size * (test.iterations or 1000) * test.queue_pairs)


def _of_collective(request: CheckRequest) -> Cost:
    """All nodes once. A bisection that follows has a budget of its own (isolation/bisection.py)."""
    test, count = request.test, len(request.nodes)
    seconds = collective_seconds(request, count)
    # In and out of place. A ring sends each byte twice; alltoall one message per rank.
    repeated = 2 * ((test.iterations or 20) + WARM_UP)
    copies = test.devices_per_node or 8 if test.operation in ("alltoall", "sendrecv") else 2
    moved = float(count * copies * repeated * sum(sizes_of(test))) if count > 1 else 0.0
    return Cost(nodes=count, runs=1, node_seconds=count * seconds, seconds=seconds, bytes=moved)
