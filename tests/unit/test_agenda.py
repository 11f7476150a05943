"""The agenda of targets, against a plain dictionary."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.engine.schedule import Agenda

TIMES = st.one_of(st.integers(0, 20).map(float), st.just(math.inf))
STEPS = st.lists(st.one_of(st.tuples(st.integers(0, 5), TIMES), st.integers(0, 20)))


@given(STEPS)
def test_due_targets_come_once_and_in_order(steps: list[tuple[int, float] | int]) -> None:
    agenda: Agenda[int] = Agenda()
    expected: dict[int, float] = {}
    for step in steps:
        if isinstance(step, tuple):
            agenda.put(*step)
            expected[step[0]] = step[1]
        else:
            due = agenda.due(step)
            assert sorted(due) == sorted(one for one, time in expected.items() if time <= step)
            assert [expected[one] for one in due] == sorted(expected[one] for one in due)
            for one in due:
                del expected[one]
        assert agenda.next() == min(expected.values(), default=math.inf)
