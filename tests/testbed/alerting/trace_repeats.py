"""Which faults of the trace are notified as repeats.

In: the confirmed faults of each server, with the times between them as in the trace. Out: those in
which RepeatedFaults fires, by promtool with the shipped rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from testbed.alerting import timeline
from testbed.alerting.timeline import SHIPPED, RuleFiles
from testbed.alerting.trace import Fault

STEP_SECONDS = 600
STEPS_PER_DAY = 86400 // STEP_SECONDS
RULES = ("thresholds.yaml", "repeats.yaml")
# Longer faults, and longer times between two, are shortened to these.
LONGEST_FAULT_DAYS = 1.0
LONGEST_GAP_DAYS = 8.0
_LABELS = 'component="node", fault="replayed", service="drain_now"'
Span = tuple[int, int]


def marked(faults: Iterable[Fault], folder: Path) -> set[Fault]:
    """Return the faults that are notified as repeats; all of `faults` are confirmed ones."""
    by_server: dict[str, list[Fault]] = defaultdict(list)
    for one in sorted(faults, key=lambda one: one.start_day):
        by_server[one.server].append(one)
    spans = {server: _spans(found) for server, found in by_server.items() if len(found) > 1}
    rules = folder / "rules"
    rules.mkdir(parents=True)
    for name in RULES:
        (rules / name).symlink_to(SHIPPED / name)
    files = RuleFiles(rules)
    # A step is longer than Prometheus looks back: what is recorded is read in the same one.
    files.order.sort(key=lambda group: not group.endswith("-slow"))
    alerts = timeline.evaluate(
        [_series(server, found) for server, found in spans.items()],
        max(found[-1][1] for found in spans.values()) * STEP_SECONDS,
        folder,
        files,
        step=STEP_SECONDS,
    )
    starts = {(one.labels["instance"], int(one.start) // STEP_SECONDS) for one in alerts}
    return {
        fault
        for server, found in spans.items()
        for fault, (start, end) in zip(by_server[server], found, strict=True)
        if any((server, step) in starts for step in range(start, end))
    }


def _spans(faults: list[Fault]) -> list[Span]:
    """When each fault begins and ends, in steps; none overlaps the one before."""
    found: list[Span] = []
    returned, at = faults[0].start_day, 1
    for one in faults:
        gap = min(max(0.0, one.start_day - returned), LONGEST_GAP_DAYS)
        lasts = min(one.end_day - one.start_day, LONGEST_FAULT_DAYS)
        start = at + max(1, round(gap * STEPS_PER_DAY))
        at = start + max(1, round(lasts * STEPS_PER_DAY))
        found.append((start, at))
        returned = max(returned, one.end_day)
    return found


def _series(server: str, spans: list[Span]) -> dict[str, str]:
    cells = ["_"] * (spans[-1][1] + 1)
    for start, end in spans:
        cells[start:end] = ["1"] * (end - start)
        cells[end] = "stale"
    name = f'nodevitals:fault_confirmed{{cluster="trace", instance="{server}", {_LABELS}}}'
    return {"series": name, "values": " ".join(cells)}
