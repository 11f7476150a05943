"""Finds by bisection the node, the link or the rail that makes a collective fail or slow.

In: the results of the groups that `next()` returns; the groups of one batch have no node in common
and may run at the same time. Out: Verdict. The state is a record of the trials: after a restart
`Bisection(state)` continues where it stopped, and equal results lead to an equal verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import msgspec

from nodevitals.checks.isolation.rails import HCA
from nodevitals.checks.isolation.search import search
from nodevitals.checks.isolation.steps import Answer, Batch, Conclusion, Group
from nodevitals.checks.model import CheckRequest, Reason, RunResult, Verdict
from nodevitals.checks.requests.sizes import parse_sizes, spelled
from nodevitals.checks.verdicts import figures
from nodevitals.checks.verdicts.findings import gravest, percent, some

MAX_RUNS = 64
MAX_SECONDS = 3600.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a group: its figure, or the reason why it has none."""

    group: Group
    figure: Optional[float] = None
    reason: Optional[Reason] = None
    message: str = ""
    seconds: float = 0.0


class IsolationState(msgspec.Struct, kw_only=True):
    """The state of a bisection."""

    request: CheckRequest
    reference: Optional[float] = None
    """Figure of a healthy collective: expected, or that of the last check. Without it, only
    failures are looked for."""
    whole: Optional[float] = None
    """Figure over all nodes, where it is slow."""
    rails: tuple[str, ...] = ()
    """RDMA devices that all nodes have."""
    max_runs: int = MAX_RUNS
    max_seconds: float = MAX_SECONDS
    trials: tuple[Trial, ...] = ()
    """In the order of the batches."""
    spent_seconds: float = 0.0
    """Time of all batches, each as long as its longest run."""


class Bisection:
    """The bisection of one check."""

    def __init__(self, state: IsolationState) -> None:
        self.state = state
        self._batch: Batch = ()
        self._conclusion: Optional[Conclusion] = None
        self._replay()

    def next(self) -> Batch:
        """The groups to run now; none where the search has ended."""
        return () if self._over() else self._batch

    def feed(self, results: Sequence[RunResult]) -> None:
        """Add the results of the last batch, in the order of its groups. A skipped group ends the
        search: its nodes are in use. A missing result is a failure.
        """
        trials = [
            _trial(request_of(self.state.request, group), group, result)
            for group, result in zip(self._batch, results)
        ]
        for group in self._batch[len(results) :]:
            trials.append(Trial(group=group, reason="harness", message="it did not run"))
        spent = max((trial.seconds for trial in trials), default=0.0)
        self.state = msgspec.structs.replace(
            self.state,
            trials=(*self.state.trials, *trials),
            spent_seconds=self.state.spent_seconds + spent,
        )
        self._replay()

    def _replay(self) -> None:
        """Repeat the search up to the first batch without results."""
        state = self.state
        known = {trial.group: trial for trial in state.trials}
        steps = search(state.request.nodes, state.rails, state.request.share)
        self._conclusion = None
        try:
            self._batch = next(steps)
            while all(group in known for group in self._batch):
                answers = {group: self._answer(known[group]) for group in self._batch}
                self._batch = steps.send(answers)
        except StopIteration as end:
            self._batch, self._conclusion = (), end.value

    def _answer(self, trial: Trial) -> Answer:
        if trial.figure is None:
            return Answer(False, trial.reason, trial.message)
        if self.state.reference is None or trial.group.rail:
            return Answer(True, figure=trial.figure)
        ratio = trial.figure / self.state.reference
        good = ratio >= self._limit(self.state.reference)
        text = f"{percent(ratio)} of the expected rate"
        return Answer(good, None if good else "threshold", text, ratio, trial.figure)

    def _limit(self, reference: float) -> float:
        """The share of the reference below which a group is slow. Bad groups are as slow as the
        group of all nodes, good ones reach the reference: the limit is in the middle.
        """
        middle = (1 + (self.state.whole or 0.0) / reference) / 2
        return max(self.state.request.share, middle if self.state.whole else 0.0)

    def _over(self) -> bool:
        runs = len(self.state.trials) + len(self._batch)
        blocked = any(trial.reason == "workload" for trial in self.state.trials)
        late = self.state.spent_seconds >= self.state.max_seconds
        return blocked or late or runs > self.state.max_runs

    def verdict(self) -> Verdict:
        """The verdict by the results so far."""
        blocked = [trial for trial in self.state.trials if trial.reason == "workload"]
        if blocked:
            return _unknown("workload", f"the search ended: {blocked[0].message}")
        if self._conclusion is None:
            suspects = sorted({name for group in self._batch for name in group.nodes})
            runs = len(self.state.trials)
            text = f"no end within {runs} runs; left are {some(suspects)}"
            return _unknown("harness", text)
        findings = gravest(self._conclusion.findings)
        if not findings:
            return _unknown(self._conclusion.reason, self._conclusion.message)
        bad = any(finding.reason in ("hardware", "threshold") for finding in findings)
        parts = [f"{finding.subject}: {finding.message}" for finding in findings]
        return Verdict(
            outcome="bad" if bad else "unknown",
            reason=findings[0].reason,
            message="; ".join(parts[:3]),
            findings=tuple(findings),
        )


def state_of(
    request: CheckRequest,
    baseline: Optional[float] = None,
    rails: Sequence[str] = (),
    max_runs: int = MAX_RUNS,
    max_seconds: float = MAX_SECONDS,
    whole: Optional[float] = None,
) -> IsolationState:
    """The state of a new search, after a collective over all nodes was bad; `whole` is the figure
    of that collective, if it has one.
    """
    return IsolationState(
        request=request,
        reference=request.expected_bytes_per_second or baseline,
        whole=whole,
        rails=tuple(rails),
        max_runs=max_runs,
        max_seconds=max_seconds,
    )


def request_of(request: CheckRequest, group: Group) -> CheckRequest:
    """The request of a group: its nodes, the largest size, and only its device."""
    size = spelled([parse_sizes(request.test.sizes)[-1]])
    test = msgspec.structs.replace(request.test, sizes=size)
    if group.rail:
        environment = {key: text for key, text in test.environment.items() if key != HCA}
        test = msgspec.structs.replace(test, device=group.rail, port=1, environment=environment)
    return msgspec.structs.replace(request, nodes=group.nodes, test=test, isolate=False)


def _trial(request: CheckRequest, group: Group, result: RunResult) -> Trial:
    failure = figures.failure_of(result, request)
    if failure is not None:
        return Trial(
            group=group, reason=failure.cause, message=failure.text, seconds=result.seconds
        )
    figure = figures.at_size(result, request.test, figures.largest(request.test))
    return Trial(group=group, figure=figure, seconds=result.seconds)


def _unknown(reason: Reason, message: str) -> Verdict:
    return Verdict(outcome="unknown", reason=reason, message=message)
