"""One fault of each kind of a public trace, through the rules and a real Alertmanager.

`make proof PART=replay` does so, and plays the whole trace and writes the table of docs/alerts.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.alerting.replay import Plan, Run, plan_runs, play
from testbed.alerting.trace import faults
from testbed.alerting.trace_kinds import KINDS

# A crash and an immediate reboot: the node is back before NodeDown has waited for it.
NOT_NOTIFIED = {("System Crash", "Server down")}
PLAN = Plan(nodes=3, before=2, longest=20, after=5, spread=3, phases=1, speed=120)


def longest_of_each_kind() -> list[Run]:
    """Return one run per kind that can be shown."""
    found: dict[tuple[str, str], Run] = {}
    for run in set(plan_runs(faults(), PLAN).values()):
        other = found.get(run.kind)
        if other is None or run.moment.seconds > other.moment.seconds:
            found[run.kind] = run
    return list(found.values())


def test_every_fault_of_the_trace_can_be_shown_or_there_is_a_reason() -> None:
    found = faults()
    assert len(found) == 321
    assert {one.kind for one in found} == set(KINDS)
    assert all(kind.text for kind in KINDS.values())


@pytest.mark.proof("replay")
def test_every_kind_is_notified_with_at_most_one_page(tmp_path: Path) -> None:
    played = play(longest_of_each_kind(), PLAN, tmp_path)
    silent = {one.run.kind for one in played if not one.titles}
    assert silent <= NOT_NOTIFIED
    assert {one.run.kind: one.titles for one in played if one.pages > 1} == {}
    assert {one.run.kind: one.elsewhere for one in played if one.elsewhere} == {}
