"""The plan and the cost of pair tests, to 10,000 nodes."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals.checks.model import CheckRequest
from nodevitals.checks.requests.cost import cost
from nodevitals.checks.requests.rounds import Plan
from testbed.slowfleet import collective, matrix, names


@settings(deadline=None)
@given(st.integers(2, 40), st.none() | st.integers(1, 60), st.randoms())
def test_each_node_has_one_partner_per_round_and_each_pair_comes_in_both_directions(
    count: int, rounds: int | None, order: st.DataObject
) -> None:
    nodes = list(names(count))
    expected = Plan(matrix(nodes, rounds))
    order.shuffle(nodes)  # type: ignore[attr-defined]
    made = Plan(matrix(nodes, rounds))
    assert list(made) == list(expected)
    assert len(made) == 2 * min(rounds or 10**9, count - 1 + count % 2)
    pairs: Counter[tuple[str, str]] = Counter()
    for one in made:
        busy = [name for pairing in one for name in (pairing.source, pairing.target)]
        assert len(busy) == len(set(busy)) == 2 * (count // 2)
        pairs.update((pairing.source, pairing.target) for pairing in one)
    assert set(pairs.values()) == {1}
    assert len(pairs) == made.runs
    assert {(target, source) for source, target in pairs} == pairs.keys()
    if rounds is None:
        assert len(pairs) == count * (count - 1)


def test_a_pair_is_first_tested_in_the_direction_that_was_asked_for() -> None:
    for nodes in (("z", "a"), ("a", "z")):
        plan = Plan(CheckRequest(kind="pair", nodes=nodes))
        tested = [(number, one.source, one.target) for _, number, one in plan.numbered()]
        assert tested == [(0, *nodes), (1, *nodes[::-1])]
    assert list(Plan(collective(names(4)))) == []


def test_partners_in_a_tournament_are_spread_over_all_nodes() -> None:
    """Neighbours by name are often neighbours in a rack."""
    nodes = names(1000)
    for name in nodes[::97]:
        partners = [
            nodes.index(one.target if one.source == name else one.source)
            for _, _, one in Plan(matrix(nodes, 8)).numbered()
            if name in (one.source, one.target)
        ]
        assert max(partners) - min(partners) > 500


def test_rounds_of_10_000_nodes_are_made_when_they_are_asked_for() -> None:
    made = Plan(matrix(names(10_000), 8))
    assert (len(made), made.runs) == (16, 80_000)
    assert len(made[7]) == len(made[-1]) == 5000
    assert made[2:4] == [made[2], made[3]]
    partners: dict[str, set[str]] = {}
    for _, _, one in made.numbered():
        partners.setdefault(one.source, set()).add(one.target)
        partners.setdefault(one.target, set()).add(one.source)
    assert {len(found) for found in partners.values()} == {8}


def test_cost_is_that_of_all_pairs_at_their_time_limits() -> None:
    request = matrix(names(9))
    found = cost(request)
    limit = 15 + 1000 * (1 << 20) / 1.25e9
    assert (found.nodes, found.runs) == (9, 72)
    assert found.bytes == 72 * 1000 * (1 << 20)
    assert abs(found.node_seconds - 2 * 72 * limit) < 1e-6
    assert abs(found.seconds - 18 * (limit + 1)) < 1e-6


def test_cost_is_that_of_all_devices_and_operations() -> None:
    alone = matrix(names(4))
    test = replace(alone.test, device="mlx5_0,mlx5_1,mlx5_2", operation="write_bw,read_lat")
    found, one = cost(replace(alone, test=test)), cost(alone)
    assert found.runs == one.runs == 12
    assert found.bytes == 3 * (one.bytes + 12 * 2 * 1000 * 8)
    crossed = cost(replace(alone, test=replace(test, crossed=True)))
    assert crossed.bytes == 3 * found.bytes


def test_cost_counts_turns_where_pairs_must_wait() -> None:
    request = matrix(names(1000), 8)
    alone, few = cost(request, parallel_pairs=500), cost(request, parallel_pairs=100)
    assert few.seconds == 5 * alone.seconds
    assert few.node_seconds == alone.node_seconds


def test_cost_of_a_stated_duration_assumes_the_fastest_link() -> None:
    request = matrix(names(2))
    test = replace(request.test, iterations=None, seconds=10)
    assert cost(replace(request, test=test)).bytes == 2 * 10 * 200e9


def test_cost_of_a_collective_and_of_a_node_check() -> None:
    found = cost(collective(names(4)))
    assert (found.nodes, found.runs) == (4, 1)
    assert found.node_seconds == 4 * found.seconds
    assert found.bytes == 4 * 2 * 50 * (1 << 30)
    assert cost(CheckRequest(kind="node", nodes=names(3))).bytes == 0
