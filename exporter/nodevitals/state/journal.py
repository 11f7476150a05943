"""The agent's counters, the states of probes, and history rows that are not yet on disk.

The agent itself writes no file: it sends a `Batch` to the history's worker when there is something
to write and the worker is idle. When the worker fails, the batch is queued again. The number of
waiting rows is limited: beyond that, the oldest are dropped and counted. Totals are absolute, so
only the newest is kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from nodevitals.exposition import InvalidSampleError, Source
from nodevitals.probe import Family
from nodevitals.state.records import (
    FORGOTTEN,
    Batch,
    Reply,
    Row,
    SavedState,
    Total,
    fitting,
)
from nodevitals.wire import Condition, Event, ProtocolError, Sample, decode

MAX_WAITING_ROWS = 2000
MAX_BATCH_ROWS = 500
MAX_BATCH_TOTALS = 5000
# Limits the memory for a probe that counts by a label with ever new values.
MAX_COUNTERS_PER_SOURCE = 10_000
MAX_FORGOTTEN = 1000
# Sums of such increments stay finite.
MAX_INCREMENT = 1e30
MAX_NAMED = 5
# 9999-12-31; later times cannot be printed.
_LAST_TIME = 253_402_214_400.0

log = logging.getLogger(__name__)
_Key = tuple[str, tuple[str, ...]]


class Journal:
    """Counters, states and pending rows. Used only by the supervisor's thread."""

    def __init__(
        self,
        families: Mapping[str, Family],
        boot_id: str,
        state_types: Mapping[str, Any] | None = None,
    ) -> None:
        """`state_types` are the States of the persistent probes, by the probe's name."""
        self._families = families
        self._state_types = state_types or {}
        self._boot_id = boot_id
        self._totals: dict[Source, dict[_Key, float]] = {}
        # The exposed values. A total is exposed after it was written: otherwise the counter would
        # fall when the agent is killed before the write and starts again.
        self._exposed: dict[Source, dict[_Key, float]] = {}
        self._changed: set[Source] = set()
        self._may_wait = False
        """Whether counts wait until they are written: the last batch was."""
        self._unwritten: set[tuple[Source, _Key]] = set()
        self._urgent_sources: set[Source] = set()
        self.urgent_in_batch: set[Source] = set()
        """The sources whose urgent counts are in the batch that was taken last."""
        self._saved_states: dict[tuple[str, str], bytes] = {}
        self._unwritten_states: set[tuple[str, str]] = set()
        # Whether a run that started after the retirement has received it.
        self._forgotten: dict[tuple[str, str], bool] = {}
        self._rows: deque[Row] = deque()
        self._states: dict[tuple[str, str], str] = {}
        self._urgent = False
        self._sent: Batch | None = None
        self._loaded = False
        self.ready = False
        """Whether counters may be exposed: they are loaded, or cannot be loaded. A counter exposed
        at 0 and then raised to the value of an earlier agent would be a false increase."""
        self.dropped_rows = 0

    def observe(self, now: float, probe: str, conditions: Iterable[Condition]) -> None:
        """Record the states of devices; each change becomes a row."""
        for condition in conditions:
            key = (probe, condition.device)
            if self._forgotten.get(key) is False:
                continue  # from a run that started before the device was retired
            if self._states.get(key) != condition.state:
                self._states[key] = condition.state
                self._forgotten.pop(key, None)
                self._append(Row(now, probe, condition.device, condition.state, condition.detail))

    def note(self, now: float, probe: str, events: Iterable[Event]) -> None:
        """Record events; each becomes a row."""
        for event in events:
            moment = event.time if 0 < event.time < _LAST_TIME else now
            self._append(Row(moment, probe, event.device, event.state, event.detail))

    def _append(self, row: Row) -> None:
        self._rows.append(row)
        self._urgent = True
        while len(self._rows) > MAX_WAITING_ROWS:
            self._rows.popleft()
            self.dropped_rows += 1

    def add(self, source: Source, increments: Iterable[Sample], urgent: bool = True) -> None:
        """Add to a source's counters. They are exposed once they are written: urgent ones at once,
        the others with the next batch.

        Raises InvalidSampleError for a sample that does not fit a counter.
        """
        checked = [(self._key(sample), sample.value) for sample in increments]
        totals = self._totals.setdefault(source, {})
        if len(totals) + sum(key not in totals for key, _ in checked) > MAX_COUNTERS_PER_SOURCE:
            raise InvalidSampleError(f"over {MAX_COUNTERS_PER_SOURCE} counters")
        for key, amount in checked:
            if amount or key not in totals:
                totals[key] = totals.get(key, 0.0) + amount
                self._unwritten.add((source, key))
                self._urgent = self._urgent or urgent
                if urgent:
                    self._urgent_sources.add(source)
                if not self._may_wait or not amount:
                    self._expose(source, key, totals[key])

    def _expose(self, source: Source, key: _Key, value: float) -> None:
        self._exposed.setdefault(source, {})[key] = value
        self._changed.add(source)

    def _expose_all(self) -> None:
        for source, totals in self._totals.items():
            self._exposed[source] = dict(totals)
            self._changed.add(source)

    def changed_sources(self) -> set[Source]:
        """The sources whose exposed counters have changed since the last call; none until
        `ready`.
        """
        if not self.ready:
            return set()
        changed, self._changed = self._changed, set()
        return changed

    def _key(self, sample: Sample) -> _Key:
        family = self._families.get(sample.family)
        if family is None or family.kind != "counter" or not family.accepts(sample.labels):
            raise InvalidSampleError(f"{sample.family}{sample.labels} is not a declared counter")
        if not 0 <= sample.value <= MAX_INCREMENT:  # not true of NaN
            raise InvalidSampleError(f"{sample.family} cannot be increased by {sample.value}")
        return sample.family, sample.labels

    def totals(self, source: Source) -> list[Sample]:
        """A source's exposed counters as samples; empty until `ready`."""
        if not self.ready:
            return []
        return [
            Sample(family, labels, value)
            for (family, labels), value in sorted(self._exposed.get(source, {}).items())
        ]

    def save_state(self, key: tuple[str, str], state: bytes) -> None:
        """Keep the state of a target. It is written with the next batch."""
        if self._saved_states.get(key) != state:
            self._saved_states[key] = state
            self._unwritten_states.add(key)

    def saved_state(self, key: tuple[str, str]) -> bytes:
        """The last state of a target; b'' if there is none."""
        return self._saved_states.get(key, b"")

    def forgotten(self, probe: str) -> tuple[str, ...]:
        """The devices of a probe that were retired and not seen since, for a run that starts."""
        devices = sorted(device for owner, device in self._forgotten if owner == probe)
        self._forgotten.update({(probe, device): True for device in devices})
        return tuple(devices)

    def pending(self) -> bool:
        """Whether there is anything to write now."""
        return self._urgent

    def unwritten(self) -> bool:
        """Whether there is anything to write, urgent or not."""
        return bool(self._rows or self._unwritten or self._unwritten_states)

    def take(self) -> Batch:
        """The next batch; kept until `written` or `requeue`."""
        rows = fitting(islice(self._rows, MAX_BATCH_ROWS))
        for _ in rows:
            self._rows.popleft()
        chosen = sorted(self._unwritten)[:MAX_BATCH_TOTALS]
        totals = fitting(Total(*source, *key, self._totals[source][key]) for source, key in chosen)
        self._unwritten.difference_update(total.counter for total in totals)
        self._urgent = bool(self._rows or self._unwritten)
        # Totals are written only after those of earlier agents are loaded: they would be
        # overwritten.
        load = not self._loaded and not self.ready
        if load:
            self._unwritten.update(total.counter for total in totals)
            self._urgent = bool(self._rows or totals)
            totals = ()
        states: tuple[SavedState, ...] = ()
        if not load and not self._unwritten:  # a state is written with all its counts, or later
            waiting = sorted(self._unwritten_states)
            states = fitting(SavedState(*key, self._saved_states[key]) for key in waiting)
            self._unwritten_states.difference_update(
                (state.probe, state.target) for state in states
            )
            self._urgent = self._urgent or bool(self._unwritten_states)
        self.urgent_in_batch = self._urgent_sources & {total.counter[0] for total in totals}
        self._urgent_sources -= self.urgent_in_batch
        replace = self.ready and not self._loaded
        self._sent = Batch(self._boot_id, rows, totals, states, load, replace)
        return self._sent

    def written(self, reply: Reply) -> None:
        """The batch is on disk, and counters are `ready` once everything is loaded."""
        if reply.lost:
            log.warning("history: %s", reply.lost)
        if not self.ready:
            if self._sent is not None and self._sent.load:
                self._load(reply)
            if reply.more:
                self._sent, self._urgent = None, True
                return
            self._expose_all()
        elif self._sent is not None:
            for total in self._sent.totals:
                source, counter = total.counter
                if total.value > self._exposed.get(source, {}).get(counter, -1.0):
                    self._expose(source, counter, total.value)
        self._may_wait = True
        self._sent = None
        if reply.opened:
            everything = ((source, key) for source, kept in self._totals.items() for key in kept)
            self._unwritten.update(everything)
            self._unwritten_states.update(self._saved_states)
        for key in reply.forgotten:
            self._forget(key)
        self.ready = self._loaded = True

    def requeue(self) -> None:
        """The batch was not written: its content goes into the next one. Counters are `ready`: they
        start at 0 where nothing can be loaded.
        """
        if self._sent is not None:
            self._rows.extendleft(reversed(self._sent.rows))
            self._unwritten.update(total.counter for total in self._sent.totals)
            self._unwritten_states.update((s.probe, s.target) for s in self._sent.states)
            self._urgent = True
            self._sent = None
        self._may_wait = False
        self._expose_all()
        self.ready = True

    def _forget(self, key: tuple[str, str]) -> None:
        self._states.pop(key, None)
        if len(self._forgotten) < MAX_FORGOTTEN:
            self._forgotten[key] = False

    def _load(self, reply: Reply) -> None:
        self._load_totals(reply.totals)
        self._load_states(reply.states)
        known = {(row.probe, row.device): row.state for row in reply.latest}
        # Rows from before the load may repeat the last row of an earlier agent.
        self._rows = deque(r for r in self._rows if known.get((r.probe, r.device)) != r.state)
        for device, state in known.items():
            if state != FORGOTTEN:
                self._states.setdefault(device, state)
            elif device not in self._states:
                self._forget(device)

    def _load_totals(self, stored: Iterable[Total]) -> None:
        unfit = []
        for total in stored:
            try:
                key = self._key(Sample(total.family, total.labels, total.value))
            except InvalidSampleError as error:
                unfit.append(str(error))
                continue
            source = Source(total.probe, total.target, total.part)
            totals = self._totals.setdefault(source, {})
            totals[key] = totals.get(key, 0.0) + total.value
            self._unwritten.add((source, key))
        if unfit:
            named = "; ".join(unfit[:MAX_NAMED])
            log.warning("history: %d stored counters are not used: %s", len(unfit), named)

    def _load_states(self, stored: Iterable[SavedState]) -> None:
        for saved in stored:
            kind = self._state_types.get(saved.probe)
            try:
                if kind is not None:
                    decode(saved.state, kind)
            except ProtocolError:
                self._restart(saved)
            else:
                self._saved_states.setdefault((saved.probe, saved.target), saved.state)

    def _restart(self, saved: SavedState) -> None:
        """Handle a lost state: the probe starts with a new one, and may count events again."""
        log.warning(
            "history: the state of %s/%s has another shape: it and its counters start anew",
            *(saved.probe, saved.target),
        )
        source = Source(saved.probe, saved.target, "kept")
        totals = self._totals.get(source, {})
        for key in totals:
            totals[key] = 0.0
            self._unwritten.add((source, key))
