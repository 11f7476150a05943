"""Compares a collective with what it should reach.

In: the request, the run over all nodes, and the references. Out: a finding, or one line about what
is missing for a verdict.

| reference | well | slow |
|---|---|---|
| the expected rate | from `share` on | below |
| the last equal check, if it was ok | from `share` on | below |
| the last equal check, if it had no reference | never | below `share` |
| the hardware of the nodes (bus.py) | from `share` on | below BAD_SHARE, with large messages |
"""

from __future__ import annotations

from typing import Optional

from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckRequest,
    NodeVerdict,
    Reason,
    RunResult,
)
from nodevitals.checks.requests.sizes import spelled_size
from nodevitals.checks.verdicts import bus, figures
from nodevitals.checks.verdicts.findings import finding, percent, rail_of
from nodevitals.checks.verdicts.reference import HOW, Past


def expected_of(check: Check) -> tuple[Optional[float], str]:
    """The bus bandwidth that a collective should reach, and what that comes from: '' where the
    request or an earlier check gave it.
    """
    given = check.request.expected_bytes_per_second
    figure = given or (check.baseline if check.baseline_ok else None)
    if figure is not None or check.bus is None:
        return figure, ""
    return check.bus.bytes_per_second, check.bus.basis


def slow(request: CheckRequest, run: RunResult, past: Past) -> Optional[NodeVerdict]:
    """The finding where it is slower than it should be."""
    figure = _figure(request, run)
    if figure is None:
        return None
    expected = request.expected_bytes_per_second
    usual = expected or past.baseline
    if usual and figure < request.share * usual:
        what = "expected rate" if expected else "last check's"
        return _slow(request, figure / usual, f"{percent(figure / usual)} of the {what}")
    is_judged = expected or (past.baseline and past.baseline_ok)
    if is_judged or past.bus is None or not bus.is_large(request.test, len(request.nodes)):
        return None
    share = figure / past.bus.bytes_per_second
    return _slow(request, share, _reached(figure, past.bus)) if share < bus.BAD_SHARE else None


def lacking(request: CheckRequest, run: RunResult, past: Past) -> str:
    """Which reference is missing to call a collective that is not slow ok, and what it reached; ''
    where there is one.
    """
    figure = _figure(request, run)
    is_judged = request.expected_bytes_per_second or (past.baseline and past.baseline_ok)
    if figure is None or is_judged:
        return ""
    if past.bus is not None and figure >= request.share * past.bus.bytes_per_second:
        return ""
    text = f"the collective reached {_reached(figure, past.bus)}; no reference: {HOW}"
    if past.bus is not None and not bus.is_large(request.test, len(request.nodes)):
        least = bus.least_size(request.test, len(request.nodes))
        text += f", or test with --sizes {spelled_size(least)}"
    if past.baseline:
        text += f"; {percent(figure / past.baseline)} of the last like check, which had none either"
    return text


def finding_on(
    request: CheckRequest, reason: Reason, text: str, ratio: Optional[float] = None
) -> NodeVerdict:
    """A finding on all nodes: on the node, where there is one."""
    if len(request.nodes) == 1:
        return finding(request.nodes[0], "node", reason, text, ratio)
    return finding(rail_of(request), "rail", reason, text, ratio)


def _slow(request: CheckRequest, ratio: float, text: str) -> NodeVerdict:
    return finding_on(request, "threshold", text, ratio)


def _figure(request: CheckRequest, run: RunResult) -> Optional[float]:
    return figures.at_size(run, request.test, figures.largest(request.test))


def _reached(figure: float, expected: Optional[BusExpectation]) -> str:
    """`120 of 360 GB/s on its bus, 33 % (8 ports of 400 Gb/s per node, 90 %)`."""
    if expected is None:
        return f"{figure / 1e9:.3g} GB/s on its bus"
    share = percent(figure / expected.bytes_per_second)
    most = f"{expected.bytes_per_second / 1e9:.3g} GB/s on its bus"
    return f"{figure / 1e9:.3g} of {most}, {share} ({expected.basis})"
