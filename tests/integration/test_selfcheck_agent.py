"""The probe `selfcheck` in an agent: what it exposes, and that its tools end with it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodevitals.linux.host import stable_fraction
from nodevitals.probes.selfcheck.probe import ALL, SelfcheckState
from nodevitals.state import database, tables
from nodevitals.wire import decode
from testbed.loadnode import LoadNode
from testbed.node import Node, wait_until

# A node whose first checks are due at once.
EAGER = next(
    name
    for name in map("node-{}".format, itertools.count())
    if stable_fraction(name, "selfcheck") < 1e-4
)


@pytest.fixture
def simulated(tmp_path: Path) -> LoadNode:
    return LoadNode(tmp_path / "node")


def agent(tmp_path: Path, simulated: LoadNode, **more: str) -> Node:
    settings: dict[str, Any] = {
        "enabled": True,
        "interval": "1s",
        "expected": {"host_to_device": "400Gb/s"},
        "kinds": ["host_to_device", "memory", "dcgm"],
    }
    config = {"probes": {"selfcheck": settings}}
    environment = {**simulated.environment, "NODE_NAME": EAGER, **more}
    return Node(tmp_path, config, *simulated.options, **environment)


def exposed(node: Node) -> set[str]:
    return {name for name, _ in node.samples()}


def stored(node: Node) -> set[str]:
    """The kinds of the results that the database has; /metrics may have them earlier."""
    with tables.open_for_reading(str(node.folder / "state")) as connection:
        states = [one for one in database.load_states(connection) if one.probe == "selfcheck"]
    kept = [one for state in states for one in decode(state.state, SelfcheckState).kept]
    return {one.result.kind for one in kept}


@pytest.fixture
def node(tmp_path: Path, simulated: LoadNode) -> Iterator[Node]:
    with agent(tmp_path, simulated) as running:
        yield running


def test_every_family_and_the_results_after_a_restart(node: Node, simulated: LoadNode) -> None:
    wait_until(lambda: {family.name for family in ALL} <= exposed(node))
    outcome = "nodevitals_selfcheck_outcome"
    wait_until(lambda: node.value(outcome, kind="dcgm", device="1"))
    assert node.value(outcome, kind="host_to_device", device="1", outcome="ok") == 1
    when = node.value("nodevitals_selfcheck_last_timestamp_seconds", kind="memory")
    name = "nodevitals_selfcheck_runs_total"
    # Exposed once it is written: later than the results.
    runs = wait_until(lambda: node.value(name, kind="memory", outcome="ok"))
    simulated.start_job()
    wait_until(lambda: stored(node) == {"host_to_device", "memory", "dcgm"})
    node.kill()
    node.start()
    wait_until(lambda: node.value(outcome, kind="dcgm", device="1"))
    assert node.value("nodevitals_selfcheck_last_timestamp_seconds", kind="memory") == when
    wait_until(lambda: node.value(name, kind="memory", outcome="ok") == runs)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "ended"])
def test_a_tool_that_hangs_ends_with_the_agent(
    tmp_path: Path, simulated: LoadNode, killed: bool
) -> None:
    with agent(tmp_path, simulated, FAKE_FAULT="nvbandwidth=hang") as node:
        file = simulated.folder / "nvbandwidth.pids"
        wait_until(file.exists, what="the tool runs")
        pids = [int(word) for word in file.read_text().split()]
        if killed:
            node.kill()
    wait_until(lambda: not any(map(_runs, pids)), what="the tool and its child end")


def test_a_job_ends_the_tool_and_is_counted(tmp_path: Path, simulated: LoadNode) -> None:
    with agent(tmp_path, simulated, FAKE_FAULT="nvbandwidth=hang") as node:
        file = simulated.folder / "nvbandwidth.pids"
        wait_until(file.exists, what="the tool runs")
        pids = [int(word) for word in file.read_text().split()]
        simulated.start_job()
        wait_until(lambda: not any(map(_runs, pids)), what="the tool and its child end")
        name = "nodevitals_selfcheck_refused_total"
        reason = "accelerator_in_use"
        wait_until(lambda: node.value(name, kind="host_to_device", reason=reason))
        assert not node.family("nodevitals_selfcheck_outcome")
