"""Every query of every panel, asked of a real Prometheus that has scraped a simulated fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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

from testbed.dashboards import FILES
from testbed.node import ROOT
from testbed.site import Site

BOARDS = {path.stem: read(path) for path in FILES["en"]}
by_name = pytest.mark.parametrize("name", BOARDS)
# The dashboard of one node: together these have every kind of device and fault.
NODES = ("gpu-01", "gpu-02", "gpu-04", "gpu-07", "gpu-08", "gpu-11", "npu-01")


class Fleet(NamedTuple):
    """A site that runs: what is asked, and its scrape interval."""

    prometheus: Prometheus
    step: int

    def silent(self, name: str) -> set[str]:
        """Return the titles of the panels of a dashboard that have no data; all of its queries are
        asked, for one node after the other where it is about one.
        """
        board, now = BOARDS[name], time.time()
        span = Span.last(board["time"]["from"], now, self.step)
        single = any(
            one["name"] == "instance" and not one.get("includeAll")
            for one in board["templating"]["list"]
        )
        shown, titles = set(), {panel["title"] for panel in panels(board) if panel.get("targets")}
        for node in NODES if single else ("",):
            chosen = {"instance": [node]} if node else {}
            known = variables(board, self.prometheus, span, chosen)
            for panel in panels(board):
                for query in queries(panel, known, span):
                    if answer(query, span, self.prometheus):
                        shown.add(panel["title"])
        return titles - shown


def _fleet(folder: Path, step: int, **switches: bool) -> Iterator[Fleet]:
    with Site(folder, ROOT / "rules", step=step, **switches) as site:
        yield Fleet(Prometheus(site.url), step)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Faults and pods, scraped every 15 s."""
    yield from _fleet(tmp_path_factory.mktemp("faulty"), 15)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """No faults, and pods, scraped every 60 s."""
    yield from _fleet(tmp_path_factory.mktemp("healthy"), 60, faults=False)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Faults without pods, scraped every 60 s by a Prometheus that sets no label cluster."""
    yield from _fleet(tmp_path_factory.mktemp("bare"), 60, pods=False, cluster=False)


@by_name
def test_with_faults_and_pods_every_panel_has_data(faulty: Fleet, name: str) -> None:
    print(faulty.silent(name))


@by_name
def test_h(healthy: Fleet, name: str) -> None:
    print(healthy.silent(name))


@by_name
def test_b(bare: Fleet, name: str) -> None:
    print(bare.silent(name))


@by_name
def test_every_variable_has_values(faulty: Fleet, name: str) -> None:
    span = Span.last("now-1h", time.time(), faulty.step)
    known = variables(BOARDS[name], faulty.prometheus, span, {})
    for model in BOARDS[name]["templating"]["list"]:
        assert options(model, known, faulty.prometheus, span), model["name"]
