"""Two real Prometheus servers of two clusters with nodes of the same names, and central ones that
get their series by remote write and by federation, with the example files of the packaging.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from dashboards import central
from dashboards.preview.queries import Prometheus, answer, options, panels, queries, variables
from dashboards.preview.span import Span

from testbed.clusters import (
    REPLICA,
    STEP,
    Central,
    Clusters,
    ask,
    latest,
    leaf,
    one_server,
    samples_of,
    send_past,
)
from testbed.dashboards import every
from testbed.node import wait_until
from testbed.site import Site
from testbed.site.series import Series
from testbed.site.server import write

BOARDS = every()
by_name = pytest.mark.parametrize("name", central.DASHBOARDS)
Result = dict[frozenset[tuple[str, str]], list[tuple[float, float]]]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Two clusters, and the past of both on the central server that is written to."""
    folder, now = tmp_path_factory.mktemp("clusters"), time.time()
    with ExitStack() as stack:
        written = stack.enter_context(Central(folder, "written"))
        leaves = {
            name: stack.enter_context(leaf(folder, name, now, written.url))
            for name in ("east", "west")
        }
        for name, site in leaves.items():
            send_past(site, name, written)
        addresses = [site.url.removeprefix("http://") for site in leaves.values()]
        federated = stack.enter_context(Central(folder, "federated", addresses))
        yield Clusters(leaves, written, federated, now, leaves["east"].prometheus.filled_until)


def listed(name: str) -> dict[str, str]:
    """Return the panels of a dashboard that are declared to have no or less data centrally."""
    return central.ABSENT.get(name, {}) | central.LESS.get(name, {})


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


@pytest.mark.proof("pipeline")
@by_name
@pytest.mark.parametrize("cluster", ["east", "west"])
def test_a_panel_has_the_numbers_of_the_cluster_s_own_server(
    clusters: Clusters, name: str, cluster: str
) -> None:
    own = results(BOARDS[name], clusters.leaves[cluster].url, clusters.now, {})
    there = results(BOARDS[name], clusters.written.url, clusters.now, {"cluster": [cluster]})
    differ = {key[0] for key in own if not same(own[key], there[key])}
    assert differ <= set(listed(name))
    if cluster == "east":
        assert differ >= set(central.ABSENT.get(name, {})) & {key[0] for key in own if own[key]}


@pytest.mark.proof("pipeline")
@by_name
def test_a_panel_that_is_listed_as_absent_has_no_data(clusters: Clusters, name: str) -> None:
    found = results(BOARDS[name], clusters.written.url, clusters.now, {})
    with_data = {title for (title, _), result in found.items() if result}
    assert with_data & set(central.ABSENT.get(name, {})) == set()
    assert with_data >= set(central.LESS.get(name, {}))


@pytest.mark.proof("pipeline")
@by_name
def test_the_variable_cluster_lists_both(clusters: Clusters, name: str) -> None:
    [variable] = [one for one in BOARDS[name]["templating"]["list"] if one["name"] == "cluster"]
    span = Span.last("now-40m", clusters.now, STEP)
    listed = options(variable, {}, Prometheus(clusters.written.url), span)
    assert sorted(listed) == ["east", "west"]


@pytest.mark.proof("pipeline")
@pytest.mark.parametrize(
    "query",
    [
        "sum by (state) (nodevitals:nodes:count)",
        "sum by (state, vendor) (nodevitals:accelerators:count)",
        "sum by (state, vendor) (nodevitals:usage_accelerators:sum)",
        'count by (severity, alertname) (ALERTS{alertstate="firing"})',
    ],
)
def test_all_is_the_sum_of_the_clusters(clusters: Clusters, query: str) -> None:
    def numbers(url: str) -> Counter[frozenset[tuple[str, str]]]:
        answers = ask(url, query, clusters.now)
        return Counter({frozenset(x["metric"].items()): float(x["value"][1]) for x in answers})

    own = [numbers(site.url) for site in clusters.leaves.values()]
    assert all(own)
    assert numbers(clusters.written.url) == own[0] + own[1]


def seen(condition: Callable[[], Any], limit: float) -> None:
    """Wait until a condition that takes a while to find out is true."""

    def patient() -> Any:
        found = condition()
        if not found:
            time.sleep(1)
        return found

    wait_until(patient, limit)


def arrived(clusters: Clusters, start: float, end: float) -> bool:
    """Return whether the central server has exactly the samples that travel between two times."""
    there = samples_of(clusters.written.url, start, end, '{cluster!=""}')
    return there == clusters.sent(start, end)


@pytest.mark.proof("pipeline")
def test_what_is_new_travels_by_remote_write(clusters: Clusters) -> None:
    """Exactly the series of the list, with the cluster's name and without the replica's."""
    start = clusters.now + STEP
    seen(lambda: len(clusters.evaluations(start)) == 2, 60)
    end = time.time()
    seen(lambda: arrived(clusters, start, end), 60)
    sent = clusters.sent(start, end)
    assert {dict(labels)["__name__"] for labels in sent} <= set(central.names())
    assert {dict(labels)["cluster"] for labels in sent} == {"east", "west"}
    assert {label for labels in sent for label in dict(labels)} & REPLICA.keys() == set()


@pytest.mark.proof("pipeline")
def test_a_federating_server_has_the_same_series(clusters: Clusters) -> None:
    """The same samples with their own times; what has ended, for five minutes more."""

    def same_series() -> bool:
        # Until now all samples of then have been evaluated and read.
        moment = time.time() - 8
        own = clusters.latest(moment)
        there = latest(clusters.federated.url, '{cluster!=""}', moment)
        ended = there.keys() - own.keys()
        before = clusters.sent(moment - 420, moment).keys()
        return bool(own) and own.items() <= there.items() and ended <= before

    seen(same_series, 60)


@pytest.mark.proof("pipeline")
def test_what_an_outage_of_the_central_server_loses(clusters: Clusters) -> None:
    """Remote write loses nothing, federation all but the last sample of each series."""
    for server in (clusters.written, clusters.federated):
        server.__exit__()
    start = time.time()
    seen(lambda: set(clusters.evaluations(start).values()) == {2}, 120)
    end = time.time()
    for server in (clusters.written, clusters.federated):
        server.__enter__()
    seen(lambda: arrived(clusters, start, end), 60)
    frequent = 'ALERTS{alertname="Watchdog", cluster!=""}'
    seen(lambda: samples_of(clusters.federated.url, start, time.time(), frequent), 30)
    once = samples_of(clusters.federated.url, start, end, frequent)
    assert {len(values) for values in once.values()} <= {1}


def test_a_batch_in_which_one_sample_differs_is_refused(tmp_path: Path) -> None:
    """Why only one server of a pair may send: the other's value of the same time differs."""
    moment = time.time() // 1

    def send(url: str, **values: float) -> None:
        labels = {"cluster": "east"}
        write(url, [Series(name, labels, value) for name, value in values.items()], [moment])

    with Central(tmp_path, "central") as central_server:
        send(central_server.url, first=1.0, second=1.0)
        send(central_server.url, first=1.0, second=1.0)
        with pytest.raises(AssertionError, match="duplicate sample for timestamp"):
            send(central_server.url, other=1.0, first=2.0)
        stored = latest(central_server.url, '{cluster="east"}', moment)
    assert {dict(labels)["__name__"] for labels in stored} == {"first", "second"}


# Series of the server itself, as the alerts Watchdog and RulesFailing are; and pods of
# kube-state-metrics, which may have no label `cluster`.
NOT_OF_A_CLUSTER = "nodevitals:threshold|nodevitals:pod_labels"


@pytest.mark.proof("pipeline")
def test_the_rules_keep_two_clusters_of_one_server_apart(
    clusters: Clusters, tmp_path: Path
) -> None:
    """What they record of both is what they record of each, with the label `cluster`."""
    chosen = '{__name__=~"nodevitals:.+|ALERTS.*", alertname!~"Watchdog|RulesFailing", '
    chosen += f'__name__!~"{NOT_OF_A_CLUSTER}"}}'

    def recorded(site: Site, cluster: str = "") -> dict[frozenset[tuple[str, str]], float]:
        more = {"cluster": cluster} if cluster else {}
        return {
            frozenset((one["metric"] | more).items()): float(one["value"][1])
            for one in ask(site.url, chosen, clusters.now)
        }

    alone = [recorded(site, name) for name, site in clusters.leaves.items()]
    with one_server(tmp_path, clusters.started) as site:
        both = recorded(site)
    assert both == pytest.approx(alone[0] | alone[1], rel=1e-9)
    assert all(alone)
