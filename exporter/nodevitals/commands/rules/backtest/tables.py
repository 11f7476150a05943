"""A report as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodevitals.commands.rules.backtest.plan import Unevaluated
from nodevitals.commands.rules.backtest.report import (
    MAX_INCIDENTS_PER_SHIFT,
    Episode,
    Figures,
    ReceiverFigures,
    Report,
)
from nodevitals.commands.terminal import local_time, print_table

_ROWS = 20
"""Rows of a table; --json has all."""


def print_report(report: Report) -> None:
    """Print a report."""
    print(f"{local_time(report.start)} to {local_time(report.end)}\n")
    receivers = [_receiver_row(one) for one in report.receivers]
    rates = ("PER DAY", "PER WEEK", "PER SHIFT", "WORST SHIFT")
    over = f"SHIFTS OVER {MAX_INCIDENTS_PER_SHIFT}"
    print_table(("RECEIVER", "INCIDENTS", *rates, over, "REPEATS", "RESOLVED"), receivers)
    # Alerts without a severity of their own: the watchdog, and those that only mute others.
    alerts = [one for one in report.alerts if one.severity != "none"]
    _print_rows(
        ("ALERT", "SEVERITY", "EPISODES", "NODES", "NOTIFIED", "PAGES", "HOURS", "NEVER NOTIFIED"),
        [_alert_row(one) for one in alerts],
    )
    _print_rows(
        ("NODE", "EPISODES", "NOTIFIED", "PAGES", "HOURS", "ALERTS"),
        [_node_row(one) for one in report.nodes],
    )
    longest = [
        (_hours((one.end or report.end) - one.start), _since(one, report), *_what(one.labels))
        for one in report.longest[:5]
    ]
    _print_rows(("LONGEST, HOURS", "SINCE", "ALERT", "NODE"), longest)
    print()
    print("\n".join(_notes(report)))


def _print_rows(head: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    print()
    print_table(head, rows[:_ROWS])
    if len(rows) > _ROWS:
        print(f"and {len(rows) - _ROWS} more: --json has all")


def _receiver_row(one: ReceiverFigures) -> tuple[object, ...]:
    name = f"{one.receiver} (pager)" if one.pager else one.receiver
    rates = (one.incidents_per_day, one.incidents_per_week, one.incidents_per_shift)
    return (
        *(name, one.incidents),
        *(f"{rate:.1f}" for rate in rates),
        *(one.worst_shift, f"{one.shifts_over_limit} of {one.shifts}", one.repeats, one.resolved),
    )


def _alert_row(one: Figures) -> tuple[object, ...]:
    reasons = sorted(one.never_notified.items(), key=lambda item: (-item[1], item[0]))
    never = ", ".join(f"{count} {reason}" for reason, count in reasons)
    counts = (one.episodes, one.nodes, one.notified, one.pages)
    return (one.name, one.severity, *counts, _hours(one.seconds), never)


def _node_row(one: Figures) -> tuple[object, ...]:
    names = sorted(one.alerts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {count}" for name, count in names[:4])
    more = f", {len(names) - 4} more" if len(names) > 4 else ""
    return (one.name, one.episodes, one.notified, one.pages, _hours(one.seconds), shown + more)


def _what(labels: dict[str, str]) -> tuple[str, str]:
    parts = ("fault", "device", "port", "mountpoint", "interface", "source", "domain_name")
    detail = " ".join(labels[name] for name in parts if name in labels)
    return f"{labels.get('alertname', '')} ({detail})", labels.get("instance", "")


def _since(one: Episode, report: Report) -> str:
    return local_time(one.start) if one.start > report.start else "before the span"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}"


def _notes(report: Report) -> Iterator[str]:
    cost = report.cost
    yield (
        f"Server: {cost.queries} queries, {cost.seconds:.1f} s, {cost.bytes / 2**20:.1f} MiB. "
        f"Sampled every {report.step_seconds:g} s: shorter faults may be missing. "
        f"Something changed in {_hours(report.evaluated_seconds)} of "
        f"{_hours(report.end - report.start)} h."
    )
    for start, end in report.gaps[:_ROWS]:
        yield f"No data from {local_time(start)} to {local_time(end)}: alerts end and begin there."
    if len(report.gaps) > _ROWS:
        yield f"and {len(report.gaps) - _ROWS} more gaps"
    if report.forced_borders:
        yield (
            f"At {report.forced_borders} times the evaluation was cut while faults were active: "
            "what a rule remembers about itself for longer than its waits is lost there."
        )
    yield from _missing("Not evaluated, no series in this span", report.not_evaluated)
    yield from _missing("Evaluated without metrics that are missing", report.partly_evaluated)


def _missing(title: str, found: list[Unevaluated]) -> Iterator[str]:
    if found:
        yield f"{title}:"
    for one in sorted(found, key=lambda one: one.rule):
        alerts = ", ".join(one.alerts) or "no alert of its own"
        more = f" and {len(one.metrics) - 2} more" if len(one.metrics) > 2 else ""
        yield f"  {one.rule} ({alerts}): {', '.join(one.metrics[:2])}{more}"
