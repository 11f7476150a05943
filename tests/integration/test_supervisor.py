"""The supervisor in this process, with a clock that tests hold."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from nodevitals import probes
from nodevitals.agent import new_supervisor, plan_targets
from nodevitals.config import parse
from nodevitals.host import Clock, Host
from nodevitals.snapshot import Variant
from nodevitals.supervisor import Supervisor


class JumpingClock(Clock):
    """Wall time that a bad time server sets back and forth by a day."""

    def __init__(self) -> None:
        self._calls = 0

    def time(self) -> float:
        """Return now, plus or minus a day."""
        self._calls += 1
        return time.time() + (86400 if self._calls % 2 else -86400)


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    made = new_supervisor(Host(), JumpingClock())
    made.processes.start()
    made.journal.give_back()
    yield made
    made.processes.stop()
    deadline = time.monotonic() + 5
    while not made.processes.stopped() and time.monotonic() < deadline:
        time.sleep(0.01)
    made.selector.close()


def test_a_wall_clock_that_jumps_moves_no_schedule(supervisor: Supervisor) -> None:
    config = parse(
        b"probes: {node: {interval: 200ms, stale_after: 1s}}\nstate_directory: null",
        {"node": probes.registered()["node"]},
    )
    config.probes.update(
        {
            name: probes.registered()[name].Settings(enabled=False)
            for name in probes.registered()
            if name != "node"
        }
    )
    supervisor.apply(plan_targets(config))
    while supervisor.unfinished():
        supervisor.step()
    started = time.monotonic()
    while time.monotonic() - started < 3:
        supervisor.step()
    text = supervisor.snapshot.scrape(Variant(openmetrics=False, compressed=False), 0).decode()
    runs = 'nodevitals_probe_runs_total{probe="node",target="node",outcome="ok"} '
    count = int(text.partition(runs)[2].split()[0])
    assert 13 <= count <= 18
    assert 'nodevitals_probe_success{probe="node",target="node"} 1' in text
    assert "nodevitals_node_cpus" in text
