"""An agent's journal and its history's worker in one process, on a state directory."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nodevitals.exposition import Source
from nodevitals.linux.host import Host
from nodevitals.probe import Family, ProbeError, Readings
from nodevitals.state import database, tables
from nodevitals.state.history import HistoryProbe, HistoryProbeSettings
from nodevitals.state.journal import Journal
from nodevitals.state.records import Reply, Row
from nodevitals.wire import MAX_STATE_BYTES, Condition, Sample, decode, encode

EVENTS = Family(
    name="nodevitals_test_events_total", kind="counter", help="Events.", labels=("kind",)
)
SOURCES = (Source("plain", "t", "kept"), Source("lasting", "t", "kept"))
STATE_KEY = ("lasting", "t")
KINDS = 20
DEVICES = 40
BOOT = "11111111-2222-3333-4444-555555555555"


Counters = dict[tuple[Source, tuple[str, ...]], float]


class LastingState(msgspec.Struct):
    """The state of the persistent probe."""

    sequence: int
    names: list[str]


class StateAgent:
    """The part of an agent that keeps counters: `journal`, and the worker that writes them."""

    def __init__(self, directory: Path, boot_id: str = BOOT) -> None:
        self.journal = Journal({EVENTS.name: EVENTS}, boot_id, {"lasting": LastingState})
        settings = HistoryProbeSettings(
            state_directory=str(directory), max_age=90 * 86400.0, max_rows=10_000
        )
        self._probe = HistoryProbe(Host(), settings, "history")
        before = signal.getsignal(signal.SIGTERM)
        self._probe.open()
        signal.signal(signal.SIGTERM, before)
        self.directory = str(directory)
        self.lost: list[str] = []
        self.failures: list[ProbeError] = []

    def write(self) -> None:
        """Send what waits to the worker, as the supervisor does, until nothing waits."""
        for _ in range(20):
            self._run()
            if not self.journal.unwritten() and self.journal.ready:
                return
        raise AssertionError("there is no end of batches")

    def _run(self) -> None:
        self._probe.state = decode(encode(self.journal.take()), HistoryProbe.State)
        try:
            self._probe.run(Readings(families=HistoryProbe.families))
        except ProbeError as error:
            self.failures.append(error)
            self._probe.close()
            self.journal.requeue()
            return
        state = encode(self._probe.state)
        assert len(state) <= MAX_STATE_BYTES, "a worker would not send it"
        reply = decode(state, Reply)
        self.lost += [reply.lost] if reply.lost else []
        self.journal.written(reply)

    def counters(self) -> Counters:
        """What is exposed."""
        return {
            (source, sample.labels): sample.value
            for source in SOURCES
            for sample in self.journal.totals(source)
        }

    def rows(self) -> list[Row]:
        """The history, as the command reads it."""
        with tables.open_for_reading(self.directory) as connection:
            return database.query(connection)

    def close(self) -> None:
        """End as an agent that is stopped."""
        self._probe.close()


@contextmanager
def state_agent(directory: Path, boot_id: str = BOOT) -> Iterator[StateAgent]:
    """An agent whose state is loaded."""
    agent = StateAgent(directory, boot_id)
    try:
        agent.write()
        yield agent
    finally:
        agent.close()


def fill(directory: Path) -> None:
    """Write counters, a state and a history; the values of the counters are all different."""
    with state_agent(directory) as agent:
        for at, source in enumerate(SOURCES):
            agent.journal.add(
                source,
                [Sample(EVENTS.name, (f"kind {n}",), 1000.5 + 100 * at + n) for n in range(KINDS)],
            )
        state = LastingState(7, [f"name {n}" for n in range(300)])
        agent.journal.save_state(STATE_KEY, encode(state))
        for moment in (1.7e9, 1.7e9 + 60):
            conditions = [
                Condition(f"device {n}", f"state {moment}", "x" * n) for n in range(DEVICES)
            ]
            agent.journal.observe(moment, "plain", conditions)
        agent.write()


class DamagedState:
    """A state directory whose database is damaged again and again, always from the same one."""

    def __init__(self, directory: Path) -> None:
        fill(directory)
        self.directory = directory
        self.original = (directory / tables.FILE_NAME).read_bytes()
        with state_agent(directory) as agent:
            self.whole = self._content(agent)

    def _content(self, agent: StateAgent) -> tuple[Counters, bytes, list[Row]]:
        assert not agent.failures, agent.failures
        return agent.counters(), agent.journal.saved_state(STATE_KEY), agent.rows()

    def lost_after(self, damaged: bytes, values: bool = False) -> list[str]:
        """Start an agent on a damaged database, and then another one. Assert that the file is set
        aside with a report, once, or has all that was written, except for `values` that SQLite
        does not check. Returns the report.
        """
        for file in self.directory.iterdir():
            file.unlink()
        (self.directory / tables.FILE_NAME).write_bytes(damaged)
        with state_agent(self.directory) as agent:
            content = self._content(agent)
            if agent.lost:
                assert content == ({}, b"", [])
            elif not values:
                assert content == self.whole
            agent.journal.add(SOURCES[0], [Sample(EVENTS.name, ("kind 1",), 1.0)])
            agent.write()
            counters, report = agent.counters(), agent.lost
        with state_agent(self.directory) as agent:
            assert self._content(agent)[0] == counters
            assert not agent.lost, agent.lost
        return report


def changed(content: bytes, at: int, bits: int) -> bytes:
    """The content with some bits of one byte changed."""
    return content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :]
