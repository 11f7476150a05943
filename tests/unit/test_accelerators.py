"""Which cards are lost: known, no longer answering, neither replaced nor forgotten."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probe import Readings
from nodevitals.probes.common.accelerators import Device, Inventory, report

NOBODY: frozenset[str] = frozenset()


def card(number: int, slot: int | None = None) -> Device:
    place = number if slot is None else slot
    return Device(uuid=f"GPU-{number}", index=str(number), slot=f"0000:{place:02x}:00")


def look(
    before: Inventory,
    *present: Device,
    refused: AbstractSet[str] = NOBODY,
    withheld: AbstractSet[str] = NOBODY,
    forgotten: AbstractSet[str] = NOBODY,
    now: float = 100.0,
) -> Inventory:
    return before.seen(present, refused, withheld, forgotten, {}, now)


def lost(of: Inventory) -> dict[str, float]:
    return {one.device.uuid: one.lost_at for one in of.known if one.lost_at is not None}


def test_a_card_that_stops_answering_is_lost_since_then_until_it_is_back() -> None:
    two = look(Inventory(), card(0), card(1))
    gone = look(two, card(0), now=200)
    assert lost(gone) == {"GPU-1": 200}
    assert lost(look(gone, card(0), now=300)) == {"GPU-1": 200}
    assert lost(look(gone, card(0), card(1), now=300)) == {}


def test_a_card_whose_slot_has_another_one_is_replaced() -> None:
    two = look(Inventory(), card(0), card(1))
    assert lost(look(two, card(0), card(7, slot=1))) == {}
    moved = look(two, card(0), card(1, slot=9))
    assert (lost(moved), len(moved.known)) == ({}, 2)


def test_a_forgotten_card_is_gone_and_the_baseline_with_it() -> None:
    gone = look(look(Inventory(), card(0), card(1)), card(0))
    assert gone.baseline == 2
    forgotten = look(gone, card(0), forgotten={"GPU-1"})
    assert (lost(forgotten), forgotten.baseline) == ({}, 1)


def test_a_card_that_is_withheld_is_neither_up_nor_lost() -> None:
    """A container may see fewer cards than the node has."""
    withheld = look(look(Inventory(), card(0), card(1)), card(0), withheld={"0000:01:00"})
    readings = Readings()
    report(withheld, "nvidia", readings)
    up = {sample.labels[2] for sample in readings.samples if sample.family.endswith("_up")}
    assert (lost(withheld), up) == ({}, {"GPU-0"})
    assert lost(look(withheld, card(0), now=500)) == {"GPU-1": 500}


def test_a_card_that_was_lost_before_anyone_knew_it_goes_by_its_slot() -> None:
    first = look(Inventory(), card(0), refused={"0000:01:00"})
    assert lost(first) == {"0000:01:00": 100}
    assert lost(look(first, card(0), refused={"0000:01:00"}, now=200)) == {"0000:01:00": 100}
    assert lost(look(first, card(0), card(1))) == {}
    assert lost(look(first, card(0), refused={"0000:01:00"}, forgotten={"0000:01:00"})) == {}


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))), min_size=1, max_size=12
    )
)
def test_whatever_comes_and_goes_a_present_card_is_never_lost(
    looks: list[tuple[set[int], set[int]]],
) -> None:
    inventory = Inventory()
    for moment, (present, forgotten) in enumerate(looks):
        inventory = inventory.seen(
            [card(number) for number in present],
            NOBODY,
            NOBODY,
            {f"GPU-{number}" for number in forgotten},
            {},
            float(moment),
        )
        gone = set(lost(inventory))
        assert not gone & {f"GPU-{number}" for number in present}
        assert not gone & {f"GPU-{number}" for number in forgotten}
        assert inventory.baseline >= len(present)
        assert len({one.device.uuid for one in inventory.known}) == len(inventory.known)
