"""The agent's loop: it starts due runs, ends late ones, and renders results.

In: the configuration's targets, the clock, and the workers' results. Out: the snapshot. It runs in
the main thread, blocks only in `select`, and uses nothing that can hang.
"""

from __future__ import annotations

import math
import selectors
import signal
from collections.abc import Callable, Iterable

from nodevitals.engine.channel import Worker
from nodevitals.engine.lifecycle import Command, Phase
from nodevitals.engine.loader import Loader
from nodevitals.engine.processes import Processes
from nodevitals.engine.protocol import Files, Job, Loaded, Run, TargetSpec
from nodevitals.engine.results import (
    Intake,
    Status,
    TargetView,
    failure,
    has_news,
    state_of,
    stuck,
    timeout,
    without_readings,
)
from nodevitals.engine.schedule import Leases, Publisher, Schedule
from nodevitals.engine.target import Target, input_of
from nodevitals.exposition import InvalidSampleError, Snapshot
from nodevitals.linux.host import Clock, Host, node_name, stable_fraction
from nodevitals.state.history import HistoryProbe
from nodevitals.state.journal import Journal
from nodevitals.wire import LEASES, Condition, ProbeResult, Wanted

# After this share of its allowed time, a run reports what it has read. The rest is for the report.
REPORT_SHARE = 0.9
# Shortest time between two runs that a process asks for; their results are published as those of a
# target with this interval.
PROMPT_SECONDS = 1.0
# The longest sleep, below `agent.HEALTHY_TICK_SECONDS`: `/healthz` fails after a longer one.
TICK_SECONDS = 5.0


class Supervisor:
    """Runs targets until the agent stops."""

    def __init__(
        self,
        host: Host,
        snapshot: Snapshot,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._host = host
        self._clock = clock
        self.snapshot = snapshot
        self.journal = journal
        self.selector = selectors.DefaultSelector()
        self.processes = Processes(self.selector, self._clock)
        self.loader = Loader(self.processes, self._clock)
        self.targets: dict[tuple[str, str], Target] = {}
        self._retired: list[Target] = []
        self._schedule = Schedule(self.processes.room)
        self.processes.on_wanted = self._on_wanted
        self._intake = Intake(snapshot, journal)
        self._status = Status(snapshot, journal)
        self._leases = Leases()
        self._stuck = 0
        self._publisher = Publisher(snapshot)
        self.keep_readings = True
        """Whether a target's last result has what the run has read: 1 MiB with every probe on."""
        self.last_tick = self._clock.monotonic()
        self.waiting: tuple[str, ...] = ("everything",)
        """Targets without a result in what is published; for other threads, as is `last_tick`."""
        self.views: tuple[TargetView, ...] = ()
        """What people are shown of what is published; for other threads."""

    def load(self, files: Files, stopping: Callable[[], bool]) -> Loaded | None:
        """Load these files before there is a target; None where `stopping` returns true first. It
        is called whenever anything arrives.
        """
        results: list[Loaded] = []
        self.loader.start(files, results.append)
        while not results and not stopping():
            wake = min(self.loader.wake, self.processes.wake)
            for key, _ in self.selector.select(max(0.0, wake - self._clock.monotonic())):
                key.data()
            self.processes.tick()
            self.loader.tick()
        return results[0] if results else None

    def apply(self, specs: Iterable[TargetSpec]) -> None:
        """Replace the targets: unchanged ones go on, others end, new ones start."""
        now = self._clock.monotonic()
        wanted = {spec.key: spec for spec in specs}
        for key, target in list(self.targets.items()):
            if key not in wanted:
                self._retire(self.targets.pop(key), now)
            elif wanted[key] != target.spec:
                target.change(wanted[key], now)
                self._status.show(target, now)
                self._schedule.plan(target, now)
        for key, spec in wanted.items():
            if key not in self.targets:
                spread = stable_fraction(node_name(), *key)
                target = Target(spec, input_of(spec, self.journal), spread, now)
                self.targets[key] = target
                self._status.begin(target, now)
                self._schedule.plan(target, now)

    def step(self, until: float = math.inf) -> None:
        """Run the loop once: wait for the next event, at most until `until`; handle what is due."""
        for key, _ in self.selector.select(self._patience(until)):
            key.data()
        now = self._clock.monotonic()
        self.last_tick = now
        self.processes.tick()
        self.loader.tick()
        self._hurry_history(now)
        if self._leases.expired(now):
            self._pace_all(now)
        if self._schedule.loading and self.journal.ready:
            self._schedule.loading = False
            for target in self.targets.values():
                self._schedule.plan(target, now)
        for target in self._schedule.due(now):
            self._attend(target, now)
        self._status.show_changes(self.targets)
        stuck = self._stuck + self.loader.stuck
        self._status.show_workers(self.processes.count() - stuck, stuck)
        if self._publisher.publish(now, eager=bool(self.waiting)):
            self.waiting = tuple(self.unfinished())
            self.views = self._status.views()

    def _hurry_history(self, now: float) -> None:
        target = self.targets.get((HistoryProbe.name, HistoryProbe.name))
        if target is None or not target.input.pending():
            return
        if target.last is None or target.last.outcome == "ok":
            target.lifecycle.hurry(now)
            self._schedule.plan(target, now)

    def _attend(self, target: Target, now: float) -> None:
        """Handle what is due for one target."""
        if not self._schedule.hold(target, now):
            command = target.lifecycle.command(now, target.delivered_signal())
            if command is not None:
                self._execute(target, command, now)
        stale = -math.inf < target.fresh_until <= now
        if stale:
            target.fresh_until = -math.inf
            self.snapshot.drop(target.readings)
        if stale or now >= target.show_overdue_at:
            self._show(target, now)
        self._schedule.plan(target, now)

    def flush(self) -> None:
        """Before the agent ends, send pending input to the workers, which still write it."""
        for target in self.targets.values():
            alive = target.lifecycle.phase in (Phase.IDLE, Phase.RUNNING)
            if target.input.unsent() and alive and target.worker is not None:
                target.worker.send(Run(state=target.input.take()))

    def unfinished(self) -> list[str]:
        """The targets that have not ended a first run, as probe/target."""
        return ["/".join(target.spec.key) for target in self.targets.values() if not target.last]

    def _patience(self, until: float) -> float:
        now = self._clock.monotonic()
        times = [
            until,
            now + TICK_SECONDS,
            self.processes.wake,
            self._schedule.wake(now),
            self._leases.wake,
            self.loader.wake,
        ]
        if self.snapshot.changed:
            times.append(self._publisher.wake)
        return max(0.0, min(times) - now)

    def _execute(self, target: Target, command: Command, now: float) -> None:
        if command is Command.START:
            self._start(target, now)
        elif command is Command.RUN:
            self._run(target)
        elif command is Command.ABANDON:
            self._stuck += 1
            if target.lifecycle.overdue(now):
                self._ended(target, stuck(target))
        elif target.worker is not None:
            number = signal.SIGTERM if command is Command.TERM else signal.SIGKILL
            self.processes.signal(target.worker, number)
        if command is Command.TERM:
            self._show(target, now)

    def _start(self, target: Target, now: float) -> None:
        spec = target.spec
        if any(old.spec.key == spec.key for old in self._retired):
            # The target was removed from the configuration and is back; its old process lives.
            target.lifecycle.exited(now)
            return
        if spec.problem:
            target.lifecycle.exited(now)
            self._ended(target, failure("unusable", spec.problem))
            return
        job = Job(
            probe=spec.probe,
            target=spec.target,
            settings=spec.settings,
            timing=spec.timing,
            host=self._host,
            required=spec.required,
            shared=spec.shared,
        )
        target.garbage = ""
        target.shares = spec.shared
        try:
            worker = target.worker = self.processes.spawn(reuse=spec.shared and not target.failing)
        except OSError as error:
            target.lifecycle.exited(now)
            self._ended(target, failure("spawn", f"cannot start a worker: {error.strerror}"))
            return
        worker.on_result = lambda result: self._on_result(target, result)
        worker.on_garbage = lambda what: self._on_garbage(target, what)
        worker.on_exit = lambda how: self._on_exit(target, worker, how)
        self._run(target, job)

    def _run(self, target: Target, *before: Job) -> None:
        assert target.worker is not None
        run = Run(
            state=target.input.take(),
            received=target.messages(),
            forgotten=self.journal.forgotten(target.spec.probe),
            report_at=target.lifecycle.began + REPORT_SHARE * target.lifecycle.allowed_seconds,
            interrupted=tuple(target.interrupted),
        )
        target.unfinished_at = ""
        target.worker.send(*before, run)

    def _on_wanted(self, wanted: Wanted) -> None:
        target = self.targets.get((wanted.probe, wanted.target))
        if target is not None:
            self._prompt(target, self._clock.monotonic())

    def _prompt(self, target: Target, now: float) -> None:
        """Soon run a target that has something to read. The rate is limited: a process whose memory
        is damaged may ask for that again and again.
        """
        if target.spec.prompt:
            target.lifecycle.hurry(max(now, target.lifecycle.began + PROMPT_SECONDS))
            self._schedule.plan(target, now)

    def _on_result(self, target: Target, result: ProbeResult) -> None:
        now = self._clock.monotonic()
        if target.lifecycle.phase in (Phase.IDLE, Phase.LINGERING) and target.worker is not None:
            target.worker.close_channel()
            self._on_garbage(target, "a result without a run")
        running = target.lifecycle.phase is Phase.RUNNING
        if target.garbage:
            return
        mine = self.targets.get(target.spec.key) is target
        if result.unfinished_at and mine and (running or target.lifecycle.overdue(now)):
            try:
                self._intake.unfinished(target, result, now)
            except InvalidSampleError as error:
                if running:
                    self._on_garbage(target, str(error))
            self._schedule.plan(target, now)
        if result.unfinished_at or not running:
            return  # past its deadline: the run already has a result
        target.finished()
        target.lifecycle.answered(now, result.stays and not target.shares)
        if target.has_news:  # it came during this run
            self._prompt(target, now)
        taken = self._intake.finished(target, result, now, self._clock.time())
        if taken is result:
            self._deliver(target, result, now)
        self._ended(target, taken)
        if target.shares and result.stays and target.worker is not None:
            if taken is result:
                worker, target.worker = target.worker, None
                target.lifecycle.exited(now)
                self.processes.release(worker)
            else:
                target.worker.close_channel()  # its memory may be damaged: this ends it
        self._schedule.plan(target, now)

    def _on_garbage(self, target: Target, what: str) -> None:
        now = self._clock.monotonic()
        target.garbage = what
        target.lifecycle.broke(now)
        self._schedule.plan(target, now)

    def _on_exit(self, target: Target, worker: Worker, how: str) -> None:
        now = self._clock.monotonic()
        target.worker = None
        late = target.lifecycle.overdue(now)
        was_stuck = target.lifecycle.phase is Phase.STUCK
        self._stuck -= was_stuck
        # The next run skips, or reads last, what this one hung in; or the call that no signal
        # could end has returned.
        again = worker.adopted or target.was_interrupted() or was_stuck
        if target.lifecycle.exited(now, again) and not was_stuck and not target.lifecycle.gone:
            stderr = worker.stderr_tail()
            if target.garbage:
                result = failure("garbage", target.garbage)
            elif late:
                result = timeout(target, late, how)
            else:
                result = failure("worker_died", f"{how} without a result", stderr)
            self._ended(target, result)
        if target.lifecycle.gone:
            self._retired.remove(target)
            target = self.targets.get(target.spec.key, target)
            target.lifecycle.hurry(now, waited=True)  # its runs waited for the end of this process
        self._show(target, now)
        self._schedule.plan(target, now)

    def _deliver(self, sender: Target, result: ProbeResult, now: float) -> None:
        for message in result.messages:
            if message.probe == LEASES:
                reply = self._leases.take(sender, message.body, self.targets.values(), now)
                sender.deliver(LEASES, reply)
                sender.lifecycle.hurry(now)
                self._pace_all(now)
            for other in self.targets.values():
                if other.spec.probe == message.probe:
                    other.deliver(sender.spec.probe, message.body)
                    if other.has_news:
                        self._prompt(other, now)

    def _pace_all(self, now: float) -> None:
        for target in self.targets.values():
            if self._pace(target, now):
                self._show(target, now)
                self._schedule.plan(target, now)

    def _pace(self, target: Target, now: float) -> bool:
        """Set a target's interval by the lease or its configuration. Returns whether it changed."""
        before = target.lifecycle.interval_seconds
        target.lifecycle.pace(self._leases.interval(target, now), now)
        return target.lifecycle.interval_seconds != before

    def _ended(self, target: Target, result: ProbeResult) -> None:
        """Handle the end of a run, with a result or without one."""
        if self.targets.get(target.spec.key) is not target:
            return  # retired; another target may have its name
        now = self._clock.time()
        target.ended_at = self._clock.monotonic()
        changed = target.last is None or target.last.outcome != result.outcome
        target.last = result if self.keep_readings else without_readings(result)
        if changed or has_news(result):
            interval = target.lifecycle.interval_seconds
            soon = min(interval, PROMPT_SECONDS) if self._is_prompt(target) else interval
            self._publisher.expect(target.ended_at, soon)
        if result.outcome == "ok":
            target.last_success = now
        target.ended(result)
        target.input.settle(result)
        self._status.count(target, result.outcome, changed and target.input.urgent)
        # A probe may have a device with its target's name: it must not get two rows per run.
        if target.spec.target not in {condition.device for condition in result.conditions}:
            condition = Condition(target.spec.target, state_of(result), result.text)
            self.journal.observe(now, target.spec.probe, [condition])
        self._status.log(target, result)
        self._pace(target, target.ended_at)
        self._show(target, target.ended_at)

    def _is_prompt(self, target: Target) -> bool:
        """Whether the target's result, or a written count, must be exposed soon."""
        if target.spec.probe != HistoryProbe.name:
            return target.spec.prompt
        written = (
            self.targets.get((source.probe, source.target))
            for source in self.journal.urgent_in_batch
        )
        return any(target is not None and target.spec.prompt for target in written)

    def _show(self, target: Target, now: float) -> None:
        if self.targets.get(target.spec.key) is target:
            self._status.show(target, now)

    def _retire(self, target: Target, now: float) -> None:
        target.lifecycle.retire(now)
        self._status.remove(target)
        target.fresh_until = -math.inf
        if target.spec.probe == HistoryProbe.name:
            self.journal.requeue()  # nothing more will be loaded or written
        if not target.lifecycle.gone:
            self._retired.append(target)
        self._schedule.plan(target, now)
