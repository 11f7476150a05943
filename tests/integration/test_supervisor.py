"""The supervisor in this process, with a clock that tests hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from nodevitals import probes
from nodevitals.agent import new_supervisor
from nodevitals.config import parse
from nodevitals.engine.plan import plan_targets
from nodevitals.engine.supervisor import PUBLISH_SECONDS, Supervisor
from nodevitals.exposition import Variant
from nodevitals.linux.host import Clock, Host
from testbed.clock import ManualClock


class JumpingClock(Clock):
    """Wall time that a bad time server sets back and forth by a day."""

    def __init__(self) -> None:
        self._calls = 0

    def time(self) -> float:
        """Return now, plus or minus a day."""
        self._calls += 1
        return time.time() + (86400 if self._calls % 2 else -86400)


NODE_ONLY = {"node": probes.registered()["node"]}
TEXT = Variant(openmetrics=False, compressed=False)


def step(running: Supervisor, clock: Clock) -> None:
    """Go once around, and let a clock that stands still move on a little."""
    running.step()
    if isinstance(clock, ManualClock):
        clock.advance(0.05)


@contextmanager
def supervisor(clock: Clock, text: bytes) -> Iterator[Supervisor]:
    """Return a supervisor with only the node probe, after its first result."""
    config = parse(text + b"\nstate_directory: null", NODE_ONLY)
    off = {name: kind.Settings(enabled=False) for name, kind in probes.registered().items()}
    config.probes.update({name: off[name] for name in off if name not in NODE_ONLY})
    made = new_supervisor(Host(), clock)
    made.processes.start()
    made.journal.give_back()
    made.apply(plan_targets(config))
    while made.unfinished():
        step(made, clock)
    yield made
    made.processes.stop()
    made.processes.wait(5)
    made.selector.close()


def scrape(of: Supervisor) -> str:
    return of.snapshot.scrape(TEXT, 0).decode()


def test_a_wall_clock_that_jumps_moves_no_schedule() -> None:
    with supervisor(
        JumpingClock(), b"probes: {node: {interval: 200ms, stale_after: 1s}}"
    ) as running:
        started = time.monotonic()
        while time.monotonic() - started < 3:
            running.step()
        runs = 'nodevitals_probe_runs_total{probe="node",target="node",outcome="ok"} '
        assert 13 <= int(scrape(running).partition(runs)[2].split()[0]) <= 18
        assert 'nodevitals_probe_success{probe="node",target="node"} 1' in scrape(running)
        assert "nodevitals_node_cpus" in scrape(running)


def test_what_is_stale_vanishes_and_the_time_of_the_last_success_stays() -> None:
    """The agent sleeps past `stale_after`; until a new result is in, nothing old is told."""
    clock = ManualClock()
    success = 'nodevitals_probe_success{probe="node",target="node"} '
    with supervisor(clock, b"probes: {node: {interval: 1h}}") as running:
        for _ in range(10):
            step(running, clock)
        assert success + "1" in scrape(running)
        assert "nodevitals_node_cpus" in scrape(running)
        clock.advance(3 * 3600)
        running.step()
        clock.advance(PUBLISH_SECONDS)
        running.step()
        assert success + "0" in scrape(running)
        assert "nodevitals_node_cpus" not in scrape(running)
        last = (
            'nodevitals_probe_last_success_timestamp_seconds{probe="node",target="node"} 17000000'
        )
        assert last in scrape(running)
        deadline = time.monotonic() + 10
        while success + "1" not in scrape(running) and time.monotonic() < deadline:
            step(running, clock)
        assert "nodevitals_node_cpus" in scrape(running)


def test_the_loop_sleeps_while_nothing_is_due() -> None:
    """It wakes for what is due and what arrives: here a ping of the fork server every 5 s."""
    with supervisor(Clock(), b"probes: {node: {interval: 1h}}") as running:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            running.step()
        steps, until = 0, time.monotonic() + 6
        while time.monotonic() < until:
            running.step()
            steps += 1
        assert steps <= 6
