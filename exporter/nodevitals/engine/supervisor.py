"""The loop: what is due is started, what is late is ended, what arrives is rendered.

In: the configuration's targets, the clock, and what workers say. Out: the snapshot. It runs on
the main thread, never blocks but in `select`, and touches nothing that can hang.
"""

from __future__ import annotations

import logging
import selectors
import signal
from collections.abc import Iterable, Mapping

from nodevitals.catalogue import (
    PROBE_DURATION,
    PROBE_INTERVAL,
    PROBE_LAST_SUCCESS,
    PROBE_RUNS,
    PROBE_STUCK,
    PROBE_SUCCESS,
    WORKER_PROCESSES,
)
from nodevitals.engine.channel import Worker
from nodevitals.engine.lifecycle import Command, Phase, stable_fraction
from nodevitals.engine.processes import Processes
from nodevitals.engine.protocol import Job, ProtocolError, Run, decode, encode
from nodevitals.engine.target import Target, TargetSpec
from nodevitals.exposition import InvalidSampleError, Snapshot, Source, render_samples
from nodevitals.linux.host import Clock, Host, node_name
from nodevitals.probe import (
    OUTCOMES,
    Condition,
    Family,
    Outcome,
    ProbeResult,
    Sample,
    clipped,
)
from nodevitals.state.journal import Journal, Reply

PUBLISH_SECONDS = 0.1
TICK_SECONDS = 0.25
REFRESH_SECONDS = 1.0

log = logging.getLogger(__name__)


class Supervisor:
    """Runs targets until told to stop."""

    def __init__(
        self,
        host: Host,
        families: Mapping[str, Family],
        snapshot: Snapshot,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._host = host
        self._clock = clock
        self._families = families
        self.snapshot = snapshot
        self.journal = journal
        self.selector = selectors.DefaultSelector()
        self.processes = Processes(self.selector, self._clock)
        self.targets: dict[tuple[str, str], Target] = {}
        self._retired: list[Target] = []
        self._next_refresh = 0.0
        self._next_publish = 0.0
        self.last_tick = self._clock.monotonic()
        self.waiting: tuple[str, ...] = ("everything",)
        """Targets without a result in what is published; for other threads, as is `last_tick`."""

    def apply(self, specs: Iterable[TargetSpec]) -> None:
        """Make these the targets: the same go on, others end, new ones start."""
        now = self._clock.monotonic()
        wanted = {spec.key: spec for spec in specs}
        for key, target in list(self.targets.items()):
            if key not in wanted:
                self._retire(self.targets.pop(key), now)
            elif wanted[key] != target.spec:
                target.change(wanted[key], now)
                self._show_status(target, now)
        for key, spec in wanted.items():
            if key not in self.targets:
                target = Target(spec, stable_fraction(node_name(), *key), now)
                target.carry = self.journal.recall(key)
                self.targets[key] = target
                for outcome in OUTCOMES:
                    self._count(target, outcome, 0)
                self._show_status(target, now)

    def step(self) -> None:
        """Once around: wait for what comes next, take it in, do what is due."""
        for key, _ in self.selector.select(self._patience()):
            key.data()
        now = self._clock.monotonic()
        self.last_tick = now
        self.processes.tick()
        for target in self._awake():
            command = target.lifecycle.command(now)
            if command is not None:
                self._obey(target, command, now)
        self._retired = [target for target in self._retired if not target.lifecycle.gone]
        if now >= self._next_refresh:
            self._next_refresh = now + REFRESH_SECONDS
            self._refresh(now)
        self._hurry_history(now)
        if self.snapshot.changed and now >= self._next_publish:
            self._next_publish = now + PUBLISH_SECONDS
            self.snapshot.publish(now)
            self.waiting = tuple(self.unfinished())

    def flush_history(self) -> None:
        """Send the history's worker what it has not got; it writes on after our end."""
        for target in self.targets.values():
            alive = target.lifecycle.phase in (Phase.IDLE, Phase.RUNNING)
            if _is_history(target) and alive and target.worker is not None:
                target.worker.send(Run(encode(self.journal.take())))

    def unfinished(self) -> list[str]:
        """The targets that have not ended a first run, as probe/target."""
        return ["/".join(target.spec.key) for target in self.targets.values() if not target.last]

    def _patience(self) -> float:
        now = self._clock.monotonic()
        times = [now + TICK_SECONDS, self._next_refresh]
        times += [target.lifecycle.wake for target in self._awake()]
        if self.snapshot.changed:
            times.append(self._next_publish)
        return max(0.0, min(times) - now)

    def _awake(self) -> list[Target]:
        """All targets, but those whose memory may still be loaded."""
        awake = [t for t in self.targets.values() if self.journal.ready or not t.spec.remembers]
        return awake + self._retired

    def _obey(self, target: Target, command: Command, now: float) -> None:
        if command is Command.START:
            self._start(target, now)
        elif command is Command.RUN:
            self._run(target)
        elif command is Command.ABANDON:
            if target.lifecycle.overdue(now):
                text = "not gone after KILL; it will not be started again until it is"
                self._ended(target, ProbeResult(outcome="stuck", reason="stuck", message=text))
        elif target.worker is not None:
            number = signal.SIGTERM if command is Command.TERM else signal.SIGKILL
            self.processes.signal(target.worker, number)
        self._show_status(target, now)

    def _start(self, target: Target, now: float) -> None:
        key = target.spec.key
        if any(old.spec.key == key for old in self._retired):
            # Taken out of the configuration and back in, with its last process still alive.
            target.lifecycle.exited(now)
            return
        spec = target.spec
        job = Job(spec.probe, spec.target, spec.settings, self._host, spec.resident, spec.required)
        target.fault = ""
        try:
            worker = target.worker = self.processes.spawn(job)
        except OSError as error:
            target.lifecycle.exited(now)
            self._ended(target, _failure("spawn", f"cannot start a worker: {error.strerror}"))
            return
        worker.on_result = lambda result: self._on_result(target, result)
        worker.on_garbage = lambda what: self._on_garbage(target, what)
        worker.on_exit = lambda how: self._on_exit(target, worker, how)
        self._run(target)

    def _run(self, target: Target) -> None:
        assert target.worker is not None
        forgotten = self.journal.forgotten(target.spec.probe)
        if _is_history(target):
            target.worker.send(Run(encode(self.journal.take())))
        else:
            target.worker.send(Run(target.carry, target.letters(), forgotten))

    def _on_result(self, target: Target, result: ProbeResult) -> None:
        now = self._clock.monotonic()
        if target.lifecycle.phase in (Phase.IDLE, Phase.LINGERING) and target.worker is not None:
            target.worker.close_channel()
            self._on_garbage(target, "a result that nobody asked for")
        if target.lifecycle.phase is not Phase.RUNNING or target.fault:
            return  # past its deadline: the run has been judged
        result = clipped(result)
        target.lifecycle.answered(now, result.stays)
        self._ended(target, self._checked(target, result))
        self._show_status(target, now)

    def _on_garbage(self, target: Target, what: str) -> None:
        target.fault = what
        target.lifecycle.broke(self._clock.monotonic())

    def _on_exit(self, target: Target, worker: Worker, how: str) -> None:
        now = self._clock.monotonic()
        target.worker = None
        late = target.lifecycle.overdue(now)
        stuck = target.lifecycle.phase is Phase.STUCK
        if target.lifecycle.exited(now, worker.adopted) and not stuck and not target.lifecycle.gone:
            words = worker.words()
            if target.fault:
                result = _failure("garbage", target.fault)
            elif late:
                text = f"no result within {target.lifecycle.allowed_seconds:g} s; {how}"
                result = ProbeResult(
                    outcome="timeout", reason="timeout", message=text, duration_seconds=late
                )
            else:
                result = _failure("worker_died", f"{how} without a result", words)
            self._ended(target, result)
        self._show_status(target, now)

    def _checked(self, target: Target, result: ProbeResult) -> ProbeResult:
        """Take a result's readings in, or say why they are not those of this probe."""
        now = self._clock.monotonic()
        own = {name: self._families[name] for name in target.spec.families}
        try:
            lines = render_samples(own, result.samples)
            self.journal.add(target.kept, result.increments)
        except InvalidSampleError as error:
            return _failure("invalid", str(error))
        self._take_along(target, result)
        if lines or result.outcome in ("ok", "absent"):
            target.fresh_until = now + target.spec.timing.stale_after_seconds
            self.snapshot.put(target.readings, lines)
        self._show_kept(target)
        self.journal.observe(self._clock.time(), target.spec.probe, result.conditions)
        self.journal.note(self._clock.time(), target.spec.probe, result.events)
        return result

    def _take_along(self, target: Target, result: ProbeResult) -> None:
        """Keep what the run has left for the next one, and deliver its letters."""
        if target.spec.remembers and result.carry:
            self.journal.remember(target.spec.key, result.carry)
        if not _is_history(target) and (result.carry or not target.spec.remembers):
            target.carry = result.carry
        target.unanswered = []
        for letter in result.letters:
            for other in self.targets.values():
                if other.spec.probe == letter.probe:
                    other.deliver(letter.body)

    def _ended(self, target: Target, result: ProbeResult) -> None:
        """A run has ended, one way or another: count it, remember it, tell of a change."""
        now = self._clock.time()
        target.last = result
        if result.outcome == "ok":
            target.last_success = now
        if _is_history(target):
            self._settle_journal(result)
        self._count(target, result.outcome, 1)
        state = "ok" if result.outcome == "ok" else result.reason or result.outcome
        self.journal.observe(
            now, target.spec.probe, [Condition(target.spec.target, state, result.message)]
        )
        if state != target.said:
            self._tell(target, result, state)
            target.said = state

    def _tell(self, target: Target, result: ProbeResult, state: str) -> None:
        name = " ".join(dict.fromkeys(target.spec.key))
        if result.outcome in ("ok", "absent"):
            log.info("%s: %s", name, f"{state} {result.message}".rstrip())
        else:
            log.warning("%s: %s (%s): %s", name, result.outcome, state, result.message)
        if result.trace:
            log.warning("%s: %s", name, result.trace.rstrip())

    def _settle_journal(self, result: ProbeResult) -> None:
        try:
            reply = decode(result.carry, Reply) if result.outcome == "ok" else None
        except ProtocolError:
            reply = None
        became_ready = self.journal.give_back() if reply is None else self.journal.written(reply)
        if became_ready:
            for target in self.targets.values():
                if target.spec.remembers:
                    target.carry = self.journal.recall(target.spec.key)
                self._show_kept(target)

    def _hurry_history(self, now: float) -> None:
        for target in self.targets.values():
            healthy = target.last is None or target.last.outcome == "ok"
            if _is_history(target) and healthy and self.journal.pending():
                target.lifecycle.hurry(now)

    def _count(self, target: Target, outcome: Outcome, amount: int) -> None:
        labels = (*target.spec.key, outcome)
        sample = Sample(PROBE_RUNS.name, labels, amount)
        # Counting a write must not ask for another one.
        self.journal.add(target.kept, [sample], urgent=not _is_history(target))
        self._show_kept(target)

    def _show_kept(self, target: Target) -> None:
        absent = target.last is not None and target.last.outcome == "absent"
        totals = [] if absent else self.journal.totals(target.kept)
        self.snapshot.put(target.kept, render_samples(self._families, totals))

    def _show_status(self, target: Target, now: float) -> None:
        if target.lifecycle.gone or target.spec.key not in self.targets:
            return
        last = target.last
        if last is not None and last.outcome == "absent":
            self.snapshot.put(target.status, {})  # nothing there and nothing asked for: no target
            return
        overdue = target.lifecycle.overdue(now)
        fresh = last is not None and last.outcome == "ok" and now < target.fresh_until
        values: list[tuple[Family, float | None]] = [
            (PROBE_SUCCESS, float(fresh and not overdue)),
            (PROBE_INTERVAL, target.spec.timing.interval_seconds),
            (PROBE_STUCK, round(overdue, 3)),
            (PROBE_DURATION, last.duration_seconds if last is not None else None),
            (PROBE_LAST_SUCCESS, target.last_success),
        ]
        samples = [
            Sample(family.name, target.spec.key, value)
            for family, value in values
            if value is not None
        ]
        self.snapshot.put(target.status, render_samples(self._families, samples))

    def _refresh(self, now: float) -> None:
        """Once a second: what changes by time alone."""
        for target in self.targets.values():
            stale = now >= target.fresh_until
            if stale:
                self.snapshot.drop(target.readings)
            if stale or target.lifecycle.overdue(now):
                self._show_status(target, now)
        everyone = [*self.targets.values(), *self._retired]
        stuck = sum(target.lifecycle.phase is Phase.STUCK for target in everyone)
        counts = {"live": self.processes.count() - stuck, "stuck": stuck}
        samples = [
            Sample(WORKER_PROCESSES.name, (state,), count) for state, count in counts.items()
        ]
        source = Source("agent", "", "workers")
        self.snapshot.put(source, render_samples(self._families, samples))

    def _retire(self, target: Target, now: float) -> None:
        target.lifecycle.retire(now)
        for source in (target.readings, target.status, target.kept):
            self.snapshot.drop(source)
        if not target.lifecycle.gone:
            self._retired.append(target)


def _is_history(target: Target) -> bool:
    return target.spec.probe == "history"


def _failure(reason: str, message: str, trace: str = "") -> ProbeResult:
    return ProbeResult(outcome="error", reason=reason, message=message, trace=trace)
