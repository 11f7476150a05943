"""The days that the rules predict, held against synthetic traces whose limit is known.

`python -m tests.bench prediction` is the long form; docs/prediction.md has its table.
"""

from __future__ import annotations

from random import Random

import pytest

from testbed.trends.score import Score, scores
from testbed.trends.traces import traces
from testbed.trends.verdicts import verdicts

TRACES = 8
FAILING = (
    *("a laser that ages over weeks", "a disk that is written to", "memory that wears out"),
    "a file system that grows",
)
QUIET = (
    *("steady light", "a hall that warms up and cools", "a module that was replaced"),
    *("an old disk", "one bad reset", "one that is cleaned every week"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Score]:
    """Return the scores by shape; the same traces at each run."""
    given = traces(Random(1), TRACES)
    return scores(given, verdicts(tmp_path_factory.mktemp("trends"), given))


@pytest.mark.parametrize("shape", FAILING)
def test_most_of_what_reaches_its_limit_has_a_ticket_days_before(
    made: dict[str, Score], shape: str
) -> None:
    score = made[shape]
    assert score.failing >= TRACES / 2
    assert score.warned >= 0.6 * score.failing
    assert score.in_vain == 0
    assert score.lead >= 7


def test_the_limit_comes_within_the_range_on_most_days(made: dict[str, Score]) -> None:
    within = [one for shape in FAILING for one in made[shape].within]
    assert len(within) > 100
    assert sum(within) / len(within) > 0.5


@pytest.mark.parametrize("shape", QUIET)
def test_no_ticket_for_what_varies_or_changed_once(made: dict[str, Score], shape: str) -> None:
    assert made[shape].traces == TRACES
    assert made[shape].in_vain == 0
