"""The journal: counters never fall, and only changes of state become history rows."""

from __future__ import annotations

import pytest

from nodevitals.engine.protocol import Run
from nodevitals.exposition import InvalidSampleError, Source
from nodevitals.probe import Family
from nodevitals.state.journal import MAX_WAITING_ROWS, Journal
from nodevitals.state.records import FORGOTTEN, Reply, Row, SavedState, Total
from nodevitals.wire import (
    MAX_DETAIL_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_STATE_BYTES,
    Condition,
    Event,
    Sample,
    encode,
    frame,
)

EVENTS = Family(
    name="nodevitals_test_events_total", kind="counter", help="Events.", labels=("kind",)
)
GAUGE = Family(name="nodevitals_test_value", kind="gauge", help="A value.")
SOURCE = Source("p", "t", "kept")


def new_journal() -> Journal:
    return Journal({family.name: family for family in (EVENTS, GAUGE)}, "boot")


def increment(journal: Journal, amount: float, kind: str = "x") -> None:
    journal.add(SOURCE, [Sample(EVENTS.name, (kind,), amount)])


def stored(value: float) -> Total:
    return Total("p", "t", "kept", EVENTS.name, ("x",), value)


def test_counter_is_exposed_at_0_once_its_labels_are_known() -> None:
    journal = new_journal()
    increment(journal, 0)
    journal.take()
    journal.written(Reply())
    assert [sample.value for sample in journal.totals(SOURCE)] == [0]


def test_counters_are_exposed_only_after_loading() -> None:
    """A counter exposed at 1 and then at 6 would be an increase of 5 that did not happen."""
    journal = new_journal()
    increment(journal, 1)
    assert not journal.ready
    assert journal.totals(SOURCE) == []
    assert journal.take().load
    journal.written(Reply(totals=(stored(5),)))
    assert journal.ready
    assert [sample.value for sample in journal.totals(SOURCE)] == [6]
    batch = journal.take()
    assert [total.value for total in batch.totals] == [6]
    assert not batch.load


def test_increment_during_a_write_is_in_the_next_batch() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    increment(journal, 1)
    assert [total.value for total in journal.take().totals] == [1]
    increment(journal, 1)
    journal.written(Reply())
    assert journal.pending()
    assert [total.value for total in journal.take().totals] == [2]


def test_counters_start_at_0_when_loading_fails() -> None:
    journal = new_journal()
    increment(journal, 2)
    journal.take()
    journal.requeue()
    assert journal.ready
    assert [sample.value for sample in journal.totals(SOURCE)] == [2]


def test_load_after_a_failed_one_changes_no_counter() -> None:
    journal = new_journal()
    increment(journal, 2)
    journal.take()
    journal.requeue()
    batch = journal.take()
    assert not batch.load
    journal.written(Reply(totals=(stored(5),)))
    assert [sample.value for sample in journal.totals(SOURCE)] == [2]


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf")])
def test_invalid_increment_is_rejected(amount: float) -> None:
    with pytest.raises(InvalidSampleError):
        increment(new_journal(), amount)


def test_number_of_counters_per_source_is_bounded() -> None:
    journal = new_journal()
    journal.add(SOURCE, [Sample(EVENTS.name, (str(n),), 1) for n in range(10_000)])
    increment(journal, 1, "0")
    with pytest.raises(InvalidSampleError, match="over 10000 counters"):
        increment(journal, 1, "one more")


def test_many_counters_are_split_into_batches_that_fit_a_frame() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    journal.add(SOURCE, [Sample(EVENTS.name, (f"{n}" + "x" * 100,), 1) for n in range(9000)])
    sizes = []
    while journal.pending():
        batch = journal.take()
        frame(batch)
        sizes.append(len(batch.totals))
        journal.written(Reply())
    assert sizes == [5000, 4000]


def test_texts_and_states_of_the_largest_size_are_split_into_batches_that_fit_a_frame() -> None:
    """One batch that does not fit would end the agent's loop."""
    journal = new_journal()
    journal.requeue()
    for number in range(MAX_WAITING_ROWS):
        name = f"{number}".ljust(MAX_NAME_CHARACTERS, "\U0001f4be")
        journal.note(1.0, "probe", [Event(name, "state", "x" * MAX_DETAIL_CHARACTERS)])
    for number in range(10):
        journal.save_state(("probe", f"{number}"), bytes(MAX_STATE_BYTES))
    rows, states = 0, 0
    while journal.unwritten():
        batch = journal.take()
        assert batch.rows or batch.states
        frame(Run(state=encode(batch)))
        rows, states = rows + len(batch.rows), states + len(batch.states)
        journal.written(Reply())
    assert (rows, states) == (MAX_WAITING_ROWS, 10)


def test_increment_of_a_gauge_is_rejected() -> None:
    with pytest.raises(InvalidSampleError):
        new_journal().add(SOURCE, [Sample(GAUGE.name, (), 1)])


def test_totals_of_unknown_families_are_ignored() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply(totals=(Total("p", "t", "kept", "nodevitals_gone_total", (), 1),)))
    assert journal.totals(SOURCE) == []


def test_only_changes_become_rows() -> None:
    journal = new_journal()
    for moment, state in enumerate(("ok", "ok", "lost", "lost", "ok")):
        journal.observe(moment, "p", [Condition("gpu-1", state)])
    assert [row.state for row in journal.take().rows] == ["ok", "lost", "ok"]


def test_restart_writes_no_row_for_an_unchanged_state() -> None:
    journal = new_journal()
    journal.observe(10, "p", [Condition("gpu-1", "ok")])
    journal.take()
    journal.written(Reply(latest=(Row(1, "p", "gpu-2", "lost"),)))
    journal.observe(11, "p", [Condition("gpu-2", "lost"), Condition("gpu-1", "ok")])
    assert journal.take().rows == ()


def test_forgotten_device_that_is_seen_again_gets_a_row() -> None:
    journal = new_journal()
    journal.observe(1, "p", [Condition("gpu-1", "ok")])
    journal.take()
    journal.written(Reply())
    journal.take()
    journal.written(Reply(forgotten=(("p", "gpu-1"),)))
    journal.forgotten("p")  # a run starts
    journal.observe(2, "p", [Condition("gpu-1", "ok")])
    assert [row.device for row in journal.take().rows] == ["gpu-1"]


def test_pending_rows_are_bounded_and_dropped_ones_counted() -> None:
    journal = new_journal()
    for moment in range(MAX_WAITING_ROWS + 10):
        journal.observe(moment, "p", [Condition("gpu-1", f"state-{moment}")])
    assert journal.dropped_rows == 10
    assert journal.take().rows[0].state == "state-10"


def test_failed_batch_is_sent_again_in_order() -> None:
    journal = new_journal()
    for moment in range(3):
        journal.observe(moment, "p", [Condition("gpu-1", f"state-{moment}")])
    first = journal.take().rows
    journal.requeue()
    assert journal.take().rows == first


def test_increment_that_is_not_urgent_starts_no_write() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    assert not journal.pending()
    increment(journal, 1, "y")
    assert journal.pending()
    assert len(journal.take().totals) == 2


KEY = ("p", "t")


def test_state_is_written_in_one_batch_with_the_counts_of_its_run() -> None:
    """Otherwise kill -9 could make a kernel log record count twice, or not at all."""
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    increment(journal, 1)
    journal.save_state(KEY, b"read up to 7")
    batch = journal.take()
    assert (len(batch.totals), batch.states) == (1, (SavedState("p", "t", b"read up to 7"),))
    journal.requeue()
    assert journal.take().states == batch.states
    journal.written(Reply())
    journal.save_state(KEY, b"read up to 7")
    assert journal.take().states == ()


def test_state_waits_for_counts_that_do_not_fit_into_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodevitals.state.journal.MAX_BATCH_TOTALS", 1)
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    increment(journal, 1, "x")
    increment(journal, 1, "y")
    journal.save_state(KEY, b"new")
    assert journal.take().states == ()
    journal.written(Reply())
    assert len(journal.take().states) == 1


def test_states_of_earlier_agents_are_loaded() -> None:
    journal = new_journal()
    assert journal.take().load
    journal.written(Reply(states=(SavedState("p", "t", b"old"),)))
    assert journal.saved_state(KEY) == b"old"
    assert journal.saved_state(("p", "other")) == b""


def test_states_are_written_again_to_a_new_database() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    journal.save_state(KEY, b"new")
    journal.take()
    journal.written(Reply(opened=True))
    assert journal.take().states == (SavedState("p", "t", b"new"),)


def test_probe_receives_a_forgotten_device_until_it_is_seen_again() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply(latest=(Row(1.0, "p", "GPU-1", FORGOTTEN), Row(1.0, "q", "GPU-2", "ok"))))
    assert (journal.forgotten("p"), journal.forgotten("q")) == (("GPU-1",), ())
    journal.take()
    journal.written(Reply(forgotten=(("q", "GPU-2"),)))
    assert journal.forgotten("q") == ("GPU-2",)
    journal.observe(2.0, "q", [Condition("GPU-2", "ok")])
    assert journal.forgotten("q") == ()


def test_run_that_started_before_forget_does_not_restore_the_device() -> None:
    journal = new_journal()
    journal.observe(1.0, "p", [Condition("GPU-1", "lost")])
    journal.take()
    journal.written(Reply(forgotten=(("p", "GPU-1"),)))
    journal.observe(2.0, "p", [Condition("GPU-1", "lost")])
    assert journal.take().rows == ()
    journal.written(Reply())
    assert journal.forgotten("p") == ("GPU-1",)


def test_each_event_becomes_a_row_with_its_own_time() -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply())
    journal.note(9.0, "p", [Event("GPU-1", "xid 13", "a"), Event("GPU-1", "xid 13", "b", 5.0)])
    assert journal.take().rows == (
        Row(9.0, "p", "GPU-1", "xid 13", "a"),
        Row(5.0, "p", "GPU-1", "xid 13", "b"),
    )


def test_count_is_exposed_once_it_is_written() -> None:
    """Exposed before, it would fall when the agent is killed and starts again."""
    journal = new_journal()
    increment(journal, 0)
    for _ in range(2):  # it loads, then writes
        journal.take()
        journal.written(Reply())
    assert journal.changed_sources() == {SOURCE}
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 3)], urgent=False)
    assert not journal.pending()
    assert journal.unwritten()
    assert journal.changed_sources() == set()
    assert [sample.value for sample in journal.totals(SOURCE)] == [0]
    assert [total.value for total in journal.take().totals] == [3]
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    journal.written(Reply())
    assert journal.changed_sources() == {SOURCE}
    assert [sample.value for sample in journal.totals(SOURCE)] == [3]
    increment(journal, 2)  # this one is urgent
    assert journal.pending()
    assert [sample.value for sample in journal.totals(SOURCE)] == [3]
    journal.take()
    journal.written(Reply())
    assert [sample.value for sample in journal.totals(SOURCE)] == [6]


def test_counts_are_exposed_at_once_while_nothing_can_be_written() -> None:
    journal = new_journal()
    increment(journal, 0)
    journal.take()
    journal.written(Reply())
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    journal.take()
    journal.requeue()
    assert [sample.value for sample in journal.totals(SOURCE)] == [1]
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    assert [sample.value for sample in journal.totals(SOURCE)] == [2]
    journal.take()
    journal.written(Reply())
    journal.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    assert [sample.value for sample in journal.totals(SOURCE)] == [2]


@pytest.mark.parametrize("time", [-5.0, float("nan"), float("inf"), 1e18])
def test_event_with_an_impossible_time_has_that_of_its_run(time: float) -> None:
    """One that the database refuses would be refused in each further batch as well."""
    journal = new_journal()
    journal.note(9.0, "p", [Event("GPU-1", "xid 13", "a", time)])
    assert journal.take().rows == (Row(9.0, "p", "GPU-1", "xid 13", "a"),)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1e300])
def test_stored_total_that_is_no_count_is_skipped(
    value: float, caplog: pytest.LogCaptureFixture
) -> None:
    journal = new_journal()
    journal.take()
    other = Total("p", "t", "kept", EVENTS.name, ("y",), 2.0)
    journal.written(Reply(totals=(stored(value), other)))
    assert [(sample.labels, sample.value) for sample in journal.totals(SOURCE)] == [(("y",), 2.0)]
    assert "1 stored counters are not used" in caplog.text


def test_stored_total_with_other_labels_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    journal = new_journal()
    journal.take()
    journal.written(Reply(totals=(Total("p", "t", "kept", EVENTS.name, ("x", "new"), 1.0),)))
    assert journal.totals(SOURCE) == []
    assert f"{EVENTS.name}('x', 'new') is not a declared counter" in caplog.text


def test_counters_start_at_0_with_a_state_in_another_shape() -> None:
    """The probe starts with a new state, and would count again what it has counted."""
    journal = Journal({EVENTS.name: EVENTS}, "boot", {"p": Row})
    journal.take()
    journal.written(Reply(totals=(stored(5),), states=(SavedState("p", "t", b"\x80"),)))
    assert journal.saved_state(KEY) == b""
    assert [sample.value for sample in journal.totals(SOURCE)] == [0.0]
    assert [total.value for total in journal.take().totals] == [0.0]


def test_counters_are_ready_once_every_part_is_loaded() -> None:
    journal = new_journal()
    assert journal.take().load
    journal.written(Reply(totals=(stored(5),), more=True))
    assert not journal.ready
    assert journal.pending()
    assert journal.take().load
    journal.written(Reply(totals=(Total("p", "t", "kept", EVENTS.name, ("y",), 2.0),)))
    assert [sample.value for sample in journal.totals(SOURCE)] == [5, 2]


def test_counters_that_were_not_loaded_are_replaced() -> None:
    """Those of an agent that used the directory meanwhile are not this one's."""
    journal = new_journal()
    increment(journal, 1)
    journal.take()
    journal.requeue()
    assert journal.take().replace
    journal.requeue()
    batch = journal.take()
    assert batch.replace
    assert [total.value for total in batch.totals] == [1]
    journal.written(Reply())
    assert not journal.take().replace
