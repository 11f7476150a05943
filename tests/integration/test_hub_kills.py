"""kill -9 of the hub at random moments."""

from __future__ import annotations

from pathlib import Path

from testbed.hubkills import kill_at_random_moments


def test_no_check_is_lost_or_run_twice(tmp_path: Path) -> None:
    """Each check ends with one verdict, no order is executed twice, and no node stays in use.
    The long form is `make proof PART=hub`.
    """
    outcome = kill_at_random_moments(tmp_path, kills=4, seed=18)
    assert outcome.problems == []
    assert outcome.executed > 0
    assert outcome.ended == outcome.submitted
