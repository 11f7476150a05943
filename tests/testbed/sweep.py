"""The sweep: every file that a probe uses fails in every way, at the first run and later.

Run as a program in a process that preloads `faultycalls.library()`:
`python -m testbed.sweep PROBE FOLDER` prints one JSON document, `Report`. The probe runs in this
process as the agent's worker runs it: its state is encoded between runs, and after a failed run
or where it is not resident it is a new one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from nodevitals.probe import Absent, Probe, ProbeError, Readings
from nodevitals.wire import decode, encode
from testbed.faultycalls import (
    BELOW_FAULT,
    CONTENT_FAULTS,
    FEW_FAULTS,
    OPEN_FAULTS,
    READ_FAULTS,
    SHORT_FAULT,
    Calls,
    Fault,
)

Series = tuple[str, tuple[str, ...]]
"""A family's name and the labels."""


class Subject(Protocol):
    """A probe on a simulated node below `folder`."""

    folder: Path
    recovery_seconds: float
    """The time after which everything is back, at the latest in the next run."""
    recovery_runs: int
    """How many further runs that takes."""
    timings: tuple[str, ...]
    """Families whose values are durations of the run itself."""
    streams: tuple[str, ...]
    """Files, below the folder, of which only a descriptor is kept: they have no content."""
    tool_calls: tuple[str, ...]
    """Calls of a vendor's programs to sweep instead of files."""

    def new_probe(self) -> Probe:
        """A probe that has not run."""

    def tick(self, run: int) -> None:
        """Let the node do something before a run."""

    def break_call(self, call: str, how: str | None) -> None:
        """Let a call of a program fail in one of CALL_FAULTS, or succeed with None."""


class Outcome(msgspec.Struct):
    """What a run exposes; `totals` are the counters that the agent keeps, `states` those of the
    history by device; `reason` is '' where the run succeeded, ABSENT, or CRASH and why.
    """

    samples: dict[Series, float]
    totals: dict[Series, float]
    states: dict[str, str]
    reason: str


class Session:
    """Runs of one probe with the state between them."""

    def __init__(self, subject: Subject, calls: Calls, interval: float = 15.0) -> None:
        self._subject = subject
        self._calls = calls
        self._interval = interval
        self._state = b""
        self._probe: Probe | None = None
        self._totals: dict[Series, float] = {}
        self._runs = 0

    def restarted(self) -> Session:
        """Another session, as after a restart of the agent."""
        session = Session(self._subject, self._calls, self._interval)
        session._state, session._totals = self._state, dict(self._totals)
        session._runs = self._runs
        return session

    def run(self, seconds: float | None = None) -> Outcome:
        """Run once, an interval or so many seconds after the last run."""
        self._calls.advance(self._interval if seconds is None else seconds)
        self._runs += 1
        self._subject.tick(self._runs)
        readings, reason = self._attempt()
        for one in readings.increments:
            if one.family in self._subject.timings:
                continue
            key = (one.family, one.labels)
            self._totals[key] = self._totals.get(key, 0.0) + one.value
        return Outcome(
            {
                (one.family, one.labels): one.value
                for one in readings.samples
                if one.family not in self._subject.timings
            },
            dict(self._totals),
            {one.device: one.state for one in readings.conditions},
            reason,
        )

    def _attempt(self) -> tuple[Readings, str]:
        """What engine/worker.py does with one run."""
        probe, self._probe = self._probe, None
        try:
            if probe is None:
                probe = self._subject.new_probe()
                probe.open()
            readings = Readings(families=probe.families)
            if self._state:
                probe.state = decode(self._state, probe.State)
            try:
                probe.run(readings)
            except ProbeError as error:
                self._state = encode(probe.state)
                probe.close()
                return readings, error.reason
            self._state = encode(probe.state)
            self._probe = probe if probe.resident else None
            return readings, ""
        except Absent:
            return Readings(), "ABSENT"
        except ProbeError as error:
            return Readings(), error.reason
        except Exception as error:  # noqa: BLE001 - a bug in the probe is a finding
            return Readings(), f"CRASH {type(error).__name__}: {error}"[:100]


class Row(msgspec.Struct):
    """What one fault of one path does in one phase (`first`, `later`, `restarted`), against the
    same run without it; `not_back` is what differs after the recovery.
    """

    path: str
    fault: str
    phase: str
    lost: list[Series]
    gained: list[Series]
    changed: list[Series]
    states: dict[str, str]
    totals: dict[str, float]
    reason: str
    all_lost: bool = False
    not_back: list[str] = []


class Report(msgspec.Struct):
    """The rows that differ in anything, the number of all, and the paths that were swept."""

    rows: list[Row]
    swept: int
    paths: list[str]


# Each run has its own time.
CLOCK: Series = ("nodevitals_node_time_seconds", ())


def compare(path: str, fault: str, phase: str, base: Outcome, now: Outcome) -> Row:
    """The difference between a run and the same run without the fault."""
    both = base.samples.keys() & now.samples.keys() - {CLOCK}
    return Row(
        path,
        fault,
        phase,
        sorted(base.samples.keys() - now.samples.keys()),
        sorted(now.samples.keys() - base.samples.keys()),
        sorted(key for key in both if not _same(base.samples[key], now.samples[key])),
        {k: s for k, s in now.states.items() if base.states.get(k) != s},
        {
            f"{family}{labels}": value - base.totals.get((family, labels), 0.0)
            for (family, labels), value in now.totals.items()
            if value > base.totals.get((family, labels), 0.0)
        },
        now.reason,
        bool(base.samples) and not now.samples,
    )


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6)


def differences(base: Outcome, now: Outcome) -> list[str]:
    """What is not as it was; of the totals also what is missing."""
    row = compare("", "", "", base, now)
    found = [
        f"{what} {key}" for what in ("lost", "gained", "changed") for key in getattr(row, what)
    ]
    found += [f"state {key} {state}" for key, state in row.states.items()]
    found += [f"total {k} {v}" for k, v in now.totals.items() if v != base.totals.get(k, 0.0)]
    return found + ([f"reason {now.reason}"] if now.reason else [])


CALL_FAULTS = tuple(
    Fault(name, "tool")
    for name in (
        *("exit 1", "exit 187", "killed", "empty", "error text", "on stderr", "garbage"),
        *("not UTF-8", "400 digits", "half", "cut line", "hang"),
    )
)
FEW_CALL_FAULTS = ("exit 187", "half")


def faults_of(kinds: set[str], few: bool) -> list[Fault]:
    """The faults of a path that is used in these ways; with `few` not every errno."""
    found = [*OPEN_FAULTS]
    if "o" in kinds:
        found += (*READ_FAULTS, *CONTENT_FAULTS, SHORT_FAULT)
    found = [one for one in found if not few or one.name in FEW_FAULTS]
    return found + ([BELOW_FAULT] if kinds - {"o"} else [])


class Sweep:
    """Goes through the paths of one subject."""

    def __init__(self, subject: Subject, calls: Calls, long: bool) -> None:
        """`long`: every errno also at the first run and after a restart, with a recovery after
        each; else one of each kind there, and one recovery after all errnos.
        """
        self._subject = subject
        self._calls = calls
        self._long = long

    def session(self, phase: str) -> Session:
        """A session in which the next run is the first, a later one, or that after a restart."""
        session = Session(self._subject, self._calls)
        if phase == "first":
            return session
        session.run()
        session.run()
        return session.restarted() if phase == "restarted" else session

    def paths(self) -> dict[str, set[str]]:
        """The paths that runs use, each with how."""
        self._calls.watch(str(self._subject.folder))
        self.session("restarted").run(self._subject.recovery_seconds)
        found = self._calls.seen()
        self._calls.watch("")
        return found

    def report(self) -> Report:
        """Sweep all of them."""
        calls: dict[str, set[str]] = {one: {"tool"} for one in self._subject.tool_calls}
        paths, rows, swept = calls or self.paths(), [], 0
        bases = {phase: self._base(phase) for phase in ("first", "later", "restarted")}
        for path, kinds in sorted(paths.items()):
            for row in self._sweep(path, kinds, bases):
                swept += 1
                if (
                    row.lost
                    or row.gained
                    or row.changed
                    or row.states
                    or row.totals
                    or row.reason
                    or row.not_back
                ):
                    rows.append(row)
        names = sorted(paths)
        return Report(rows, swept, names)

    def _base(self, phase: str) -> tuple[Outcome, Outcome]:
        session = self.session(phase)
        return session.run(), self._recovered(session)

    def _recovered(self, session: Session) -> Outcome:
        outcome = session.run(self._subject.recovery_seconds)
        for _ in range(self._subject.recovery_runs):
            outcome = session.run()
        return outcome

    def _sweep(
        self, path: str, kinds: set[str], bases: dict[str, tuple[Outcome, Outcome]]
    ) -> Iterator[Row]:
        # A probe that is not resident is restarted before every run.
        phases = ("first", "restarted") if self._subject.new_probe().resident else ("first",)
        for phase in phases:
            before, base = self.session(phase), bases[phase]
            for fault in self._faults(path, kinds, few=not self._long):
                session = before.restarted()
                row = self._fail(session, path, fault, phase, base[0])
                self._recover(session, row, base[1])
                yield row
        # All faults one after the other in the same worker.
        session, base = self.session("later"), bases["later"]
        faults = self._faults(path, kinds, few=False)
        for fault in faults:
            row = self._fail(session, path, fault, "later", base[0])
            if self._long or fault is faults[-1]:
                self._recover(session, row, base[1])
            yield row

    def _faults(self, path: str, kinds: set[str], few: bool) -> list[Fault]:
        if "tool" in kinds:
            return [one for one in CALL_FAULTS if not few or one.name in FEW_CALL_FAULTS]
        stream = path.endswith(self._subject.streams)
        number = Path(path).is_file() and Path(path).read_bytes().strip().isdigit()
        return [
            one
            for one in faults_of(kinds, few)
            if not (stream and one.where == "content") and (number or one.name != "negative")
        ]

    def _fail(self, session: Session, path: str, fault: Fault, phase: str, base: Outcome) -> Row:
        if fault.where == "tool":
            self._subject.break_call(path, fault.name)
        else:
            self._calls.fail(path, fault)
        seconds = self._subject.recovery_seconds if phase == "later" else None
        row = compare(path, fault.name, phase, base, session.run(seconds))
        self._calls.recover()
        if fault.where == "tool":
            self._subject.break_call(path, None)
        return row

    def _recover(self, session: Session, row: Row, base: Outcome) -> None:
        row.not_back = differences(base, self._recovered(session))


def main(make: Callable[[str, Path], Subject]) -> None:
    """Sweep the probe that the arguments name; with a third one, `long`, in the long form."""
    subject = make(sys.argv[1], Path(sys.argv[2]))
    calls = Calls()
    calls.hang_while(str(Path(sys.argv[2]) / "hanging"))
    report = Sweep(subject, calls, "long" in sys.argv[3:]).report()
    sys.stdout.buffer.write(msgspec.json.encode(report))


if __name__ == "__main__":
    from testbed.subjects import subject_of

    main(subject_of)
