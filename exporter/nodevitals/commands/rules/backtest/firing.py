"""Finds when alerts would have fired. In: a server and questions. Out: episodes and unknowns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional

import msgspec

from nodevitals.commands.rules.backtest.questions import Question
from nodevitals.commands.rules.backtest.server import RefusedError, Server, ServerError, TimeSeries

_OWN_METRICS = "nodevitals_"
_NODES = 'group(nodevitals_build_info or up{job="nodevitals"})'
_ALWAYS_RECORDED = "group(nodevitals:threshold)"
"""A constant, which the rules record as long as they are evaluated."""
Labels = tuple[tuple[str, str], ...]
Interval = tuple[float, float]


class Span(msgspec.Struct, frozen=True):
    """From `start` to before `end`, sampled at every `step`; seconds since the epoch."""

    start: float
    end: float
    step: float


class Episode(msgspec.Struct, frozen=True):
    """One alert from when it fires until it is resolved; `end` None: it still fires then."""

    start: float
    end: Optional[float]
    labels: dict[str, str]

    def seconds(self, span: Span) -> float:
        """The time within a span."""
        return (self.end or span.end) - max(self.start, span.start)


class Unknown(msgspec.Struct, frozen=True):
    """A time for which an alert cannot be evaluated: before `until`, or always (None)."""

    alert: str
    severity: str
    reason: str
    missing: tuple[str, ...] = ()
    """The names of the series that are missing."""
    until: Optional[float] = None


class Answers(msgspec.Struct):
    """The answers of the server."""

    span: Span
    """As asked for, or from where the history begins."""
    gaps: list[Interval]
    """Times without a sample of any node."""
    episodes: list[Episode] = []
    unknown: list[Unknown] = []
    answered: int = 0
    """Number of expressions that were answered."""
    refused: int = 0


def ask(
    questions: Sequence[Question], server: Server, span: Span, progress: Callable[[str], None]
) -> Answers:
    """When the alerts of these questions fire within a span. Raises ServerError."""
    progress("metric names")
    names = server.metric_names(span.start, span.end)
    if not any(name.startswith(_OWN_METRICS) for name in names):
        raise ServerError(f"no metric {_OWN_METRICS}* in this span: choose other --days, or --end")
    progress("gaps")
    lead = max((question.lead_seconds for question in questions), default=0.0)
    begin = _before(span, lead)
    gaps = _gaps(server, begin, span)
    if gaps and gaps[0][0] == begin:  # without targets, alerts on missing targets would fire
        begin = gaps.pop(0)[1]
        span = msgspec.structs.replace(span, start=max(begin, span.start))
    answers = Answers(span, [gap for gap in gaps if gap[1] > span.start])
    recorded = _stretches(
        server.query_range(_ALWAYS_RECORDED, span.start, span.end, span.step), span.step
    )
    recorded_from = recorded[0][0] if recorded else math.inf
    firing: dict[Labels, list[Interval]] = {}
    for number, question in enumerate(questions, 1):
        progress(f"expression {number} of {len(questions)}: {question.alert}")
        unknown = _unknown(question, names, span, recorded_from)
        if unknown is None or unknown.until is not None:
            start = max(begin, _before(span, question.lead_seconds))
            try:
                _add(firing, question, server, msgspec.structs.replace(span, start=start))
                answers.answered += 1
            except RefusedError as error:
                unknown = Unknown(question.alert, question.severity, str(error))
                answers.refused += 1
        if unknown is not None:
            answers.unknown.append(unknown)
    answers.episodes = list(_episodes(firing, span))
    return answers


def _before(span: Span, seconds: float) -> float:
    return span.start - math.ceil(seconds / span.step) * span.step


def _unknown(
    question: Question, names: set[str], span: Span, recorded_from: float
) -> Unknown | None:
    """Why a question has no answer, or none for the beginning of the span."""
    alert, severity = question.alert, question.severity
    recorded = tuple(name for name in question.recorded if name not in names)
    if recorded or (question.recorded and recorded_from == math.inf):
        missing = recorded or question.recorded
        return Unknown(alert, severity, "no samples of series that rules record", missing)
    metrics = tuple(name for name in question.metrics if name not in names)
    if question.needs_metrics and len(metrics) == len(question.metrics):
        return Unknown(alert, severity, "no samples of the metrics", metrics)
    if question.recorded and recorded_from > span.start:
        reason = "series that rules record begin later"
        return Unknown(alert, severity, reason, question.recorded, recorded_from)
    return None


def _add(
    firing: dict[Labels, list[Interval]], question: Question, server: Server, span: Span
) -> None:
    """Add the times in which the alerts of a question fire."""
    true: dict[Labels, list[Interval]] = {}
    for part in server.query_range(question.expression, span.start, span.end, span.step):
        for series in part:
            labels = question.labels_of(series.metric)
            if labels is not None:
                stretches = true.setdefault(tuple(sorted(labels.items())), [])
                stretches.extend(_constant(series, span.step))
    for key, stretches in true.items():
        times = fired(_united(stretches), question.wait, question.keep_firing)
        firing.setdefault(key, []).extend(times)


def fired(stretches: Iterable[Interval], wait: float, keep_firing: float) -> Iterator[Interval]:
    """When an alert fires whose expression is true from and until before these times."""
    current: Interval | None = None
    for start, end in stretches:
        if current is not None and start < current[1]:
            current = (current[0], end + keep_firing)
        elif end > start + wait:
            if current is not None:
                yield current
            current = (start + wait, end + keep_firing)
    if current is not None:
        yield current


def _constant(series: TimeSeries, step: float) -> Iterator[Interval]:
    """The stretches with a sample of the series at every step; a sample lasts one step."""
    start = previous = series.values[0][0]
    for time, _ in series.values[1:]:
        if time > previous + 1.5 * step:
            yield start, previous + step
            start = time
        previous = time
    yield start, previous + step


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    united: list[Interval] = []
    for start, end in sorted(intervals):
        if united and start <= united[-1][1]:
            united[-1] = (united[-1][0], max(end, united[-1][1]))
        else:
            united.append((start, end))
    return united


def _episodes(firing: dict[Labels, list[Interval]], span: Span) -> Iterator[Episode]:
    for labels, intervals in firing.items():
        for start, end in _united(intervals):
            if end > span.start and start < span.end:
                yield Episode(start, end if end < span.end else None, dict(labels))


def _stretches(parts: Iterator[list[TimeSeries]], step: float) -> list[Interval]:
    """The times in which an expression of one series has a value."""
    return _united(
        stretch for part in parts for series in part for stretch in _constant(series, step)
    )


def _gaps(server: Server, begin: float, span: Span) -> list[Interval]:
    """Times without samples: Prometheus did not run, or scraped no agent."""
    stretches = _stretches(server.query_range(_NODES, begin, span.end, span.step), span.step)
    ends = [begin, *(end for _, end in stretches)]
    starts = [*(start for start, _ in stretches), span.end]
    return [(end, start) for end, start in zip(ends, starts) if start > end] if stretches else []
