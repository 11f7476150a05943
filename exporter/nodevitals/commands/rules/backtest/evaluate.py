"""Rules and a server in; every alert of the span, with the time it fired, out."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import msgspec

from nodevitals.commands.rules.backtest.pieces import pieces_of
from nodevitals.commands.rules.backtest.plan import Plan, Planner, Unevaluated
from nodevitals.commands.rules.backtest.replay import Replay
from nodevitals.commands.rules.backtest.rule_set import BacktestRule
from nodevitals.commands.rules.backtest.server import Cost, Server, ServerError
from nodevitals.commands.rules.backtest.stretches import Labels, Stretches
from nodevitals.commands.rules.backtest.windows import (
    Window,
    remember,
    settling_seconds,
    windows_around,
)

_OWN_METRICS = "nodevitals_"
_NODES = 'count(nodevitals_build_info or up{job="nodevitals"})'


class Span(msgspec.Struct, frozen=True):
    """From `start` to before `end`, sampled at every `step`; seconds since the epoch."""

    start: float
    end: float
    step: float


class Evaluated(msgspec.Struct, frozen=True):
    """What the rules would have raised; alerts without an end fire until after the span."""

    span: Span
    """As asked for, or from where the history begins."""
    alerts: dict[Labels, list[tuple[float, float]]]
    unevaluated: tuple[Unevaluated, ...]
    gaps: tuple[tuple[float, float], ...]
    """Times without a sample of any target."""
    forced_borders: int
    """Number of times between two runs of promtool at which something was active."""
    evaluated_seconds: float
    """Time in which something happened, of the span."""
    cost: Cost


def evaluate(
    rules: Sequence[BacktestRule],
    server: Server,
    span: Span,
    promtool: str,
    progress: Callable[[str], None],
) -> Evaluated:
    """Evaluate rules over a span. Raises ServerError, CommandError."""
    progress("metric names")
    names = server.metric_names(span.start, span.end)
    if not any(name.startswith(_OWN_METRICS) for name in names):
        raise ServerError(f"no metric {_OWN_METRICS}* in this span: choose other --days, or --end")
    plan = Planner(rules, names).plan()
    settling = settling_seconds(plan.local)
    start = span.start - settling // span.step * span.step
    progress("gaps")
    gaps = _gaps(server, msgspec.structs.replace(span, start=start))
    if gaps and gaps[0][0] == start:  # without targets, an alert on their absence would fire
        start = gaps.pop(0)[1]
        span = msgspec.structs.replace(span, start=max(start, span.start))
    whole = Window(start, span.end)
    series = _sparse(plan, server, whole, span.step, progress)
    changes = _changes(series, span.step) | _context_changes(
        plan, server, whole, span.step, progress
    )
    windows = windows_around(changes, whole.start, whole.end, settling)
    sparse = [stretch for found in series.series.values() for stretch in found]
    context = _context(plan, server, windows, span.step, progress)
    series.merge(context)
    starts = sorted(one.start for one in sparse)
    ends = sorted(one.end + span.step for one in sparse)

    remembers = remember(plan.local)

    def is_quiet(time: float) -> bool:
        return not remembers and bisect.bisect_right(starts, time) == bisect.bisect_right(
            ends, time
        )

    replay = Replay(plan.local, promtool, span.step)
    pieces = pieces_of(windows, settling, len(series.series), is_quiet)
    for number, piece in enumerate(pieces, 1):
        progress(f"promtool, run {number} of {len(pieces)}")
        replay.run(piece, series.series)
    replay.finish()
    return Evaluated(
        span=span,
        alerts=replay.alerts,
        unevaluated=plan.unevaluated,
        gaps=tuple(gap for gap in gaps if gap[1] > span.start),
        forced_borders=sum(piece.forced for piece in pieces),
        evaluated_seconds=sum(one.end - one.start for one in windows),
        cost=server.cost,
    )


def _sparse(
    plan: Plan, server: Server, whole: Window, step: float, progress: Callable[[str], None]
) -> Stretches:
    """The faults, and what alerts read otherwise, over the whole span."""
    found = Stretches(step)
    sources = [source for source in plan.sources if source.sparse]
    for number, source in enumerate(sources, 1):
        progress(f"server, expression {number} of {len(sources)}")
        one = Stretches(step)
        for part in server.query_range(source.expression, whole.start, whole.end, step):
            one.add(part, source.name, source.labels, keep_values=False)
        found.merge(one)
    return found


def _context(
    plan: Plan,
    server: Server,
    windows: Sequence[Window],
    step: float,
    progress: Callable[[str], None],
) -> Stretches:
    """What else the rules read, where something happens."""
    found = Stretches(step)
    sources = [source for source in plan.sources if not source.sparse]
    for number, source in enumerate(sources, 1):
        progress(f"server, facts {number} of {len(sources)}")
        one = Stretches(step)
        for window in windows:
            start = window.start // step * step
            for part in server.query_range(source.expression, start, window.end, step):
                one.add(part, source.name, source.labels, keep_values=True)
        found.merge(one)
    return found


def _context_changes(
    plan: Plan, server: Server, whole: Window, step: float, progress: Callable[[str], None]
) -> set[float]:
    """When a series of the other facts appears or disappears, as a target that is removed."""
    found = set()
    sources = [source for source in plan.sources if not source.sparse]
    for number, source in enumerate(sources, 1):
        progress(f"server, changes of facts {number} of {len(sources)}")
        now = f"( {source.expression} )"
        length = f"{round(step * 1000) - 1}ms:{round(step * 1000)}ms"
        before = f"last_over_time ( {now} [{length}] offset {round(step * 1000)}ms )"
        expression = f"( {now} unless {before} ) or ( {before} unless {now} )"
        for part in server.query_range(expression, whole.start, whole.end, step):
            found |= {time for series in part for time, _ in series.values}
    return found


def _changes(series: Stretches, step: float) -> set[float]:
    return {
        time
        for stretches in series.series.values()
        for stretch in stretches
        for time in (stretch.start, stretch.end + step)
    }


def _gaps(server: Server, span: Span) -> list[tuple[float, float]]:
    """Times without samples: Prometheus did not run, or scraped no agent."""
    found = Stretches(span.step)
    for part in server.query_range(_NODES, span.start, span.end, span.step):
        found.add(part, "nodes", {}, keep_values=False)
    stretches = next(iter(found.series.values()), [])
    ends = [span.start, *(one.end + span.step for one in stretches)]
    starts = [*(one.start for one in stretches), span.end]
    pairs = zip(ends, starts)
    return [(end, start) for end, start in pairs if start > end] if stretches else []
