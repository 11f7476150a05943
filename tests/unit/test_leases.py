"""Leases in the engine: which targets run every second, how long, and what ends that."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals import catalogue
from nodevitals.engine.lifecycle import Command, Lifecycle, Phase
from nodevitals.engine.protocol import TargetSpec
from nodevitals.engine.schedule import MAX_LEASED_TARGETS, Leases
from nodevitals.engine.target import StateInput, Target
from nodevitals.probe import Timing
from nodevitals.state.journal import Journal
from nodevitals.wire import MAX_LEASE_SECONDS, Lease, LeaseReply, Outcome, ProbeResult, encode
from nodevitals.wire import decode as decoded

TIMING = Timing(interval_seconds=15.0, timeout_seconds=10.0, stale_after_seconds=45.0)


def target(probe: str, name: str = "", outcome: Outcome = "ok", seconds: float = 0.05) -> Target:
    """Return a target whose last run ended so."""
    spec = TargetSpec(
        probe=probe,
        target=name or probe,
        settings=b"",
        timing=TIMING,
        resident=True,
        persistent=False,
        start_seconds=0.0,
        required=False,
    )
    journal = Journal(catalogue.all_families(), "boot")
    made = Target(spec, StateInput(journal, spec), 0.0, 0.0)
    made.last = ProbeResult(outcome=outcome, duration_seconds=seconds)
    return made


def take(leases: Leases, targets: list[Target], *probes: str, seconds: float = 60.0) -> object:
    """Take a lease at 100 s; the states in the reply."""
    body = encode(Lease(probes, seconds, 7))
    reply = decoded(leases.take(target("fabric"), body, targets, 100.0), LeaseReply)
    assert reply.number == 7
    return reply.states


def test_lease_runs_named_probes_every_second_until_it_ends() -> None:
    rdma, network = target("rdma"), target("network")
    leases = Leases()
    assert take(leases, [rdma, network], "rdma", seconds=30.0) == {"rdma": "active"}
    assert (leases.interval(rdma, 100.0), leases.interval(network, 100.0)) == (1.0, 15.0)
    assert leases.wake == 130.0
    assert leases.interval(rdma, 130.0) == 15.0
    assert not leases.expired(129.9)
    assert leases.expired(130.0)
    assert leases.wake == math.inf


def test_lease_replaces_the_one_before_it() -> None:
    rdma, network = target("rdma"), target("network")
    leases = Leases()
    take(leases, [rdma, network], "rdma")
    take(leases, [rdma, network], "network")
    assert (leases.interval(rdma, 101.0), leases.interval(network, 101.0)) == (15.0, 1.0)
    take(leases, [rdma, network])
    assert leases.interval(network, 101.0) == 15.0
    assert leases.wake == math.inf


@pytest.mark.parametrize(("seconds", "interval"), [(0.4, 1.0), (0.6, 2.0), (3.1, 7.0), (8.0, 15.0)])
def test_run_may_take_half_of_the_interval(seconds: float, interval: float) -> None:
    leases, slow = Leases(), target("ascend", seconds=seconds)
    state = "active" if interval < 15 else "slow"
    assert take(leases, [slow], "ascend") == {"ascend": state}
    assert leases.interval(slow, 100.0) == interval


@pytest.mark.parametrize("outcome", ["error", "timeout", "stuck"])
def test_failing_target_runs_as_configured(outcome: Outcome) -> None:
    """It runs more often again after a run that is ok."""
    leases, hung = Leases(), target("nvidia", outcome=outcome)
    assert take(leases, [hung], "nvidia") == {"nvidia": "failing"}
    assert leases.interval(hung, 100.0) == 15.0
    hung.last = ProbeResult(outcome="ok")
    assert leases.interval(hung, 100.0) == 1.0


def test_states_of_what_a_lease_cannot_have() -> None:
    mounts = [target("mounts", f"/data/{number}") for number in range(MAX_LEASED_TARGETS + 1)]
    others = [target("nvidia", outcome="absent"), target("fabric"), target("history")]
    leases = Leases()
    names = ("mounts", "nvidia", "fabric", "history", "rdma")
    states = ("targets", "off", "excluded", "excluded", "off")
    assert take(leases, [*mounts, *others], *names) == dict(zip(names, states))
    assert all(leases.interval(one, 100.0) == 15.0 for one in [*mounts, *others])
    assert leases.wake == math.inf


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", encode(Lease(("rdma",), MAX_LEASE_SECONDS + 1)), encode({"a": 1})]
)
def test_garbage_ends_the_lease(body: bytes) -> None:
    rdma, leases = target("rdma"), Leases()
    take(leases, [rdma], "rdma")
    assert decoded(leases.take(target("fabric"), body, [rdma], 100.0), LeaseReply).states == {}
    assert leases.interval(rdma, 100.0) == 15.0


def run(life: Lifecycle, seconds: float = 0.1) -> float:
    """Run once and return the beginning."""
    assert life.command(life.wake) in (Command.START, Command.RUN)
    life.answered(life.began + seconds, stays=True)
    return life.began


@settings(deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_paced_lifecycle_runs_each_second_and_then_at_its_old_places(spread: float) -> None:
    life = Lifecycle(TIMING, spread, 0.0)
    run(life)
    life.pace(1.0, life.began + 0.2)
    assert life.wake <= life.began + 1.2 + 1e-6  # also before its first place
    begun = [run(life) for _ in range(20)]
    assert all(abs(after - before - 1.0) < 1e-6 for before, after in itertools.pairwise(begun))
    life.pace(TIMING.interval_seconds, begun[-1] + 0.5)
    place = (life.wake - spread * TIMING.interval_seconds) / TIMING.interval_seconds
    assert abs(place - round(place)) < 1e-6
    assert life.wake - begun[-1] <= TIMING.interval_seconds + 1e-6


def test_process_that_fails_under_a_lease_waits_as_configured() -> None:
    life = Lifecycle(TIMING, 0.0, 0.0)
    run(life)
    life.pace(1.0, 0.2)
    assert life.command(life.wake) is Command.RUN
    assert life.wake - life.began == TIMING.timeout_seconds  # deadlines are those of before
    ended = life.began + TIMING.timeout_seconds
    assert life.command(ended) is Command.TERM
    assert life.exited(ended + 1)
    assert life.phase is Phase.WAITING
    assert life.interval_seconds == 15.0
    assert life.wake == 15.0


def test_reload_paces_a_target_as_configured_until_its_next_run() -> None:
    life = Lifecycle(TIMING, 0.0, 0.0)
    run(life)
    life.pace(1.0, 0.2)
    life.change(TIMING, 5.0)
    assert life.interval_seconds == TIMING.interval_seconds


def test_absent_hardware_is_looked_for_less_and_less_often_until_it_is_there() -> None:
    leases, gpus = Leases(), target("nvidia")
    waits = []
    for _ in range(5):
        gpus.last = ProbeResult(outcome="absent")
        gpus.ended(gpus.last)
        waits.append(leases.interval(gpus, 100.0))
    assert waits == [30.0, 60.0, 120.0, 240.0, 300.0]
    assert leases.interval(gpus, 100.0) == 300.0  # a lease paces all targets once more
    gpus.last = ProbeResult(outcome="ok")
    gpus.ended(gpus.last)
    assert leases.interval(gpus, 100.0) == 15.0
    gpus.last = ProbeResult(outcome="absent")
    gpus.ended(gpus.last)
    assert leases.interval(gpus, 100.0) == 30.0


def test_a_longer_interval_stays_where_the_hardware_is_absent() -> None:
    rare = target("bmc")
    rare.spec = msgspec.structs.replace(rare.spec, timing=Timing(interval_seconds=600.0))
    rare.last = ProbeResult(outcome="absent")
    rare.ended(rare.last)
    assert Leases().interval(rare, 100.0) == 600.0
