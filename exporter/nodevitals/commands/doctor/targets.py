"""The findings about the probes and their targets, from the agent's metrics and its history.

The metrics contain no reasons; the history in the state directory has the last reason per target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Optional

import msgspec

from nodevitals.commands.doctor.findings import (
    OFF,
    OK,
    PROBLEM,
    UNKNOWN,
    Finding,
    Samples,
    ago,
    listed,
    printable,
)
from nodevitals.commands.doctor.remedies import remedy_of
from nodevitals.wire import ProbeResult

MAX_ROWS = 20
"""Rows per probe; a node may have thousands of mounts."""

Key = tuple[str, str]


class TargetState(msgspec.Struct, frozen=True):
    """One target: `state` is ok, failing, stuck, waiting or absent. Ages in seconds."""

    probe: str
    target: str
    state: str
    reason: str = ""
    text: str = ""
    age: Optional[float] = None


def from_metrics(
    samples: Samples, history: Mapping[Key, tuple[str, str]], now: float
) -> list[TargetState]:
    """The states of the targets that an agent exposes; `history` has the last state and detail of
    each, where it can be read.
    """
    stuck = samples.by_target("nodevitals_probe_stuck_seconds")
    unanswered = samples.by_target("nodevitals_probe_unanswered_seconds")
    last = samples.by_target("nodevitals_probe_last_success_timestamp_seconds")
    ended = samples.by_target("nodevitals_probe_duration_seconds")
    states = []
    for key, success in samples.by_target("nodevitals_probe_success").items():
        age = now - last[key] if key in last else None
        reason, text = history.get(key, ("", ""))
        if reason in ("ok", "absent"):  # not written yet: the metrics are newer
            reason = text = ""
        if not reason and unanswered.get(key, 0) > 0:
            reason, text = "timeout", f"no run has ended in time for {ago(unanswered[key])}"
        if stuck.get(key, 0) > 0:
            overdue = f"a run has not ended for {ago(stuck[key])}"
            target_state = TargetState(*key, "stuck", "stuck", overdue, age)
        elif success:
            target_state = TargetState(*key, "ok", age=age)
        elif key not in ended and not reason:
            target_state = TargetState(*key, "waiting")
        else:
            target_state = TargetState(*key, "failing", reason, text, age)
        states.append(target_state)
    exposed = {(state.probe, state.target) for state in states}
    gone = ((key, row) for key, row in history.items() if key not in exposed)
    absent = [TargetState(*key, "absent", *row) for key, row in gone if row[0] == "absent"]
    return states + absent


def from_results(
    results: Mapping[Key, ProbeResult], planned: Iterable[Key], seconds: float
) -> list[TargetState]:
    """The states after one run of each planned target by this command, within some seconds."""
    states = []
    for key in planned:
        result = results.get(key)
        if result is None:
            text = f"no result within {seconds:.0f} s"
            states.append(TargetState(*key, "stuck", "timeout", text))
        elif result.outcome in ("ok", "absent"):
            states.append(TargetState(*key, result.outcome, result.reason, result.text, 0.0))
        else:
            state = "stuck" if result.outcome == "stuck" else "failing"
            states.append(TargetState(*key, state, result.reason, result.text))
    return states


def target_findings(
    states: Sequence[TargetState], disabled: Iterable[str], known: Iterable[str]
) -> list[Finding]:
    """A row per target that is not ok, and a row per probe for its targets that are ok. `disabled`
    are the probes that the configuration turns off.
    """
    findings = []
    off = set(disabled)
    for probe in sorted({*known, *(state.probe for state in states)}):
        own = [state for state in states if state.probe == probe]
        good = [state for state in own if state.state == "ok"]
        bad = sorted(
            (state for state in own if state.state not in ("ok", "absent")),
            key=lambda state: state.target,
        )
        gone = [state for state in own if state.state == "absent"]
        name = f"probe {printable(probe, 40)}"
        findings += [_not_ok(state) for state in bad[:MAX_ROWS]]
        if len(bad) > MAX_ROWS:
            text = f"{len(bad) - MAX_ROWS} more targets are not ok"
            findings.append(Finding(name, PROBLEM, text, "repair those above first"))
        if good:
            findings.append(Finding(name, OK, _good_text(probe, good)))
        elif gone and not bad:
            findings.append(Finding(name, OFF, f"not on this node: {printable(gone[0].text)}"))
        elif not own and probe in off:
            findings.append(Finding(name, OFF, f"not enabled: probes.{probe}.enabled is false"))
        elif not own:
            findings.append(Finding(name, OFF, f"no target: not configured (probes.{probe})"))
    return findings


def _good_text(probe: str, good: Sequence[TargetState]) -> str:
    names = sorted(printable(state.target, 60) for state in good if state.target != probe)
    ages = [state.age for state in good if state.age is not None]
    text = f"{len(names)} targets: {listed(names)}" if len(names) > 1 else "".join(names)
    age = f"last success {ago(max(ages))} ago" if ages and max(ages) > 0 else "one run succeeded"
    return f"{text}; {age}".removeprefix("; ")


def _not_ok(state: TargetState) -> Finding:
    target = "" if state.target == state.probe else f" {printable(state.target, 60)}"
    name = f"probe {printable(state.probe, 40)}{target}"
    if state.state == "waiting":
        text = "has not ended its first run"
        return Finding(name, UNKNOWN, text, "wait for one interval, then call doctor again")
    text = (
        f"{state.state} ({state.reason})" if state.reason not in ("", state.state) else state.state
    )
    if state.text:
        text += f": {state.text}"
    if not state.reason:
        text += "; the reason cannot be read from here"
    if state.age is not None:
        text += f"; last success {ago(state.age)} ago"
    remedy = remedy_of(state.probe, state.reason, state.target)
    return Finding(name, PROBLEM, printable(text), printable(remedy))
