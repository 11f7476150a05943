"""Which GPUs that were not read are lost, what is absent for how long, which ids a driver has."""

from __future__ import annotations

from itertools import pairwise

import pytest

from nodevitals.probes.common.accelerators import Device, KnownDevice
from nodevitals.probes.nvidia.gpu import slowdown_fields
from nodevitals.probes.nvidia.listing import Listing
from nodevitals.probes.nvidia.nvml import Absences, Failure
from nodevitals.probes.nvidia.reader import GpuScan, Unread, explain

NONE: frozenset[str] = frozenset()
SLOTS = [f"0000:{number:02x}:00" for number in range(4)]


def known(*numbers: int, lost_at: float | None = None) -> list[KnownDevice]:
    return [
        KnownDevice(
            device=Device(uuid=f"GPU-{number}", index=str(number), slot=SLOTS[number]),
            lost_at=lost_at,
        )
        for number in numbers
    ]


def scan(count: int, **others: dict[str, Failure]) -> GpuScan:
    """A scan that read nothing; `failed` are by index, `lost` and `unreadable` by slot."""
    lost, unreadable = others.get("lost", {}), others.get("unreadable", {})
    listing = Listing(count, [], lost, unreadable, others.get("failed", {}))
    return GpuScan(listing, {}, dict(lost), dict(unreadable))


def verdict(unread: Unread) -> tuple[set[str], int, dict[str, str]]:
    return unread.withheld, unread.unreadable, unread.codes


def failure(code: int) -> Failure:
    return Failure(code, "nvmlDeviceGetUUID")


def test_gpu_that_nvml_no_longer_lists_is_lost() -> None:
    assert verdict(explain(scan(0), known(0), NONE, NONE)) == (set(), 0, {})


def test_gpu_is_not_lost_while_a_listed_one_is_not_identified() -> None:
    """It may be the one."""
    unread = explain(scan(1, failed={"7": failure(10)}), known(0, 1), NONE, NONE)
    assert unread.withheld == {"GPU-0", "GPU-1"}
    assert unread.unreadable == 1
    assert unread.strangers == {("7", ""): failure(10)}


def test_code_of_an_index_belongs_to_the_gpu_that_had_it() -> None:
    unread = explain(scan(1, failed={"1": failure(10)}), known(1), NONE, NONE)
    assert verdict(unread) == ({"GPU-1"}, 1, {"GPU-1": "10"})
    assert unread.strangers == {}


@pytest.mark.parametrize("code", [4, 8, 10, 16, 999])
def test_only_15_is_a_loss(code: int) -> None:
    failed = {SLOTS[0]: failure(code)}
    assert verdict(explain(scan(1, unreadable=failed), known(0), NONE, NONE)) == (
        {"GPU-0"},
        1,
        {"GPU-0": str(code)},
    )
    lost = {SLOTS[0]: failure(15)}
    assert verdict(explain(scan(1, lost=lost), known(0), NONE, NONE)) == (
        set(),
        0,
        {"GPU-0": "15"},
    )


def test_gpu_that_was_lost_or_left_the_bus_is_not_only_unreadable() -> None:
    failed = {SLOTS[0]: failure(999)}
    for before, off_the_bus in ((known(0, lost_at=1.0), NONE), (known(0), {SLOTS[0]})):
        unread = explain(scan(1, unreadable=failed), before, NONE, off_the_bus)
        assert verdict(unread) == (set(), 0, {"GPU-0": "999"})


def test_gpu_that_is_passed_through_is_withheld() -> None:
    unread = explain(scan(0), known(0, lost_at=1.0), {SLOTS[0]}, NONE)
    assert verdict(unread) == ({SLOTS[0]}, 0, {})


def test_gpu_that_was_never_known_is_a_stranger_in_its_slot() -> None:
    unread = explain(scan(1, unreadable={SLOTS[3]: failure(10)}), [], NONE, NONE)
    assert (unread.unreadable, unread.strangers) == (1, {("", SLOTS[3]): failure(10)})
    assert unread.lost == set()
    lost = explain(scan(1, lost={SLOTS[3]: failure(15)}), [], NONE, NONE)
    assert (lost.unreadable, lost.lost, lost.strangers) == (0, {SLOTS[3]}, {})


def test_label_of_a_code_is_bounded() -> None:
    assert [failure(code).label for code in (1, 15, 998, 999, 1000, 123456, -1)] == [
        *("1", "15", "998", "999", "999", "999", "hang")
    ]


def test_absence_is_asked_again_after_twice_as_many_runs() -> None:
    absences, asked = Absences(), []
    for run in range(1, 300):
        absences.start_run()
        if absences.asks("field"):
            asked.append(run)
            absences.learn("field", absent=True)
    assert [after - before for before, after in pairwise(asked)] == [
        *(1, 2, 4, 8, 16, 32, 64, 64, 64)
    ]
    absences.learn("field", absent=False)
    assert absences.asks("field")
    assert not absences.has("field")


@pytest.mark.parametrize(
    ("driver", "first"),
    [
        *(("", None), ("N/A", None), ("535.183.01", None), ("570.195.03", None)),
        *(("575.51.03", 251), ("580.65.06", 251), ("580.82", 269), ("580.126.09", 269)),
        *(("595.58.03", 269), ("610.10", 269)),
    ],
)
def test_slowdown_ids_are_those_of_the_driver(driver: str, first: int | None) -> None:
    fields = dict(slowdown_fields(driver))
    assert fields["sw_power_cap"] == (74, 0)
    assert fields.get("sw_thermal") == (None if first is None else (first, 0))
    assert fields.get("hw_power_brake") == (None if first is None else (first + 2, 0))
