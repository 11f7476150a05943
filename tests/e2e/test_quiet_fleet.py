"""A healthy fleet of 30 nodes for an hour: no page, and no more tickets than are allowed here.

`make proof` runs 24 hours of it. Nearly all the time is promtool's, which evaluates every rule
every 30 s; what fires is then posted to a real Alertmanager, which mutes what is planned.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.alerting import pager, timeline
from testbed.alerting.outcome import Outcome
from testbed.quiet import STEP_SECONDS, QuietFleet

NODES = 30
# The tickets that an hour's noise may raise.
TICKETS = 5
SPEED = 60.0


def evaluate(folder: Path, fleet: QuietFleet, speed: float = SPEED) -> Outcome:
    """Return what people are notified of; `speed` divides the waits."""
    seconds = fleet.samples * STEP_SECONDS - 60
    # promtool's time is in proportion to the number of evaluations.
    alerts = timeline.evaluate(fleet.series, seconds, folder, every=2 * STEP_SECONDS)
    return Outcome.of(pager.notify(alerts, seconds, folder, speed))


@pytest.mark.proof("quiet")
def test_healthy_fleet_raises_no_page(tmp_path: Path) -> None:
    outcome = evaluate(tmp_path, QuietFleet(NODES, 1))
    assert outcome.pages == [], outcome.titles()
    assert len(outcome.tickets) <= TICKETS, outcome.titles()


def test_single_fault_in_a_healthy_fleet_is_found(tmp_path: Path) -> None:
    """The test above can fail: here one port of ten nodes is down."""
    fleet = QuietFleet(10, 0.5)
    for series in fleet.series:
        if series["series"].startswith("nodevitals_rdma_port_up") and "node-003" in str(series):
            series["values"] = f"0x{fleet.samples}"
    outcome = evaluate(tmp_path, fleet)
    assert len(outcome.pages) == 1
    assert "node-003" in outcome.pages[0].title
