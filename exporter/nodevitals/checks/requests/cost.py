"""Estimates the highest cost of a check before it starts.

In: a resolved request without problems. Out: Cost. The rate of the links is not known: times are
the time limits of the tests. For a test of a fixed duration, bytes are what the fastest link, or at
most iperf3's streams, can move.
"""

from __future__ import annotations

from nodevitals.checks.model import CheckRequest, Cost
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.requests.runs import collective_seconds, pair_tests, sizes_of, warm_up_of
from nodevitals.probes.fabric.measurement import fastest_of
from nodevitals.probes.fabric.settings import TestSettings

# 1.6 Tb/s, in bytes per second: no current port is faster.
FASTEST = 200e9
# Time between two rounds, to send requests to the agents.
ROUND_SECONDS = 1.0
NODE_CHECK_SECONDS = 60.0
PARALLEL_PAIRS = 256


def cost(request: CheckRequest, parallel_pairs: int = PARALLEL_PAIRS) -> Cost:
    """The cost of a resolved request; `parallel_pairs` pairs are tested at the same time."""
    if request.kind == "collective":
        return _of_collective(request)
    if request.kind == "node":
        count = len(request.nodes)
        seconds = NODE_CHECK_SECONDS
        return Cost(
            nodes=count, runs=count, node_seconds=count * seconds, seconds=seconds, bytes=0.0
        )
    plan = Plan(request)
    tests = pair_tests(request)
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
    if of_size.seconds is not None:
        rate = fastest_of(of_size) if test.tool == "iperf3" else FASTEST
        return rate * of_size.seconds
    both = 2 if of_size.is_latency else 1
    return float(both * size * of_size.iterations * of_size.queue_pairs)


def _of_collective(request: CheckRequest) -> Cost:
    """The cost of one run over all nodes. A bisection has its own budget (isolation/)."""
    test, count = request.test, len(request.nodes)
    seconds = collective_seconds(request, count)
    # The tool runs in place and out of place. A ring sends each byte twice; alltoall sends one
    # message per rank.
    repeated = 2 * ((test.iterations or 20) + warm_up_of(test))
    copies = test.devices_per_node or 8 if test.operation in ("alltoall", "sendrecv") else 2
    moved = float(count * copies * repeated * sum(sizes_of(test))) if count > 1 else 0.0
    return Cost(nodes=count, runs=1, node_seconds=count * seconds, seconds=seconds, bytes=moved)
