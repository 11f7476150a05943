"""The plan: every pair is tested, no node is in two tests, the load is the same in any fleet."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevitals.probes.fabric.admission import BudgetSettings, Meter, Spent
from nodevitals.probes.fabric.members import ACROSS_EVERY, Roster, rounds


def one_group(count: int) -> Roster:
    return Roster([(f"node-{number:05}", "") for number in range(count)])


def several_groups(*sizes: int, across_pairs: int = 1) -> Roster:
    members = [(f"n-{g}-{i}", f"leaf-{g}") for g, size in enumerate(sizes) for i in range(size)]
    return Roster(members, across_pairs)


@given(st.integers(1, 60), st.integers(0, 10**9))
def test_every_pair_is_tested_once_in_a_tournament(count: int, cycle: int) -> None:
    roster, length = one_group(count), rounds(count)
    assert length == max(1, count - 1 if count % 2 == 0 else count)
    seen: Counter[frozenset[str]] = Counter()
    for slot in range(cycle * length, (cycle + 1) * length):
        for pairing in roster.pairings(slot):
            seen[frozenset((pairing.source, pairing.target))] += 1
    assert len(seen) == count * (count - 1) // 2
    assert set(seen.values()) <= {1}


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(0, 2000), st.integers(1, 4)
)
def test_no_node_is_in_two_tests_and_both_sides_agree(
    sizes: list[int], slot: int, across_pairs: int
) -> None:
    roster = several_groups(*sizes, across_pairs=across_pairs)
    pairings = list(roster.pairings(slot))
    busy = [name for pairing in pairings for name in (pairing.source, pairing.target)]
    assert len(busy) == len(set(busy))
    by_name = {name: pairing for pairing in pairings for name in (pairing.source, pairing.target)}
    for group in roster.groups.values():
        for name in group:
            assert roster.pairing(name, slot) == by_name.get(name)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=9), st.integers(0, 500), st.integers(1, 4))
def test_load_between_groups_is_constant(sizes: list[int], turn: int, pairs: int) -> None:
    """Two groups never have more than `across_pairs` tests at a time, whatever their size."""
    roster = several_groups(*sizes, across_pairs=pairs)
    group_of = {name: group for group, names in roster.groups.items() for name in names}
    slot = turn * ACROSS_EVERY + ACROSS_EVERY - 1
    load = Counter(
        frozenset((group_of[one.source], group_of[one.target])) for one in roster.pairings(slot)
    )
    assert all(len(groups) == 2 and count <= pairs for groups, count in load.items())
    busy = Counter(group for groups in load for group in groups)
    assert set(busy.values()) <= {1}


def test_all_pairs_between_groups_are_tested_in_time() -> None:
    roster = several_groups(4, 4, 3)
    cross = {
        frozenset((one.source, one.target))
        for turn in range(3 * 4 * 4 * 3)
        for one in roster.pairings(turn * ACROSS_EVERY + ACROSS_EVERY - 1)
    }
    assert len(cross) == 4 * 4 + 4 * 3 + 4 * 3


def test_each_node_is_source_as_often_as_target() -> None:
    roster = one_group(8)
    sources = Counter(
        (one.source, one.target) for slot in range(14) for one in roster.pairings(slot)
    )
    assert len(sources) == 56  # in two tournaments, both ways
    assert set(sources.values()) == {1}


def test_roster_knows_its_members_by_name() -> None:
    roster = one_group(5)
    assert "node-00003" in roster
    assert "node-9" not in roster
    with pytest.raises(KeyError):
        roster.pairing("node-9", 0)


def test_cost_of_a_slot_does_not_grow_with_the_members() -> None:
    """A hundred times the members take about the same time."""
    small, large = one_group(100), one_group(10_000)

    def cost(roster: Roster) -> float:
        times = []
        for _ in range(7):
            began = time.thread_time()
            for slot in range(300):
                roster.pairing("node-00042", slot)
            times.append(time.thread_time() - began)
        return min(times)

    assert cost(large) < 10 * cost(small)


def test_budget_holds_for_any_hour() -> None:
    meter = Meter(BudgetSettings(seconds_per_hour=10, bytes_per_hour=1000))
    assert meter.allows(0, 10, 1000)
    assert not meter.allows(0, 10.1, 0)
    meter.charge(100, 6, 400)
    assert meter.allows(200, 4, 600)
    assert not meter.allows(200, 4.1, 0)
    assert not meter.allows(200, 0, 601)
    assert meter.allows(3701, 10, 1000)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 20), st.integers(0, 900)), max_size=300))
def test_no_hour_of_a_day_holds_more_than_the_budget(
    tries: list[tuple[float, float, int]],
) -> None:
    """Whatever tests are requested, also over a restart."""
    limits = BudgetSettings(seconds_per_hour=100, bytes_per_hour=3000)
    meter, now = Meter(limits), 0.0
    ran: list[Spent] = []
    for minutes, seconds, size in tries * 5:
        now += minutes * 60
        meter = Meter(limits, meter.spent())
        if meter.allows(now, seconds, size):
            meter.charge(now, seconds, size)
            ran.append(Spent(now, seconds, size))
    for one in ran:
        hour = [other for other in ran if 0 <= one.time - other.time < 3600]
        assert sum(other.seconds for other in hour) <= 100 + 1e-6
        assert sum(other.bytes for other in hour) <= 3000
