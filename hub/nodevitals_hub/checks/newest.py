"""The newest check of each kind, pool, tool, operation and device, with its baseline.

In: ended checks, in the order of their ends. Out: samples of `nodevitals_check_*`. Pure. The number
of series is bounded: MAX_KEYS keys, each with MAX_SIZES message sizes and MAX_FINDINGS findings.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from nodevitals.checks.model import Check, CheckDetail, RunResult
from nodevitals.checks.verdicts.figures import in_order
from nodevitals.checks.verdicts.repetitions import merged
from nodevitals.families import Family
from nodevitals_hub import families

MAX_KEYS = 200
MAX_SIZES = 32
MAX_FINDINGS = 32
BASELINE_CHECKS = 8
MAX_POOL_CHARACTERS = 64

Sample = tuple[Family, tuple[str, ...], float]


class Key(NamedTuple):
    """Checks with the same key are compared. The labels of their families, in this order."""

    pool: str
    tool: str
    operation: str
    device: str
    kind: str


class Figures(NamedTuple):
    """Medians of one check by message size: bytes per second, and seconds."""

    bandwidth: dict[int, float]
    latency: dict[int, float]


class Newest(NamedTuple):
    """The exposed data of one key."""

    check: Check
    figures: Figures
    baseline: Figures


class NewestChecks:
    """Collects checks as they end."""

    def __init__(self) -> None:
        self._newest: dict[Key, Newest] = {}
        self._before: dict[Key, deque[Figures]] = {}
        self._ended: Counter[tuple[str, str, str]] = Counter()

    def take(self, detail: CheckDetail, *, count: bool = True) -> None:
        """Add an ended check; `count`: whether it ended in this process."""
        check = detail.check
        outcome, reason = outcome_of(check)
        if count:
            self._ended[check.request.kind, outcome, reason] += 1
        if outcome == "canceled" or check.verdict is None:
            return
        key, figures = key_of(check), figures_of(detail)
        before = self._before.setdefault(key, deque(maxlen=BASELINE_CHECKS))
        self._newest.pop(key, None)
        self._newest[key] = Newest(check, figures, baseline_of(before))
        if figures.bandwidth or figures.latency:
            before.append(figures)
        while len(self._newest) > MAX_KEYS:
            oldest = next(iter(self._newest))
            del self._newest[oldest], self._before[oldest]

    def samples(self, url: str = "") -> Iterator[Sample]:
        """All samples of checks; `url` is the external address of the hub's pages."""
        for kind in families.KINDS:
            yield families.ENDED, (kind, "ok", ""), self._ended[kind, "ok", ""]
            yield families.ENDED, (kind, "canceled", ""), self._ended[kind, "canceled", ""]
            for outcome in ("bad", "unknown"):
                for reason in families.REASONS:
                    labels = (kind, outcome, reason)
                    yield families.ENDED, labels, self._ended[labels]
        for key, newest in self._newest.items():
            yield from _samples(key, newest)
            if url:
                page = f"{url.rstrip('/')}/checks/{newest.check.id}"
                yield families.PAGE, (*key, page), 1.0


def _samples(key: Key, newest: Newest) -> Iterator[Sample]:
    check = newest.check
    yield families.OUTCOME, (*key, *outcome_of(check)), 1.0
    if check.ended is not None:
        yield families.END, key, check.ended
        yield families.DURATION, key, max(0.0, check.ended - (check.started or check.ended))
    for family, by_size in (
        (families.BANDWIDTH, newest.figures.bandwidth),
        (families.LATENCY, newest.figures.latency),
        (families.BANDWIDTH_BASELINE, newest.baseline.bandwidth),
        (families.LATENCY_BASELINE, newest.baseline.latency),
    ):
        for size in sorted(by_size)[-MAX_SIZES:]:
            yield family, (*key, str(size)), by_size[size]
    findings = check.verdict.findings if check.verdict else ()
    worst: dict[tuple[str, ...], float] = {}
    for finding in findings:
        labels: tuple[str, ...] = (finding.subject, finding.scope, finding.reason)
        ratio = finding.ratio or 0.0
        if labels in worst or len(worst) < MAX_FINDINGS:
            worst[labels] = min(ratio, worst.get(labels, ratio))
    for named, ratio in worst.items():
        yield families.FINDING, (*key, *named), ratio


def key_of(check: Check) -> Key:
    """The labels of a check."""
    test = check.request.test
    return Key(
        pool=pool_of(check),
        tool=test.tool or "",
        operation=test.operation,
        device=test.device,
        kind=check.request.kind,
    )


def pool_of(check: Check) -> str:
    """The labels that chose its nodes, as one text; '' where the request named the nodes."""
    where = check.request.where
    if set(where) == {"pool"}:
        return where["pool"][:MAX_POOL_CHARACTERS]
    return ",".join(f"{name}={where[name]}" for name in sorted(where))[:MAX_POOL_CHARACTERS]


def outcome_of(check: Check) -> tuple[str, str]:
    """The outcome of an ended check, and the reason where the outcome is not ok."""
    if check.phase == "canceled":
        return "canceled", ""
    if check.verdict is None:
        return "unknown", "harness"
    if check.verdict.outcome == "ok":
        return "ok", ""
    return check.verdict.outcome, check.verdict.reason or "harness"


def figures_of(detail: CheckDetail) -> Figures:
    """Medians by message size over all runs that have a result; of repeated ones the better."""
    request = detail.check.request
    results: Sequence[RunResult] = detail.results
    if request.kind in ("pair", "matrix"):
        results, _ = merged(request, detail.check.cost.runs, in_order(results))
    bandwidth: dict[int, list[float]] = {}
    latency: dict[int, list[float]] = {}
    for report in (report for result in results for report in result.reports):
        for row in report.rows if report.outcome == "ok" else ():
            rate: float | None = row.bus_bandwidth_bytes_per_second
            rate = row.bandwidth_bytes_per_second if rate is None else rate
            seconds = (row.latency_seconds or {}).get("median")
            if rate is not None:
                bandwidth.setdefault(row.message_bytes, []).append(rate)
            if seconds is not None:
                latency.setdefault(row.message_bytes, []).append(seconds)
    return Figures(_medians(bandwidth), _medians(latency))


def baseline_of(before: Sequence[Figures]) -> Figures:
    """Medians by message size over earlier checks."""
    bandwidth: dict[int, list[float]] = {}
    latency: dict[int, list[float]] = {}
    for figures in before:
        for size, value in figures.bandwidth.items():
            bandwidth.setdefault(size, []).append(value)
        for size, value in figures.latency.items():
            latency.setdefault(size, []).append(value)
    return Figures(_medians(bandwidth), _medians(latency))


def _medians(values: dict[int, list[float]]) -> dict[int, float]:
    return {size: median(rates) for size, rates in values.items()}
