"""The probe `selfcheck`: what is due, what the gate and the budget keep away, what is exposed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals import config, probes
from nodevitals.document import DocumentError
from nodevitals.linux.host import Host, stable_fraction
from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.selfcheck import runner as running
from nodevitals.probes.selfcheck.probe import Kept, SelfcheckProbe, SelfcheckState
from nodevitals.probes.selfcheck.results import Result
from nodevitals.probes.selfcheck.runner import Ran, SelfcheckRunner
from nodevitals.probes.selfcheck.settings import (
    CheckBudget,
    ExpectedSettings,
    Meter,
    SelfcheckSettings,
    Spent,
)
from testbed.loadnode import LoadNode
from testbed.node import wait_until

# Its first checks are due at once: others wait for up to an hour, so that not all nodes start.
EAGER = next(
    name
    for name in map("node-{}".format, itertools.count())
    if stable_fraction(name, "selfcheck") < 1e-4
)
Samples = dict[tuple[str, ...], float]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadNode:
    made = LoadNode(tmp_path)
    for name, value in {**made.environment, "NODE_NAME": EAGER}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.02)
    return made


def host(node: LoadNode) -> Host:
    return Host(
        rootfs=str(node.folder), procfs=str(node.folder / "proc"), sysfs=str(node.folder / "sys")
    )


def started(
    node: LoadNode, ran: dict[str, Ran] | None = None, budget: float = 1800.0, **more: Any
) -> SelfcheckRunner:
    """A runner whose thread is not started."""
    settings = SelfcheckSettings(**{"kinds": ("host_to_device", "memory"), **more})
    return SelfcheckRunner(settings, host(node), Meter(budget), ran or {})


def outcomes(runner: SelfcheckRunner) -> list[tuple[str, str]]:
    """One step: the checks that ended in it, each with its refusal or its first outcome."""
    wait_until(lambda: time.time() >= runner._first)
    runner.step()
    return [
        (one.check.name, one.finished.refused or one.finished.results[0].outcome)
        for one in runner.finished()
    ]


GOOD = [("host_to_device 0,1", "ok"), ("memory", "ok")]


def test_each_check_runs_once_in_its_time(node: LoadNode) -> None:
    runner = started(node)
    assert outcomes(runner) == GOOD
    assert outcomes(runner) == []


@pytest.mark.parametrize(
    ("age", "outcome", "due"),
    [
        (86000.0, "ok", False),
        (86500.0, "ok", True),
        (3500.0, "slow", False),
        (3700.0, "slow", True),
        (21000.0, "harness", False),
        (22000.0, "harness", True),
        (3700.0, "failed", True),
        (3700.0, "warning", False),
        (-60.0, "ok", True),  # the clock was set back
    ],
)
def test_a_bad_result_is_repeated_soon(node: LoadNode, age: float, outcome: Any, due: bool) -> None:
    recent = Ran(time.time(), "ok")
    ran = {"host_to_device 0,1": recent, "memory": Ran(time.time() - age, outcome)}
    assert outcomes(started(node, ran)) == ([("memory", "ok")] if due else [])


def test_a_job_keeps_all_checks_away_until_it_ends(node: LoadNode) -> None:
    runner = started(node)
    node.start_job()
    assert outcomes(runner) == [("host_to_device 0,1", "accelerator_in_use")]
    node.end_job()
    assert outcomes(runner) == GOOD


def test_traffic_keeps_away_its_port_alone(node: LoadNode, tmp_path: Path) -> None:
    (node.folder / "proc/meminfo").write_text("MemAvailable: 1 kB\n")
    runner = started(node, kinds=("memory", "rdma_loopback"))
    assert outcomes(runner) == [("memory", "memory_short"), ("rdma_loopback mlx5_0/1", "ok")]


def test_a_check_that_may_take_too_long_for_the_budget_does_not_start(node: LoadNode) -> None:
    runner = started(node, budget=119.0)
    assert outcomes(runner) == [("host_to_device 0,1", "budget"), ("memory", "budget")]


def test_what_was_spent_counts_for_a_day_and_a_clock_set_back_frees_nothing() -> None:
    meter = Meter(100.0, (Spent(1000.0, 60.0),))
    assert not meter.allows(1000.0 + 86399, 50)
    assert not meter.allows(0.0, 50)
    assert meter.allows(1000.0 + 86401, 100)
    meter.charge(90000.0, 5)
    assert meter.spent() == (Spent(90000.0, 5),)


def run(probe: SelfcheckProbe) -> Readings:
    readings = Readings(families=SelfcheckProbe.families)
    probe.run(readings)
    return readings


@pytest.fixture
def probe(node: LoadNode) -> Iterator[SelfcheckProbe]:
    expected = ExpectedSettings(host_to_device=60e9)
    settings = SelfcheckSettings(
        kinds=("host_to_device", "rdma_loopback", "dcgm"), expected=expected
    )
    made = SelfcheckProbe(host(node), settings)
    made.open()
    yield made
    made.close()


def samples(readings: Readings) -> Samples:
    return {(one.family.removeprefix("nodevitals_selfcheck_"), *one.labels): one.value
            for one in readings.samples}  # fmt: skip


def test_the_results_are_exposed_and_outlive_the_agent(
    probe: SelfcheckProbe, node: LoadNode
) -> None:
    found: list[Readings] = []

    def all_checks_have_run() -> bool:
        found.append(run(probe))
        return len(probe.state.ran()) == 3

    wait_until(all_checks_have_run)
    exposed = samples(run(probe))
    assert exposed["bandwidth_bytes_per_second", "host_to_device", "1", ""] == 55.5e9
    assert exposed["outcome", "host_to_device", "1", "", "slow"] == 1
    assert exposed["outcome", "dcgm", "0", "", "ok"] == 1
    assert exposed["outcome", "rdma_loopback", "mlx5_0", "1", "ok"] == 1
    assert exposed["bandwidth_expected_bytes_per_second", "host_to_device"] == 60e9
    assert ("bandwidth_bytes_per_second", "dcgm", "0", "") not in exposed
    assert time.time() - exposed["last_timestamp_seconds", "dcgm", "0", ""] < 3600
    counted: dict[tuple[str, ...], float] = {}
    for readings in found:
        for one in readings.increments:
            key = (one.family.removeprefix("nodevitals_selfcheck_"), *one.labels)
            counted[key] = counted.get(key, 0) + one.value
    assert counted["runs_total", "host_to_device", "slow"] == 2
    assert counted["runs_total", "host_to_device", "failed"] == 0
    assert counted["refused_total", "dcgm", "budget"] == 0
    assert counted["seconds_total", "dcgm"] > 0
    again = SelfcheckProbe(host(node), probe.settings)
    again.state = probe.state
    again.open()
    assert samples(run(again)) == exposed
    again.close()


def test_results_of_a_check_that_the_node_no_longer_has_are_not_exposed(
    probe: SelfcheckProbe, node: LoadNode
) -> None:
    """A GPU that is gone, a tool that was removed."""
    now = time.time()
    probe.state.kept = [
        Kept("host_to_device 0,1,2", now, Result(kind="host_to_device", device="2", outcome="ok")),
        Kept("dcgm 0,1", now, Result(kind="dcgm", device="0", outcome="failed", message="x")),
    ]
    exposed = samples(run(probe))
    assert ("outcome", "dcgm", "0", "", "failed") in exposed
    assert not any(key[:3] == ("outcome", "host_to_device", "2") for key in exposed)


def test_a_harness_failure_takes_the_last_figure_away(
    probe: SelfcheckProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is unknown then, neither slow nor good."""
    old = Result(kind="host_to_device", device="0", outcome="ok", bandwidth_bytes_per_second=55.5e9)
    probe.state.kept = [Kept("host_to_device 0,1", time.time() - 90_000, old)]
    monkeypatch.setenv("FAKE_FAULT", "nvbandwidth=cut")
    assert samples(run(probe))["bandwidth_bytes_per_second", "host_to_device", "0", ""] == 55.5e9
    key = ("outcome", "host_to_device", "0", "", "harness")
    wait_until(lambda: key in samples(run(probe)))
    assert ("bandwidth_bytes_per_second", "host_to_device", "0", "") not in samples(run(probe))


def test_a_node_without_any_tool_is_an_error(
    probe: SelfcheckProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProbeError, match=r"nothing to check: .*dcgm: dcgmi is not") as error:
        run(probe)
    assert error.value.reason == "missing"


def test_the_state_can_be_read_again() -> None:
    import msgspec

    state = SelfcheckState(
        spent=(Spent(1.0, 2.0),), kept=[Kept("memory", 3.0, Result(kind="memory", outcome="ok"))]
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=SelfcheckState) == state


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("every: 5m", "every: is under 10m"),
        ("kinds: [memory, memory]", "kinds: names a check twice"),
        ("{kinds: [dcgm], dcgm_level: 3}", "budget.seconds_per_day: is under the 2400"),
        ("kinds: [disk]", "kinds"),
        ("expected: {memory: 9}", "expected.memory"),
    ],
)
def test_settings_that_do_not_fit(text: str, problem: str) -> None:
    section = text if text.startswith("{") else f"{{{text}}}"
    with pytest.raises(DocumentError) as error:
        config.parse(f"probes: {{selfcheck: {section}}}".encode(), probes.registered())
    assert problem in str(error.value.problems[0].within("x"))
    assert CheckBudget().seconds_per_day == 1800
