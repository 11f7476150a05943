"""The one-key check of all links of some nodes: it names a node's port and its direction, and finds
that all links are slow, which no comparison shows. The long form is `make proof PART=onekey`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed import onekey
from testbed.kubernetes_api.checks import CheckApi
from testbed.rails import RailFabric

ITERATIONS = 8


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[onekey.Bed]:
    """Four nodes with two links each; the hub starts a check by its schedule, of healthy links."""
    folder = tmp_path_factory.mktemp("fabric")
    with RailFabric(folder, 4, 2) as fabric, CheckApi(folder) as api:
        fabric.start()
        with onekey.Bed(folder / "bed", fabric, api, ITERATIONS, rounds=1) as bed:
            yield bed


def test_all_links_of_nodes_are_well(bed: onekey.Bed) -> None:
    found = onekey.by_schedule(bed, None)
    assert found.outcome == "ok", found.text


@pytest.mark.parametrize(("name", "rounds"), [("one port sending", 3), ("all nodes", 1)])
def test_verdict_names_the_slow_links(bed: onekey.Bed, name: str, rounds: int) -> None:
    [fault] = [each for each in onekey.faults_of(bed.fabric) if each.name == name]
    with onekey.happening(bed.fabric, fault):
        found = bed.found(bed.submit({**bed.request, "rounds": rounds}))
    assert onekey.judged(bed.fabric, fault, found) == "named", found
