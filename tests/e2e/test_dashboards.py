"""Every query of every panel, asked of a real Prometheus that has scraped a simulated fleet.

`make proof PART=dashboards` asks them also of a fleet without faults and of one without pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from dashboards.preview.queries import (
    Prometheus,
    answer,
    options,
    panels,
    queries,
    read,
    variables,
)
from dashboards.preview.span import Span

from nodevitals.commands.generated.recorded import recorded_series
from testbed.dashboards import FILES
from testbed.node import ROOT
from testbed.site import Site

BOARDS = {path.stem: read(path) for path in FILES["en"]}
# The faults that need longest, half an hour of a GPU that slows down, are there after this.
PAST_SECONDS = 2700
# Of a month, the last point of a graph may lie before the past of the fleet.
SINCE = "now-40m"
# The first test of each fleet fills its past.
by_name = pytest.mark.parametrize("name", BOARDS)
# The dashboard of one node: together these have every kind of device and fault.
NODES = ("gpu-01", "gpu-02", "gpu-04", "gpu-07", "gpu-08", "gpu-11", "npu-01")


class Fleet(NamedTuple):
    """A site that runs: what is asked, its scrape interval, the time of its last samples, and what
    was found about each dashboard.
    """

    prometheus: Prometheus
    step: int
    now: float
    found: dict[str, dict[str, set[str]]]

    def unanswered(self, name: str) -> dict[str, set[str]]:
        """Return which queries of each panel have no data, by title; a dashboard of one node is
        asked of one after the other.
        """
        if name not in self.found:
            self.found[name] = self._unanswered(name)
        return self.found[name]

    def _unanswered(self, name: str) -> dict[str, set[str]]:
        board = BOARDS[name]
        span = Span.last(SINCE, self.now, self.step)
        single = any(
            one["name"] == "instance" and not one.get("includeAll")
            for one in board["templating"]["list"]
        )
        missing = {
            panel["title"]: {target["refId"] for target in panel["targets"]}
            for panel in panels(board)
            if panel.get("targets")
        }
        for node in NODES if single else ("",):
            known = variables(board, self.prometheus, span, {"instance": [node]} if node else {})
            for panel in panels(board):
                panel.pop("timeFrom", None)
                for query in queries(panel, known, span) if panel["title"] in missing else ():
                    left = missing[panel["title"]]
                    if query.ref in left and answer(query, span, self.prometheus):
                        left.discard(query.ref)
        return missing

    def silent(self, name: str) -> set[str]:
        """Return the titles of the panels of which no query has data."""
        asked = {panel["title"]: len(panel.get("targets", ())) for panel in panels(BOARDS[name])}
        return {title for title, left in self.unanswered(name).items() if len(left) == asked[title]}


class Fleets:
    """One site at a time, because each evaluates all rules: the one before ends."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stack = ExitStack()
        self._running: dict[str, Fleet] = {}

    def only(self, name: str, step: int, **switches: Any) -> Fleet:
        """The site with these switches, which is scraped every `step` seconds."""
        if name not in self._running:
            self.end()
            switches |= {"step": step, "past_seconds": PAST_SECONDS, "leased": NODES[0]}
            site = Site(self._factory.mktemp(name), ROOT / "rules", **switches)
            self._stack.enter_context(site)
            now = site.prometheus.filled_until
            self._running = {name: Fleet(Prometheus(site.url, 120), step, now, {})}
        return self._running[name]

    def end(self) -> None:
        """End the site that runs."""
        self._running = {}
        self._stack.close()


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleets]:
    made = Fleets(tmp_path_factory)
    yield made
    made.end()


@pytest.fixture
def faulty(fleets: Fleets) -> Fleet:
    """Faults and pods, scraped every 15 s."""
    return fleets.only("faulty", 15)


@pytest.fixture
def healthy(fleets: Fleets) -> Fleet:
    """No faults, and pods, scraped every 60 s."""
    return fleets.only("healthy", 60, faults=False)


@pytest.fixture
def bare(fleets: Fleets) -> Fleet:
    """Faults without pods, scraped every 60 s by a Prometheus that sets no label cluster."""
    return fleets.only("bare", 60, pods=False, cluster=False)


# Panels that may be empty, by dashboard, with reasons.
# Nothing is lost or fails in the agents and in this Prometheus.
NO_LOSS = {
    "self": {
        "Errors of the storage per hour",
        "Lost rows, messages and connections per hour",
        # Of the past this server knows no counters that move.
        "Samples per second",
    }
}
# Incidents and confirmed faults come from alerts that fire: the past has none.
BEGINS = {"fleet": {"Fleet incidents", "Success on failed nodes"}}
# They list what is wrong, or count it.
NO_FAULTS = {
    "conformity": {
        "Facts that differ from the profile",
        "Facts unlike the pool",
        "Facts unlike the pool over time",
        "Nodes that differ from their profile",
        "Nodes that differ over time",
        "Nodes unlike their pool",
    },
    "fabric": {
        "Alerts of the fabric",
        "Failures per hour by reason",
        "Found bad",
        "Longest outages of RDMA ports",
        "Nodes that do not reach all peers",
        "Pairs that do not connect",
        "Peers that some nodes do not reach",
        "Ports with an outage",
        "Skips per hour by reason",
        "Slowest pairs",
    },
    "fleet": {
        "Between failures in the fleet (7 days)",
        "Between failures of a node (7 days)",
        "Fault codes in 24 hours",
        "Faults of the worst tenth (30 days)",
        "Firing alerts",
        "Most frequent faults (7 days)",
        "Nodes that are not healthy",
        "Overdue probes",
        "Repeat offenders",
        "Slowest nodes in fabric tests",
        "Success on failed nodes",
        "Time between failures of a node, 30 days",
        "What changed in 24 hours",
        "Worst NVLinks",
        "Worst RDMA ports in 24 hours",
        "Worst accelerators",
    },
    "hardware": {
        "Chassis parts that are not ok",
        "Down time of RDMA ports",
        "Hardware alerts",
        "Read-only, hung, locked up",
        "Scripts that are not ok",
        "Units that fail or restart",
    },
    "job": {"Faults on its devices and nodes", "Nodes that were not healthy"},
    "node": {
        "Alerts over time",
        "Faults over time",
        "Firing alerts",
        "Kernel events",
        "Memory errors of the host",
        "NPU fault codes",
        "NPU network errors",
        "NVLink errors",
        "New ECC errors",
        "PCIe replays",
        "RDMA errors",
    },
    "self": {
        "Failing probes",
        "Nodes out of service",
        "Open incidents",
        "Probes that fail or are stuck",
        "Repairs and decisions within a day",
        "Time to acknowledge and to repair",
        "Waits for a person",
    },
}
# They are about pods; all panels of the dashboard of a job are.
NO_PODS = {
    "fleet": {"Jobs that succeeded", "Success on failed nodes", "Success on other nodes"},
    "node": {"Pods and jobs", "Pods over time", "Schedulable"},
    "usage": {
        "Booked by owner",
        "Booked hours",
        "Booked share",
        "By owner",
        "By pool",
        "By queue",
        "Idle by owner",
        "Idle hours",
        "Idle share",
    },
}

# Queries of panels that have other data.
NO_SUCH_DATA = {
    "fabric": {
        # No pair is tested in both directions; no Pushgateway is scraped.
        "Slowest pairs": {"B"},
        "Last collectives": {"C"},
    },
    "fleet": {
        # Links have errors, transports none; no faulty GPU is slowed down; no pod fails.
        "Worst RDMA ports in 24 hours": {"C"},
        "Worst accelerators": {"D"},
        "Pods that failed, and faults": {"A"},
    },
    "node": {
        # InfiniBand has no GIDs of RoCE. NPUs count no ECC errors here, and the kernel logged once.
        "RDMA ports": {"I", "J", "K"},
        "New ECC errors": {"B"},
        "Fabric tests as peer": {"D"},
        "Kernel events": {"B"},
    },
    # Prometheus has no Alertmanager here.
    "self": {"Alerts sent to Alertmanager per hour": {"A", "B"}},
}


def of(name: str, *reasons: dict[str, set[str]]) -> set[str]:
    """Return the panels of a dashboard that may be empty for these reasons."""
    return set().union(*(one.get(name, set()) for one in reasons))


@by_name
def test_with_faults_and_pods_every_panel_has_data(faulty: Fleet, name: str) -> None:
    assert faulty.silent(name) <= of(name, NO_LOSS, BEGINS)


@by_name
def test_with_faults_and_pods_every_query_has_data(faulty: Fleet, name: str) -> None:
    known = NO_SUCH_DATA.get(name, {})
    may = of(name, NO_LOSS, BEGINS)
    missing = {
        title: left - known.get(title, set())
        for title, left in faulty.unanswered(name).items()
        if title not in may
    }
    assert {title: left for title, left in missing.items() if left} == {}


@by_name
def test_every_variable_has_values(faulty: Fleet, name: str) -> None:
    span = Span.last(SINCE, faulty.now, faulty.step)
    known = variables(BOARDS[name], faulty.prometheus, span, {})
    for model in BOARDS[name]["templating"]["list"]:
        assert options(model, known, faulty.prometheus, span), model["name"]


def test_recorded_series_are_as_the_catalogue_says(faulty: Fleet) -> None:
    """What docs/METRICS.md says of their labels and of their values."""
    found = 0
    for one in recorded_series().values():
        series = faulty.prometheus.now(f"last_over_time({one.name}[1h])", faulty.now)
        found += bool(series)
        labels = {label for sample in series for label in sample["metric"]}
        assert labels <= {"__name__", *one.labels}, one.name
        values = {float(sample["values"][0][1]) for sample in series}
        if one.help.startswith("Always 1"):
            assert values <= {1}, one.name
        elif one.help.startswith("Whether"):
            assert values <= {0, 1}, one.name
    assert found > 150


@pytest.mark.proof("dashboards")
@by_name
def test_without_faults_only_lists_of_faults_are_empty(healthy: Fleet, name: str) -> None:
    assert healthy.silent(name) <= of(name, NO_LOSS, BEGINS, NO_FAULTS)


@pytest.mark.proof("dashboards")
@by_name
def test_without_pods_and_cluster_only_panels_about_pods_are_empty(bare: Fleet, name: str) -> None:
    silent = bare.silent(name)
    if name == "job":
        assert silent == {panel["title"] for panel in panels(BOARDS[name])}
        return
    assert silent <= of(name, NO_LOSS, BEGINS, NO_PODS)
    assert silent >= of(name, NO_PODS)


def test_the_panels_that_may_be_empty_exist() -> None:
    titles = {name: {panel["title"] for panel in panels(board)} for name, board in BOARDS.items()}
    partly = {name: set(named) for name, named in NO_SUCH_DATA.items()}
    for reasons in (NO_LOSS, BEGINS, NO_FAULTS, NO_PODS, partly):
        for name, named in reasons.items():
            assert named <= titles.get(name, named), named - titles[name]
