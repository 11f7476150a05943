"""Two real Prometheus servers of two clusters with nodes of the same names, and central ones that
get their series by remote write and by federation, with the example files of the packaging.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from dashboards import central
from dashboards.preview.queries import Prometheus, answer, options, panels, queries, variables
from dashboards.preview.span import Span

from testbed.clusters import (
    EAST,
    REPLICA,
    STEP,
    WEST,
    Central,
    Clusters,
    ask,
    example,
    leaf,
    send_past,
)
from testbed.dashboards import every
from testbed.node import wait_until
from testbed.promql import name_of, selectors

BOARDS = every()
pytestmark = pytest.mark.timeout(300)
by_name = pytest.mark.parametrize("name", central.DASHBOARDS)
Result = dict[frozenset[tuple[str, str]], list[tuple[float, float]]]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """East has faults, west has none; both have pods."""
    folder = tmp_path_factory.mktemp("clusters")
    with ExitStack() as stack:
        written = stack.enter_context(Central(folder, "written"))
        leaves = {
            name: stack.enter_context(
                leaf(folder / name, name, written.url, faults=name == "east", nodes=nodes)
            )
            for name, nodes in (("east", EAST), ("west", WEST))
        }
        for name, site in leaves.items():
            send_past(site, name, written)
        addresses = [site.url.removeprefix("http://") for site in leaves.values()]
        federated = stack.enter_context(Central(folder, "federated", addresses))
        now = max(site.prometheus.filled_until for site in leaves.values())
        yield Clusters(leaves, written, federated, now)


def read_by(expression: str) -> set[str]:
    """Return the names of the series that an expression reads."""
    return {name_of(one) for one in selectors(expression)}


def listed(name: str) -> dict[str, str]:
    """Return the panels of a dashboard that are declared to have no or less data centrally."""
    return central.ABSENT.get(name, {}) | central.LESS.get(name, {})


@by_name
def test_panels_that_are_not_listed_read_only_what_travels(name: str) -> None:
    travel = set(central.names())
    found = {
        panel["title"]
        for panel in panels(BOARDS[name])
        for target in panel.get("targets", ())
        if not read_by(target["expr"]) <= travel
    }
    assert found == set(listed(name))


def test_every_series_that_travels_is_read() -> None:
    read: set[str] = set()
    for name in central.DASHBOARDS:
        for panel in panels(BOARDS[name]):
            if panel["title"] not in central.ABSENT.get(name, {}):
                for target in panel.get("targets", ()):
                    read |= read_by(target["expr"])
        for variable in BOARDS[name]["templating"]["list"]:
            if variable["type"] == "query":
                read |= read_by(variable["query"]["query"].partition("(")[2].rpartition(",")[0])
    assert set(central.names()) - read == set()


def results(
    board: dict[str, Any], url: str, now: float, chosen: dict[str, list[str]]
) -> dict[tuple[str, str], Result]:
    """Return the result of every query by panel and query, without the label `cluster`."""
    prometheus, span = Prometheus(url, 60), Span.last("now-40m", now, STEP)
    known = variables(board, prometheus, span, chosen)
    found = {}
    for panel in panels(board):
        for query in queries(panel, known, span):
            found[panel["title"], query.ref] = _by_labels(answer(query, span, prometheus))
    return found


def _by_labels(series: list[Any]) -> Result:
    return {
        frozenset((key, text) for key, text in one["metric"].items() if key != "cluster"): [
            (float(moment), float(value)) for moment, value in one["values"]
        ]
        for one in series
    }


def same(one: Result, other: Result) -> bool:
    """Return whether two results have the same series and numbers, but for rounding."""
    return one.keys() == other.keys() and all(
        len(values) == len(other[labels])
        and all(
            moment == at and math.isclose(value, number, rel_tol=1e-9, abs_tol=1e-12)
            for (moment, value), (at, number) in zip(values, other[labels], strict=True)
        )
        for labels, values in one.items()
    )


@by_name
@pytest.mark.parametrize("cluster", ("east", "west"))
def test_a_panel_has_the_numbers_of_the_cluster_s_own_server(
    clusters: Clusters, name: str, cluster: str
) -> None:
    own = results(BOARDS[name], clusters.leaves[cluster].url, clusters.now, {})
    there = results(BOARDS[name], clusters.written.url, clusters.now, {"cluster": [cluster]})
    differ = {key[0] for key in own if not same(own[key], there[key])}
    assert differ <= set(listed(name))
    if cluster == "east":
        assert differ >= set(central.ABSENT.get(name, {})) & {key[0] for key in own if own[key]}


@by_name
def test_a_panel_that_is_listed_as_absent_has_no_data(clusters: Clusters, name: str) -> None:
    found = results(BOARDS[name], clusters.written.url, clusters.now, {})
    with_data = {title for (title, _), result in found.items() if result}
    assert with_data & set(central.ABSENT.get(name, {})) == set()
    assert with_data >= set(central.LESS.get(name, {}))
