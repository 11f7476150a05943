"""Every scenario of the table (`testbed.alerting.scenarios`) has the notifications that it should.

`python -m tests.bench scenarios` prints the table with the results.
"""

from __future__ import annotations

from pathlib import Path

from testbed.alerting.scenario import play
from testbed.alerting.scenarios import SCENARIOS


def test_every_scenario_notifies_as_wanted(tmp_path: Path) -> None:
    results = play(SCENARIOS, tmp_path)
    wrong = {
        result.scenario.key: [*result.problems, *result.outcome.titles()[:10]]
        for result in results
        if result.problems
    }
    assert wrong == {}
