"""One run of one script: its end becomes a status, its output becomes values and a line of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import msgspec

from nodevitals.probe import Readings
from nodevitals.probes.scripts import families
from nodevitals.probes.scripts.nagios import (
    STATUS_OF_EXIT,
    Report,
    clean,
    first_line,
    parse_nhc,
    parse_output,
)
from nodevitals.probes.scripts.program import Ended
from nodevitals.probes.scripts.settings import ScriptSettings

# Exit statuses of nhc after its own signals and its watchdog.
_NHC_ENDED = (129, 130, 142, 143)
# Limits the series of a script that uses new labels in each run.
MAX_KNOWN_LABELS = 256


class ScriptState(msgspec.Struct):
    """What a target keeps between runs: the last status, the labels of performance data, and the
    processes of a run that could not be killed.
    """

    status: str = ""
    labels: list[str] = []
    left: list[tuple[int, str]] = []


class Result(msgspec.Struct, frozen=True):
    """A status, why it is not the script's own ('' if it is), and the report."""

    status: str
    failure: str
    report: Report


def result_of(ended: Ended, script: ScriptSettings) -> Result:
    """The result of a script that has ended."""
    if ended.status is None:
        return Result("unknown", "timeout", Report("did not end in time and was ended"))
    if ended.status < 0:
        return Result("unknown", "signal", Report(f"ended by signal {-ended.status}"))
    if script.output == "nhc":
        return _nhc_result(ended, ended.status)
    report = parse_output(ended.output, script.kilobyte)
    if not report.text:
        report = msgspec.structs.replace(report, text=first_line(ended.error))
    status = STATUS_OF_EXIT.get(ended.status)
    if status is None:
        text = clean(f"exit status {ended.status}: {report.text}")
        return Result("unknown", "status", Report(text))
    return Result(status, "", report)


def _nhc_result(ended: Ended, status: int) -> Result:
    if status == 0:
        return Result("ok", "", Report("no failed check"))
    failed = parse_nhc(f"{ended.output}\n{ended.error}")
    if status in _NHC_ENDED:
        return Result("unknown", "timeout", Report(failed or f"exit status {status}"))
    if failed is None:
        said = first_line(ended.error) or first_line(ended.output)
        return Result("unknown", "output", Report(clean(f"exit status {status}: {said}")))
    return Result("critical", "", Report(failed))


def add_result(
    readings: Readings, script: str, result: Result, discarded: int, state: ScriptState
) -> None:
    """Add the result of a run, and log a line if the status has changed."""
    for status in families.STATUSES:
        readings.add(families.STATUS, status == result.status, script, status)
    for failure in families.FAILURES:
        amount = 1 if failure == result.failure else 0
        readings.increment(families.FAILURES_TOTAL, amount, script, failure)
    readings.add(families.DISCARDED, discarded, script)
    refused = result.report.invalid
    for value in result.report.values:
        if value.label not in state.labels:
            if len(state.labels) >= MAX_KNOWN_LABELS:
                refused += 1
                continue
            state.labels.append(value.label)
        if value.unit == "counter":
            readings.add(families.COUNT, value.value, script, value.label)
        else:
            readings.add(families.VALUE, value.value, script, value.label, value.unit)
    readings.increment(families.UNREADABLE, refused, script)
    readings.condition(script, result.status, result.report.text)
    if result.status != state.status:
        text = f"{result.status.upper()}: {result.report.text}"
        readings.note(text, warning=result.status != "ok")
    state.status = result.status


def budget(timeout_seconds: float) -> tuple[float, float]:
    """Seconds until TERM, and from TERM to KILL, within the time of a run."""
    seconds = max(timeout_seconds / 2, timeout_seconds - 1.0)
    return seconds, (timeout_seconds - seconds) / 4


def still_running(state: ScriptState, started_at: Callable[[int], str]) -> Optional[int]:
    """A process of an earlier run that still runs; None if all have ended."""
    state.left = [(pid, start) for pid, start in state.left if started_at(pid) == start]
    return state.left[0][0] if state.left else None
