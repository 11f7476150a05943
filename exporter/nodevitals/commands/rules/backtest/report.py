"""The report of a back-test. In: episodes. Out: figures, worst first, and tables for people."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from nodevitals.commands.rules.backtest.firing import Answers, Episode, Interval, Span, Unknown
from nodevitals.commands.rules.backtest.server import Cost
from nodevitals.commands.shipped import page
from nodevitals.commands.terminal import local_time, print_table

UPPER_BOUND = (
    "An upper bound of what is sent: Alertmanager's grouping, inhibition, silences and mute times "
    "are left out."
)
_ROWS = 20
"""Rows of a table; --json has all."""
_SEVERITIES = ("critical", "warning", "info", "")


class Figures(msgspec.Struct):
    """The figures of one alert or one instance."""

    name: str
    severity: str
    episodes: int
    seconds: float
    longest_seconds: float
    of: dict[str, int]
    """Episodes by instance of an alert, by alert of an instance; most first."""
    receivers: dict[str, int]
    """Episodes by receiver; empty without Alertmanager's configuration."""


class Report(msgspec.Struct):
    """A back-test; times are seconds since the epoch."""

    start: float
    end: float
    step_seconds: float
    left_out: str
    alerts: list[Figures]
    instances: list[Figures]
    receivers: dict[str, int]
    unknown: list[Unknown]
    gaps: list[Interval]
    episodes: list[Episode]
    cost: Cost


def make_report(
    answers: Answers, receivers: Callable[[Mapping[str, str]], Sequence[str]], cost: Cost
) -> Report:
    """Count the episodes; `receivers` returns those of an alert's labels."""
    routed = [(episode, receivers(episode.labels)) for episode in answers.episodes]
    alerts, instances = defaultdict(list), defaultdict(list)
    for episode, names in routed:
        labels = episode.labels
        instance, alert = labels.get("instance", ""), labels["alertname"]
        alerts[alert, labels.get("severity", "")].append((episode, instance, names))
        instances[instance, ""].append((episode, alert, ()))
    instances.pop(("", ""), None)
    span = answers.span
    return Report(
        *(span.start, span.end, span.step, UPPER_BOUND),
        alerts=_worst_first(_figures(*key, rows, span) for key, rows in alerts.items()),
        instances=_worst_first(_figures(*key, rows, span) for key, rows in instances.items()),
        receivers=_counted(name for _, names in routed for name in names),
        unknown=answers.unknown,
        gaps=answers.gaps,
        episodes=sorted(answers.episodes, key=lambda episode: episode.start),
        cost=cost,
    )


def _figures(
    name: str, severity: str, rows: Sequence[tuple[Episode, str, Sequence[str]]], span: Span
) -> Figures:
    seconds = [episode.seconds(span) for episode, _, _ in rows]
    return Figures(
        *(name, severity, len(rows), sum(seconds), max(seconds)),
        of=_counted(other for _, other, _ in rows if other),
        receivers=_counted(receiver for _, _, names in rows for receiver in names),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _worst_first(figures: Iterable[Figures]) -> list[Figures]:
    def rank(figures: Figures) -> tuple[bool, int, int, float, str]:
        known = figures.severity in _SEVERITIES
        severity = _SEVERITIES.index(figures.severity) if known else 0
        return not known, severity, -figures.episodes, -figures.seconds, figures.name

    return sorted(figures, key=rank)


def print_report(report: Report) -> None:
    """Print a report."""
    print(f"{local_time(report.start)} to {local_time(report.end)}\n")
    receivers = ["RECEIVERS"] if report.receivers else []
    # Alerts without a severity of their own: the watchdog, and those that only mute others.
    alerts = [
        (
            alert.name,
            alert.severity,
            *_row(alert),
            *([", ".join(alert.receivers)] if receivers else []),
        )
        for alert in report.alerts
        if alert.severity != "none"
    ]
    figures = ("FIRED", "HOURS", "LONGEST")
    _print_rows(("ALERT", "SEVERITY", *figures, "WORST INSTANCES", *receivers), alerts)
    instances = [(instance.name, *_row(instance)) for instance in report.instances]
    _print_rows(("INSTANCE", *figures, "ALERTS"), instances)
    _print_rows(("RECEIVER", "ALERTS THAT FIRED"), [*report.receivers.items()])
    unknown = [_unknown_row(alert) for alert in report.unknown]
    _print_rows(("UNKNOWN ALERT", "SEVERITY", "BEFORE", "WHY"), unknown)
    print("\n".join(_notes(report)))


def _print_rows(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        print_table(head, rows[:_ROWS])
        print(f"and {len(rows) - _ROWS} more: --json has all\n" if len(rows) > _ROWS else "")


def _row(figures: Figures) -> tuple[object, ...]:
    worst = [f"{name} {count}" for name, count in figures.of.items()]
    more = f", {len(worst) - 3} more" if len(worst) > 3 else ""
    hours = [f"{seconds / 3600:.1f}" for seconds in (figures.seconds, figures.longest_seconds)]
    return (figures.episodes, *hours, ", ".join(worst[:3]) + more or "-")


def _unknown_row(unknown: Unknown) -> tuple[str, ...]:
    names = ", ".join(unknown.missing[:2])
    more = f" and {len(unknown.missing) - 2} more" if len(unknown.missing) > 2 else ""
    before = "any time" if unknown.until is None else local_time(unknown.until)
    return (
        unknown.alert,
        unknown.severity,
        before,
        unknown.reason + (f": {names}{more}" if names else ""),
    )


def _notes(report: Report) -> Iterator[str]:
    yield report.left_out
    yield (
        f"Server: {report.cost.queries} queries, {report.cost.seconds:.1f} s. "
        f"Sampled every {report.step_seconds:g} s: shorter faults may be missing."
    )
    for start, end in report.gaps[:_ROWS]:
        yield f"No data from {local_time(start)} to {local_time(end)}: alerts end and begin there."
    if len(report.gaps) > _ROWS:
        yield f"and {len(report.gaps) - _ROWS} more gaps: --json has all"
    if report.unknown:
        yield (
            "Unknown is not 0: nothing is known of those alerts. Series that rules record can be "
            "made of the history: promtool tsdb create-blocks-from rules "
            f"({page('docs/backtest.md')})."
        )
