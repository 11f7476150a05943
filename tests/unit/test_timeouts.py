"""For how long a target has been without an answer: outcomes of runs in, seconds out."""

from __future__ import annotations

import pytest

from nodevitals import catalogue
from nodevitals.engine.protocol import TargetSpec
from nodevitals.engine.target import StateInput, Target
from nodevitals.probe import Timing
from nodevitals.state.journal import Journal
from nodevitals.wire import Outcome, ProbeResult

INTERVAL_SECONDS = 15.0


def target() -> Target:
    spec = TargetSpec(
        probe="mounts",
        target="/data",
        settings=b"",
        timing=Timing(),
        resident=False,
        persistent=False,
        start_seconds=0.0,
        required=False,
    )
    return Target(spec, StateInput(Journal(catalogue.all_families(), "boot"), spec), 0.0, 0.0)


@pytest.mark.parametrize(
    ("outcomes", "seconds"),
    [
        ("ok", 0),
        ("timeout", 0),
        ("ok timeout ok timeout ok timeout", 0),
        ("timeout error timeout", 0),  # an error is an answer, or a process that died
        ("timeout absent timeout", 0),
        ("error error error", 0),
        ("timeout timeout ok", 0),
        ("timeout timeout error", 0),
        ("timeout timeout", 30),
        ("ok timeout timeout timeout", 45),
        ("timeout timeout ok timeout timeout", 30),
        ("stuck", 15),
        ("timeout stuck", 30),
        ("stuck timeout stuck timeout", 60),
        ("stuck ok timeout", 0),
    ],
)
def test_timeouts_in_a_row_count_from_the_begin_of_the_first(outcomes: str, seconds: float) -> None:
    """One run per interval; asked one interval after the last one began."""
    one = target()
    now = 1000.0
    for outcome in outcomes.split():
        one.lifecycle.began = now
        one.ended(ProbeResult(outcome=_outcome(outcome)))
        now += INTERVAL_SECONDS
    assert one.unanswered_seconds(now) == seconds


def _outcome(name: str) -> Outcome:
    outcomes: dict[str, Outcome] = {
        "ok": "ok",
        "absent": "absent",
        "error": "error",
        "timeout": "timeout",
        "stuck": "stuck",
    }
    return outcomes[name]
