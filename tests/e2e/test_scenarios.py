"""Scenarios of the table (`testbed.alerting.scenarios`) have the notifications that they should.

Those that take longest are left out: the long form, `python -m tests.bench scenarios`, plays all of
them and prints the table with the results.
"""

from __future__ import annotations

from pathlib import Path

from testbed.alerting.scenario import play, samples_of
from testbed.alerting.scenarios import SCENARIOS

# Five of six scenarios have fewer, and take half of the time of all.
LARGE = 305_000


def test_every_scenario_notifies_as_wanted(tmp_path: Path) -> None:
    results = play([one for one in SCENARIOS if samples_of(one) <= LARGE], tmp_path)
    wrong = {
        result.scenario.key: [*result.problems, *result.outcome.titles()[:10]]
        for result in results
        if result.problems
    }
    assert wrong == {}
