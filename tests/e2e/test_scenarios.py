"""Scenarios of the table (`testbed.alerting.scenarios`) have the notifications that they should.

Here are small fleets, and the loss of a rack; `make proof PART=scenarios` plays all of them and
prints the table with the results.
"""

from __future__ import annotations

from pathlib import Path

from testbed.alerting.scenario import play, samples_of
from testbed.alerting.scenarios import SCENARIOS

# promtool's time is in proportion to the samples: one of three scenarios has fewer.
LARGE = 57_000
# One fault of many nodes is one notification.
FLEET = "rack-loses-power"


def test_every_scenario_notifies_as_wanted(tmp_path: Path) -> None:
    chosen = [one for one in SCENARIOS if samples_of(one) <= LARGE or one.key == FLEET]
    results = play(chosen, tmp_path)
    wrong = {
        result.scenario.key: [*result.problems, *result.outcome.titles()[:10]]
        for result in results
        if result.problems
    }
    assert wrong == {}
