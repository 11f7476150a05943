"""The supervisor in this process, with real workers and a clock that tests set."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from nodevitals import probes
from nodevitals.agent import new_supervisor
from nodevitals.config import parse
from nodevitals.engine.configuration import HISTORY_TIMEOUT_SECONDS, plan_targets
from nodevitals.engine.lifecycle import GRACE_SECONDS, REAP_SECONDS
from nodevitals.engine.schedule import LONGEST_SECONDS
from nodevitals.engine.supervisor import PROMPT_SECONDS, Supervisor
from nodevitals.exposition import Variant
from nodevitals.linux.host import Clock, Host
from nodevitals.wire import Sample
from testbed.clock import ManualClock
from testbed.faultyfs import FaultyFileSystem


class JumpingClock(Clock):
    """Wall time that a bad time server sets back and forth by a day."""

    def __init__(self) -> None:
        self._calls = 0

    def time(self) -> float:
        """Return now, plus or minus a day."""
        self._calls += 1
        return time.time() + (86400 if self._calls % 2 else -86400)


REGISTERED = probes.registered()
NODE_ONLY = {"node": REGISTERED["node"]}
TEXT = Variant(openmetrics=False, compressed=False)
SUCCESS = 'nodevitals_probe_success{probe="node",target="node"} '
RUNS = 'nodevitals_probe_runs_total{probe="node",target="node",outcome='


@contextmanager
def supervisor(
    clock: Clock, text: str, state_directory: Path | None = None
) -> Iterator[Supervisor]:
    """Return a supervisor with only the node probe, and the history where there is a directory."""
    directory = "null" if state_directory is None else str(state_directory)
    config = parse(f"{text}\nstate_directory: {directory}".encode(), NODE_ONLY)
    off = {name: kind.Settings(enabled=False) for name, kind in probes.registered().items()}
    config.probes.update({name: off[name] for name in off if name not in NODE_ONLY})
    made = new_supervisor(Host(), clock)
    read, write = os.pipe()
    if isinstance(clock, ManualClock):
        # Always readable: a loop that sleeps until this clock has moved would not wake.
        os.write(write, b"\0")
        made.selector.register(read, selectors.EVENT_READ, lambda: None)
    made.processes.start()
    if state_directory is None:
        made.journal.requeue()
    made.apply(plan_targets(config))
    try:
        yield made
    finally:
        made.processes.stop()
        made.processes.wait(5)
        made.selector.close()
        os.close(read)
        os.close(write)


def step_until_success(running: Supervisor, clock: ManualClock) -> None:
    """Step until the node probe has succeeded; the clock moves about as fast as real time."""
    started = time.monotonic()
    while SUCCESS + "1" not in scrape(running):
        assert time.monotonic() - started < 60
        running.step()
        time.sleep(0.01)
        clock.advance(0.01)


def wait_for_fork_server(running: Supervisor) -> None:
    """Step until the fork server has replied, so that the clock may move past its deadline."""
    running.step()
    while running.processes.unanswered:
        time.sleep(0.01)
        running.step()


def scrape(of: Supervisor) -> str:
    return of.snapshot.scrape(TEXT, 0).decode()


def count(text: str, start: str) -> float:
    """Return the sum of the samples whose line starts so."""
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))


def test_wall_clock_jumps_do_not_change_the_schedule() -> None:
    """Runs neither stop nor start more often than once per interval."""
    started = time.monotonic()
    with supervisor(
        JumpingClock(), "probes: {node: {interval: 200ms, stale_after: 10s}}"
    ) as running:
        while count(text := scrape(running), f'{RUNS}"ok"}}') < 6:
            running.step()
            assert time.monotonic() - started < 60
        assert count(text, RUNS) <= (time.monotonic() - started) / 0.2 + 2
        assert SUCCESS + "1" in text
        assert "nodevitals_node_cpus" in text


@pytest.mark.parametrize("prompt", [True, False])
def test_count_of_a_prompt_target_is_exposed_soon_after_it_is_written(
    tmp_path: Path, prompt: bool
) -> None:
    """However late that is: its run has been exposed before."""
    clock = ManualClock()
    with supervisor(clock, "probes: {node: {interval: 1h}}", tmp_path) as running:
        step_until_success(running, clock)
        step_until_written(running)
        wait_for_fork_server(running)
        clock.advance(2 * LONGEST_SECONDS)
        running.step()
        target = running.targets["node", "node"]
        target.spec = msgspec.structs.replace(target.spec, prompt=prompt)
        sample = Sample("nodevitals_probe_runs_total", ("node", "node", "error"), 1.0)
        running.journal.add(target.kept, [sample])
        step_until_written(running)
        clock.advance(PROMPT_SECONDS)
        running.step()
        assert count(scrape(running), f'{RUNS}"error"}}') == prompt


def step_until_written(running: Supervisor) -> None:
    """Step until the history has all that is urgent; the clock stands still."""
    while running.journal.pending() or running.journal._sent or not running.journal.ready:
        running.step()
        time.sleep(0.01)


def test_stale_samples_disappear_and_the_time_of_the_last_success_stays() -> None:
    """The agent is suspended past `stale_after`; old samples are not exposed until the next run."""
    clock = ManualClock()
    last = 'nodevitals_probe_last_success_timestamp_seconds{probe="node",target="node"} 17000000'
    with supervisor(clock, "probes: {node: {interval: 1h}}") as running:
        step_until_success(running, clock)
        assert "nodevitals_node_cpus" in scrape(running)
        wait_for_fork_server(running)
        fork_server = running.processes._server
        assert fork_server is not None
        workers = [worker.pid for worker in running.processes._workers.values() if worker.pid]
        stopped = [fork_server.pid, *workers]
        for pid in stopped:  # so that no new result arrives meanwhile
            os.kill(pid, signal.SIGSTOP)
        for seconds in (3 * 3600, LONGEST_SECONDS):
            clock.advance(seconds)
            running.step()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        assert SUCCESS + "0" in scrape(running)
        assert "nodevitals_node_cpus" not in scrape(running)
        assert last in scrape(running)
        step_until_success(running, clock)
        assert "nodevitals_node_cpus" in scrape(running)


def test_counters_are_exposed_when_the_history_worker_is_stuck(tmp_path: Path) -> None:
    """Until then they may still be loaded, and are not exposed."""
    clock = ManualClock()
    with FaultyFileSystem(tmp_path) as disk:
        disk.fault("hang")
        state = disk.mountpoint / "state"
        with supervisor(clock, "probes: {node: {interval: 1h}}", state) as running:
            step_until_success(running, clock)
            assert RUNS not in scrape(running)
            # The deadline with SIGTERM, SIGKILL, no exit, and the next time to publish; where the
            # history started late, its deadline is later.
            labels = '{probe="history",target="history"'
            stuck = f'nodevitals_probe_runs_total{labels},outcome="stuck"}} 1'
            steps = [HISTORY_TIMEOUT_SECONDS, GRACE_SECONDS, REAP_SECONDS, *[1.0] * 60]
            while stuck not in scrape(running):
                wait_for_fork_server(running)
                clock.advance(steps.pop(0))
                running.step()
            assert count(scrape(running), f'{RUNS}"ok"}}') == 1
            assert count(scrape(running), f"nodevitals_probe_stuck_seconds{labels}}}") > 10
            disk.fault("none")


def test_history_that_is_removed_while_it_loads_holds_up_nothing(tmp_path: Path) -> None:
    """A reload takes the state directory away; what it holds is not waited for."""
    with FaultyFileSystem(tmp_path) as disk:
        disk.fault("hang")
        text = "probes: {node: {interval: 1h}}"
        with supervisor(Clock(), text, disk.mountpoint / "state") as running:
            running.step()
            assert not running.journal.ready
            without = parse(f"{text}\nstate_directory: null".encode(), NODE_ONLY)
            off = {name: kind.Settings(enabled=False) for name, kind in REGISTERED.items()}
            without.probes.update({name: off[name] for name in off if name not in NODE_ONLY})
            running.apply(plan_targets(without))
            assert running.journal.ready
            until = time.monotonic() + 120
            while RUNS not in scrape(running):
                assert time.monotonic() < until
                running.step()
            disk.fault("none")


def test_loop_sleeps_while_nothing_is_due() -> None:
    """It wakes for what is due and what arrives: here a ping of the fork server every 5 s."""
    with supervisor(Clock(), "probes: {node: {interval: 1h}}") as running:
        until = time.monotonic() + 1
        while running.unfinished() or time.monotonic() < until:
            running.step()
        steps, until = 0, time.monotonic() + 3
        while time.monotonic() < until:
            running.step()
            steps += 1
        assert steps <= 4
