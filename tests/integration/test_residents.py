"""Residents: each stays open in a process of its own, and opens anew where that ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.node import Node, wait_until

VALUE = "nodevitals_misbehave_value"
RUNS = "nodevitals_probe_runs_total"
KEPT = ("counts-1", "counts-2", "counts-3")
OTHERS = ("process-1", "process-2")
FAILING = (
    *("sleeps", "segfaults", "garbage", "ignores_term", "raises", "fails", "invalid", "exits"),
    *("half_frame", "wants_without_end"),
)
# On a busy machine a run that does well may take longer than one that hangs is given.
PATIENT = {"healthy_seconds": 60}


def settings(
    kept: tuple[str, ...] = KEPT,
    others: tuple[str, ...] = OTHERS,
    interval: str = "500ms",
    others_interval: str = "500ms",
    series: int = 1,
) -> dict[str, Any]:
    own = {"behaviours": [*kept], "interval": interval, "timeout": interval, "series": series}
    shared = {
        "behaviours": [*others],
        "interval": others_interval,
        "timeout": others_interval,
    }
    probes = {
        "misbehave_kept": {**own, **PATIENT},
        "misbehave_shared": {**shared, **PATIENT},
        "node": {"enabled": False},
    }
    return {"probes": probes}


def process(node: Node, target: str) -> int:
    """The process that the target's last run was in."""
    return int(node.value(VALUE, item=f"{target} process") or 0)


def runs(node: Node, target: str) -> float:
    """The number of the target's runs since it was opened."""
    return node.value(VALUE, item=f"{target} runs") or 0


def outcomes(node: Node, target: str) -> dict[str, float]:
    """How often the target's runs have ended in each way, without zeros."""
    family = node.family(RUNS).items()
    ended = ((dict(labels), n) for labels, n in family if n)
    return {labels["outcome"]: n for labels, n in ended if labels["target"] == target}


def assert_well(node: Node, *targets: str, least: int) -> None:
    """Assert that no run has failed. A run is counted after what it has read is exposed: the counts
    are complete once they have at least so many good runs.
    """
    for target in targets:
        wait_until(partial(_has_done_well, node, target, least), what=target)
        assert set(outcomes(node, target)) == {"ok"}, target


def _has_done_well(node: Node, target: str, least: int) -> bool:
    return outcomes(node, target).get("ok", 0) >= least


def are_open(node: Node, least: int = 5) -> bool:
    """Whether all of them stayed open for a while, each in a process of its own."""
    counts = [runs(node, target) for target in KEPT]
    return min(counts) >= least and len({process(node, target) for target in KEPT}) == len(KEPT)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path, settings()) as found:
        wait_until(lambda: are_open(found))
        yield found


def test_they_stay_open_in_their_processes(node: Node) -> None:
    before = {target: process(node, target) for target in KEPT}
    wait_until(lambda: are_open(node, 20))
    assert {target: process(node, target) for target in KEPT} == before
    assert_well(node, *KEPT, least=20)
    assert_well(node, *OTHERS, least=1)
    shared = {node.value(VALUE, item="process")}
    assert shared.isdisjoint(before.values())


def test_process_that_is_killed_is_replaced_alone(node: Node) -> None:
    before = {target: process(node, target) for target in KEPT}
    os.kill(before[KEPT[0]], signal.SIGKILL)
    wait_until(lambda: process(node, KEPT[0]) != before[KEPT[0]] and are_open(node, 1))
    assert [process(node, target) for target in KEPT[1:]] == [before[one] for one in KEPT[1:]]


def test_fork_server_that_is_killed_takes_them_along(node: Node) -> None:
    before = process(node, KEPT[0])
    node.fork_server().kill()
    wait_until(lambda: process(node, KEPT[0]) != before and are_open(node))


@pytest.mark.parametrize("role", ["kept", "shared"])
def test_failures_of_other_targets_close_none(tmp_path: Path, role: str) -> None:
    config = settings(kept=(*KEPT, *FAILING)) if role == "kept" else settings(others=FAILING)
    with Node(tmp_path, config) as node:
        wait_until(lambda: are_open(node, 1))
        before = {target: process(node, target) for target in KEPT}
        wait_until(lambda: all(len(outcomes(node, target)) for target in FAILING))
        wait_until(lambda: are_open(node, 10))
        assert {target: process(node, target) for target in KEPT} == before
        assert_well(node, *KEPT, least=10)
        assert not any("ok" in outcomes(node, target) for target in FAILING)


def test_settings_of_a_reload_open_them_anew(node: Node) -> None:
    node.write(settings(series=2))
    node.hang_up()
    wait_until(lambda: node.value(VALUE, item=f"{KEPT[0]} series") == 2)
    wait_until(lambda: are_open(node))


def test_one_that_a_reload_removes_is_closed(node: Node) -> None:
    """It may hold a device, or have threads: its process ends."""
    before = {target: process(node, target) for target in KEPT}
    node.write(settings(kept=KEPT[1:]))
    node.hang_up()
    wait_until(lambda: not Path(f"/proc/{before[KEPT[0]]}").exists())
    assert [process(node, target) for target in KEPT[1:]] == [before[one] for one in KEPT[1:]]


@pytest.mark.parametrize("wanted", ["counts-wanted", "counts-messages"])
def test_a_process_that_always_wants_a_run_has_one_per_second(tmp_path: Path, wanted: str) -> None:
    """Its memory may be damaged: the agent waits, whatever it says."""
    with Node(tmp_path, settings((wanted, *KEPT), (), interval="1h")) as node:
        wait_until(lambda: runs(node, wanted) >= 1)
        before, began = runs(node, wanted), time.monotonic()
        wait_until(lambda: runs(node, wanted) >= before + 3)
        took = time.monotonic() - began
        assert took > 1.5
        assert runs(node, wanted) <= before + took + 2
        if wanted == "counts-wanted" and took < 30:  # a message reaches all targets of the probe
            assert {runs(node, target) for target in KEPT} == {1}
