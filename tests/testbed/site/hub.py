"""The hub of the simulated fleet: what it exposes of its newest checks, and a node under a lease.

The families are filled by the hub's own code, from the results of checks on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nodevitals import __version__
from nodevitals.checks.model import (
    Check,
    CheckDetail,
    CheckRequest,
    Cost,
    Requester,
    RunResult,
)
from nodevitals.checks.verdicts.verdict import judge
from nodevitals_hub import families
from nodevitals_hub.checks.newest import NewestChecks, Sample
from testbed import slowfleet
from testbed.site.fleet import CLUSTER, SiteNode
from testbed.site.hub_response import response
from testbed.site.series import Series, ValueAt

HOUR = 3600.0
URL = "https://hub.example.org"
WHERE = {"pool": "training"}
# The newest check of each kind ended then, and those before it a day apart.
ENDED_BEFORE = 1200.0
LEASE_SECONDS = 600
_FAST = (
    *("rdma_port_received_bytes", "rdma_port_transmitted_bytes", "rdma_port_congestion"),
    *("network_received_bytes", "network_transmitted_bytes"),
)


def monitoring(nodes: list[SiteNode], now: float, faults: bool) -> list[Series]:
    """Return the series of the hub: a matrix and a collective of a pool, once a day; with faults,
    the newest of each found a slow node.
    """
    names = tuple(node.name for node in nodes if node.vendor == "nvidia" and node.number % 4 < 2)
    newest = NewestChecks()
    for day in range(4, 0, -1):
        for detail in _checks(names, now - ENDED_BEFORE - 24 * HOUR * day, {}, day):
            newest.take(detail)
    before = _values(newest.samples(URL))
    slow = {names[-1]: 0.5} if faults else {}
    for detail in _checks(names, now - ENDED_BEFORE, slow, 0):
        newest.take(detail)
    after = _values(newest.samples(URL))
    own = {"job": "nodevitals-hub", "instance": "nodevitals-hub", "cluster": CLUSTER}
    found = [
        Series(name, own | dict(labels), _changes(before.get(key), after.get(key), now))
        for key in {**before, **after}
        for name, labels in (key,)
    ]
    build = families.BUILD
    version = dict(zip(build.labels, (__version__,), strict=True))
    found += response(own, now, faults)
    return [*found, Series(build.name, own | version, 1.0), Series("up", own, 1.0)]


def leased(node: SiteNode) -> Iterator[Series]:
    """Yield the series of the second scrape job of a node."""
    for name in _FAST:
        for one in node.find(f"nodevitals_{name}_total"):
            yield Series(one.name, one.labels | {"job": "nodevitals-fast"}, one.value)


Key = tuple[str, tuple[tuple[str, str], ...]]


def _values(samples: Iterable[Sample]) -> dict[Key, float]:
    return {
        (family.name, tuple(zip(family.labels, labels, strict=True))): value
        for family, labels, value in samples
    }


def _changes(before: float | None, after: float | None, now: float) -> ValueAt:
    return lambda moment: before if moment < now - ENDED_BEFORE else after


def _checks(
    names: tuple[str, ...], ended: float, slow: dict[str, float], seed: int
) -> Iterator[CheckDetail]:
    fleet = slowfleet.Fleet(names, slow=slow, seed=seed)
    matrix = slowfleet.matrix(names, where=WHERE)
    yield _detail(matrix, tuple(fleet.pairs(matrix)), ended)
    collective = slowfleet.collective(names, where=WHERE)
    report = fleet.collective(names)
    result = RunResult(number=0, nodes=names, reports=(report,), seconds=45.0)
    yield _detail(collective, (result,), ended)


def _detail(request: CheckRequest, results: tuple[RunResult, ...], ended: float) -> CheckDetail:
    check = Check(
        id=f"20260101-000000-{round(ended) % 10**6:06}",
        request=request,
        requester=Requester(trigger="schedule", name="nightly"),
        cost=Cost(nodes=len(request.nodes), runs=len(results), node_seconds=1, seconds=1, bytes=1),
        created=ended - 120,
        baseline=slowfleet.RATE,
        started=ended - 100,
        ended=ended,
        phase="done",
    )
    verdict = judge(check, results)
    return CheckDetail(check=replace(check, verdict=verdict), results=results)
