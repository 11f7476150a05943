"""A fleet on paper whose links have noise and share the network, with what is slow or broken in it.

In: the faults. Out: the results of pair tests and of collectives, as agents and launchers report
them; the same seed gives the same results.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodevitals.checks.isolation.bisection import Bisection, IsolationState, request_of, state_of
from nodevitals.checks.isolation.steps import Group
from nodevitals.checks.model import CheckRequest, RunResult, TestRequest
from nodevitals.checks.requests.rounds import Plan
from nodevitals.probes.fabric.tools.report import Report, ResultRow, failed

RATE = 48e9
SIZE = 1 << 20
PAIR_SECONDS = 4.0
COLLECTIVE_SECONDS = 45.0
OTHER_TRAFFIC = (0.4, 0.9)


def names(count: int) -> tuple[str, ...]:
    """Names of nodes."""
    return tuple(f"gpu-{number:04}" for number in range(count))


def matrix(nodes: Iterable[str], rounds: int | None = None, **changes: object) -> CheckRequest:
    """A resolved request for pairs."""
    test = TestRequest(
        tool="perftest", operation="write_bw", device="mlx5_3", sizes="1MiB", iterations=1000
    )
    fields = {"kind": "matrix", "nodes": tuple(nodes), "rounds": rounds, "test": test, **changes}
    return CheckRequest(**fields)  # type: ignore[arg-type]


def collective(nodes: Iterable[str], **changes: object) -> CheckRequest:
    """A resolved request for a collective."""
    test = TestRequest(tool="nccl", operation="all_reduce", sizes="1GiB", devices_per_node=8)
    fields = {"kind": "collective", "nodes": tuple(nodes), "test": test, **changes}
    return CheckRequest(**fields)  # type: ignore[arg-type]


def pair_report(rate: float) -> Report:
    """The report of one pair's test."""
    row = ResultRow(message_bytes=SIZE, bandwidth_bytes_per_second=rate)
    return Report(outcome="ok", rows=(row,))


def bus_report(rate: float) -> Report:
    """The report of a collective."""
    row = ResultRow(message_bytes=1 << 30, bus_bandwidth_bytes_per_second=rate)
    return Report(outcome="ok", rows=(row,))


@dataclass
class Fleet:
    """`slow` is the share of the rate that a node loses, `shared` the share of the pairs that meet
    other traffic.
    """

    nodes: tuple[str, ...]
    slow: Mapping[str, float] = field(default_factory=dict)
    noise: float = 0.03
    shared: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def rate(self, nodes: Iterable[str], shared: float) -> float:
        """The rate of a test over these nodes: that of the slowest."""
        rate = RATE * min(1 - self.slow.get(name, 0.0) for name in nodes)
        if self._random.random() < shared:
            rate *= self._random.uniform(*OTHER_TRAFFIC)
        return rate * max(0.1, self._random.gauss(1, self.noise))

    def pairs(self, request: CheckRequest) -> Iterator[RunResult]:
        """The results of all pairs of a plan."""
        for _, number, one in Plan(request).numbered():
            pair = (one.source, one.target)
            report = pair_report(self.rate(pair, self.shared))
            yield RunResult(number=number, nodes=pair, reports=(report,), seconds=PAIR_SECONDS)

    def collective(self, nodes: tuple[str, ...]) -> Report:
        """The result of a collective. Others share one of many paths, not all of them."""
        return bus_report(self.rate(nodes, 0.0))


def isolate(
    request: CheckRequest,
    answer: Callable[[CheckRequest], Report],
    baseline: float | None = None,
    rails: tuple[str, ...] = (),
    max_runs: int = 64,
    whole: float | None = None,
) -> tuple[Bisection, int]:
    """Run a bisection to its end. Returns it, and the number of its batches."""
    search = Bisection(state_of(request, baseline, rails, max_runs, whole=whole))
    batches = 0
    while groups := search.next():
        assert_disjoint(groups)
        batches += 1
        search.feed([result_of(search.state, group, answer) for group in groups])
    return search, batches


def result_of(
    state: IsolationState, group: Group, answer: Callable[[CheckRequest], Report]
) -> RunResult:
    """The result of one group."""
    report = answer(request_of(state.request, group))
    return RunResult(number=0, nodes=group.nodes, reports=(report,), seconds=COLLECTIVE_SECONDS)


def assert_disjoint(groups: Iterable[Group]) -> None:
    """No node is in two groups of a batch, and a collective has two nodes or more."""
    nodes = [name for group in groups for name in group.nodes]
    assert len(nodes) == len(set(nodes))
    assert all(len(group.nodes) >= 2 for group in groups)


def broken(reason: str = "timeout") -> Report:
    """The report of a test that failed."""
    return failed(reason, "no result")  # type: ignore[arg-type]
