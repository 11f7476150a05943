"""Kept counters never lie, and history rows are changes of state only."""

from __future__ import annotations

import pytest

from nodevitals.exposition import InvalidSampleError, Source
from nodevitals.probe import Family
from nodevitals.state.journal import (
    FORGOTTEN,
    MAX_WAITING_ROWS,
    Journal,
    Reply,
    Row,
    SavedState,
    Total,
)
from nodevitals.wire import Condition, Event, Sample, frame

EVENTS = Family(
    name="nodevitals_test_events_total", kind="counter", help="Events.", labels=("kind",)
)
GAUGE = Family(name="nodevitals_test_value", kind="gauge", help="A value.")
SOURCE = Source("p", "t", "kept")


def journal() -> Journal:
    return Journal({family.name: family for family in (EVENTS, GAUGE)}, "boot")


def raised(to: Journal, amount: float, kind: str = "x") -> None:
    to.add(SOURCE, [Sample(EVENTS.name, (kind,), amount)])


def stored(value: float) -> Total:
    return Total("p", "t", "kept", EVENTS.name, ("x",), value)


def test_a_counter_is_shown_at_0_as_soon_as_its_labels_are_known() -> None:
    kept = journal()
    raised(kept, 0)
    kept.take()
    kept.written(Reply())
    assert [sample.value for sample in kept.totals(SOURCE)] == [0]


def test_nothing_is_shown_before_what_earlier_agents_left_is_known() -> None:
    """A counter shown at 1 and then raised to 6 would be five events that never were."""
    kept = journal()
    raised(kept, 1)
    assert kept.totals(SOURCE) == []
    assert kept.take().load
    assert kept.written(Reply(totals=(stored(5),)))
    assert [sample.value for sample in kept.totals(SOURCE)] == [6]
    batch = kept.take()
    assert [total.value for total in batch.totals] == [6]
    assert not batch.load


def test_what_raises_a_counter_while_a_batch_is_out_goes_with_the_next() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply())
    raised(kept, 1)
    assert [total.value for total in kept.take().totals] == [1]
    raised(kept, 1)
    kept.written(Reply())
    assert kept.pending()
    assert [total.value for total in kept.take().totals] == [2]


def test_without_a_state_directory_counters_start_at_0() -> None:
    kept = journal()
    raised(kept, 2)
    kept.take()
    assert kept.give_back()
    assert [sample.value for sample in kept.totals(SOURCE)] == [2]


def test_a_late_load_after_giving_up_changes_no_counter() -> None:
    kept = journal()
    raised(kept, 2)
    kept.take()
    kept.give_back()
    batch = kept.take()
    assert not batch.load
    kept.written(Reply(totals=(stored(5),)))
    assert [sample.value for sample in kept.totals(SOURCE)] == [2]


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf")])
def test_a_counter_cannot_fall(amount: float) -> None:
    with pytest.raises(InvalidSampleError):
        raised(journal(), amount)


def test_counters_of_one_source_are_bounded() -> None:
    kept = journal()
    kept.add(SOURCE, [Sample(EVENTS.name, (str(n),), 1) for n in range(10_000)])
    raised(kept, 1, "0")
    with pytest.raises(InvalidSampleError, match="over 10000 counters"):
        raised(kept, 1, "one more")


def test_many_counters_go_in_batches_that_fit_a_frame() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply())
    kept.add(SOURCE, [Sample(EVENTS.name, (f"{n}" + "x" * 100,), 1) for n in range(9000)])
    sizes = []
    while kept.pending():
        batch = kept.take()
        frame(batch)
        sizes.append(len(batch.totals))
        kept.written(Reply())
    assert sizes == [5000, 4000]


def test_only_counters_are_kept() -> None:
    with pytest.raises(InvalidSampleError):
        journal().add(SOURCE, [Sample(GAUGE.name, (), 1)])


def test_totals_of_another_version_are_left_alone() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply(totals=(Total("p", "t", "kept", "nodevitals_gone_total", (), 1),)))
    assert kept.totals(SOURCE) == []


def test_only_changes_become_rows() -> None:
    kept = journal()
    for moment, state in enumerate(("ok", "ok", "lost", "lost", "ok")):
        kept.observe(moment, "p", [Condition("gpu-1", state)])
    assert [row.state for row in kept.take().rows] == ["ok", "lost", "ok"]


def test_a_restart_repeats_no_row_whose_state_has_not_changed() -> None:
    kept = journal()
    kept.observe(10, "p", [Condition("gpu-1", "ok")])
    kept.take()
    kept.written(Reply(latest=(Row(1, "p", "gpu-2", "lost"),)))
    kept.observe(11, "p", [Condition("gpu-2", "lost"), Condition("gpu-1", "ok")])
    assert kept.take().rows == ()


def test_a_forgotten_device_that_is_seen_again_is_news() -> None:
    kept = journal()
    kept.observe(1, "p", [Condition("gpu-1", "ok")])
    kept.take()
    kept.written(Reply())
    kept.take()
    kept.written(Reply(forgotten=(("p", "gpu-1"),)))
    kept.forgotten("p")  # a run begins
    kept.observe(2, "p", [Condition("gpu-1", "ok")])
    assert [row.device for row in kept.take().rows] == ["gpu-1"]


def test_rows_that_nobody_writes_are_bounded_and_the_lost_ones_counted() -> None:
    kept = journal()
    for moment in range(MAX_WAITING_ROWS + 10):
        kept.observe(moment, "p", [Condition("gpu-1", f"state-{moment}")])
    assert kept.dropped_rows == 10
    assert kept.take().rows[0].state == "state-10"


def test_a_lost_batch_comes_again_in_order() -> None:
    kept = journal()
    for moment in range(3):
        kept.observe(moment, "p", [Condition("gpu-1", f"state-{moment}")])
    first = kept.take().rows
    kept.give_back()
    assert kept.take().rows == first


def test_counting_a_write_does_not_ask_for_another_one() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply())
    kept.add(SOURCE, [Sample(EVENTS.name, ("x",), 1)], urgent=False)
    assert not kept.pending()
    raised(kept, 1, "y")
    assert kept.pending()
    assert len(kept.take().totals) == 2


KEY = ("p", "t")


def test_what_a_run_left_is_written_in_one_batch_with_what_it_counted() -> None:
    """Else a record of the kernel's log would be counted twice, or never, after kill -9."""
    kept = journal()
    kept.take()
    kept.written(Reply())
    raised(kept, 1)
    kept.save_state(KEY, b"read up to 7")
    batch = kept.take()
    assert (len(batch.totals), batch.states) == (1, (SavedState("p", "t", b"read up to 7"),))
    kept.give_back()
    assert kept.take().states == batch.states
    kept.written(Reply())
    kept.save_state(KEY, b"read up to 7")
    assert kept.take().states == ()


def test_a_state_is_written_after_counts_that_do_not_fit_into_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nodevitals.state.journal.MAX_BATCH_TOTALS", 1)
    kept = journal()
    kept.take()
    kept.written(Reply())
    raised(kept, 1, "x")
    raised(kept, 1, "y")
    kept.save_state(KEY, b"new")
    assert kept.take().states == ()
    kept.written(Reply())
    assert len(kept.take().states) == 1


def test_what_earlier_agents_remembered_is_recalled_once_loaded() -> None:
    kept = journal()
    assert kept.take().load
    kept.written(Reply(states=(SavedState("p", "t", b"old"),)))
    assert kept.saved_state(KEY) == b"old"
    assert kept.saved_state(("p", "other")) == b""


def test_a_new_database_gets_the_states_again() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply())
    kept.save_state(KEY, b"new")
    kept.take()
    kept.written(Reply(opened=True))
    assert kept.take().states == (SavedState("p", "t", b"new"),)


def test_a_retired_device_is_told_to_its_probe_until_it_is_seen_again() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply(latest=(Row(1.0, "p", "GPU-1", FORGOTTEN), Row(1.0, "q", "GPU-2", "ok"))))
    assert (kept.forgotten("p"), kept.forgotten("q")) == (("GPU-1",), ())
    kept.take()
    kept.written(Reply(forgotten=(("q", "GPU-2"),)))
    assert kept.forgotten("q") == ("GPU-2",)
    kept.observe(2.0, "q", [Condition("GPU-2", "ok")])
    assert kept.forgotten("q") == ()


def test_a_run_that_was_under_way_does_not_bring_a_retired_device_back() -> None:
    kept = journal()
    kept.observe(1.0, "p", [Condition("GPU-1", "lost")])
    kept.take()
    kept.written(Reply(forgotten=(("p", "GPU-1"),)))
    kept.observe(2.0, "p", [Condition("GPU-1", "lost")])
    assert kept.take().rows == ()
    kept.written(Reply())
    assert kept.forgotten("p") == ("GPU-1",)


def test_an_event_is_a_row_each_time_and_has_its_own_time() -> None:
    kept = journal()
    kept.take()
    kept.written(Reply())
    kept.note(9.0, "p", [Event("GPU-1", "xid 13", "a"), Event("GPU-1", "xid 13", "b", 5.0)])
    assert kept.take().rows == (
        Row(9.0, "p", "GPU-1", "xid 13", "a"),
        Row(5.0, "p", "GPU-1", "xid 13", "b"),
    )
