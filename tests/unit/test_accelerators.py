"""Which devices are lost: known, no longer answering, neither replaced nor forgotten."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probe import Readings
from nodevitals.probes.common.accelerators import Device, Inventory, report

NONE: frozenset[str] = frozenset()


def device(number: int, slot: int | None = None) -> Device:
    bus = number if slot is None else slot
    return Device(uuid=f"GPU-{number}", index=str(number), slot=f"0000:{bus:02x}:00")


def after_run(
    before: Inventory,
    *present: Device,
    lost_slots: AbstractSet[str] = NONE,
    withheld: AbstractSet[str] = NONE,
    forgotten: AbstractSet[str] = NONE,
    now: float = 100.0,
) -> Inventory:
    return before.seen(present, lost_slots, withheld, forgotten, {}, now)


def lost(of: Inventory) -> dict[str, float]:
    return {one.device.uuid: one.lost_at for one in of.known if one.lost_at is not None}


def test_device_that_stops_answering_is_lost_until_it_returns() -> None:
    two = after_run(Inventory(), device(0), device(1))
    gone = after_run(two, device(0), now=200)
    assert lost(gone) == {"GPU-1": 200}
    assert lost(after_run(gone, device(0), now=300)) == {"GPU-1": 200}
    assert lost(after_run(gone, device(0), device(1), now=300)) == {}


def test_device_with_another_one_in_its_slot_is_replaced() -> None:
    two = after_run(Inventory(), device(0), device(1))
    assert lost(after_run(two, device(0), device(7, slot=1))) == {}
    moved = after_run(two, device(0), device(1, slot=9))
    assert (lost(moved), len(moved.known)) == ({}, 2)


def test_forgotten_device_is_removed_also_from_the_baseline() -> None:
    gone = after_run(after_run(Inventory(), device(0), device(1)), device(0))
    assert gone.baseline == 2
    forgotten = after_run(gone, device(0), forgotten={"GPU-1"})
    assert (lost(forgotten), forgotten.baseline) == ({}, 1)


def test_withheld_device_is_neither_up_nor_lost() -> None:
    """A container may have access to fewer devices than the node has."""
    withheld = after_run(
        after_run(Inventory(), device(0), device(1)), device(0), withheld={"0000:01:00"}
    )
    readings = Readings()
    report(withheld, "nvidia", readings)
    up = {sample.labels[2] for sample in readings.samples if sample.family.endswith("_up")}
    assert (lost(withheld), up) == ({}, {"GPU-0"})
    assert lost(after_run(withheld, device(0), now=500)) == {"GPU-1": 500}


def test_lost_device_that_was_never_known_is_identified_by_its_slot() -> None:
    first = after_run(Inventory(), device(0), lost_slots={"0000:01:00"})
    assert lost(first) == {"0000:01:00": 100}
    assert lost(after_run(first, device(0), lost_slots={"0000:01:00"}, now=200)) == {
        "0000:01:00": 100
    }
    assert lost(after_run(first, device(0), device(1))) == {}
    assert (
        lost(after_run(first, device(0), lost_slots={"0000:01:00"}, forgotten={"0000:01:00"})) == {}
    )


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))), min_size=1, max_size=12
    )
)
def test_present_device_is_never_lost(
    runs: list[tuple[set[int], set[int]]],
) -> None:
    inventory = Inventory()
    for moment, (present, forgotten) in enumerate(runs):
        inventory = inventory.seen(
            [device(number) for number in present],
            NONE,
            NONE,
            {f"GPU-{number}" for number in forgotten},
            {},
            float(moment),
        )
        gone = set(lost(inventory))
        assert not gone & {f"GPU-{number}" for number in present}
        assert not gone & {f"GPU-{number}" for number in forgotten}
        assert inventory.baseline >= len(present)
        assert len({one.device.uuid for one in inventory.known}) == len(inventory.known)


def test_dying_device_keeps_its_serial_number() -> None:
    """Its UUID still answered, its serial number no longer; the next run finds it lost."""
    whole = Device(uuid="GPU-1", index="1", slot="0000:1b:00", serial="165", model="H100")
    dying = Device(uuid="GPU-1", index="1", slot="0000:1b:00")
    none: frozenset[str] = frozenset()
    inventory = Inventory().seen([whole], none, none, none, {}, 1.0)
    inventory = inventory.seen([dying], none, none, none, {}, 2.0)
    inventory = inventory.seen([], none, none, none, {}, 3.0)
    assert inventory.known[0].device == whole
    assert inventory.known[0].lost_at == 3.0
