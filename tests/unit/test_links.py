"""Which links are known, missing, slow; how often each went down."""

from __future__ import annotations

import pytest

from nodevitals.probes.common.links import (
    KnownLink,
    Link,
    Links,
    count_flaps,
    is_excluded,
    state_of,
)

NDR, HDR = 50e9, 25e9


def link(up: bool | None = True, **more: object) -> Link:
    return Link(**{"name": "mlx5_0/1", "place": "0000:1a:00.0/1", "up": up, "rate": NDR, **more})  # type: ignore[arg-type]


def seen(
    memory: Links, *found: Link, forgotten: str = "", boot: str = "boot"
) -> tuple[Links, dict[str, int]]:
    return memory.seen(found, {forgotten}, (), boot)


def names(memory: Links) -> dict[str, bool]:
    return {one.link.name: one.missing for one in memory.known}


def test_the_best_rate_of_a_link_that_is_up_is_what_it_should_have() -> None:
    memory, _ = seen(Links(), link(rate=HDR))
    memory, _ = seen(memory, link(rate=NDR))
    memory, _ = seen(memory, link(rate=HDR))
    assert memory.known[0].best_rate == NDR
    assert state_of(memory.known[0], NDR) == "slow"


@pytest.mark.parametrize("up", [False, None])
def test_the_rate_of_a_link_that_is_not_up_teaches_nothing(up: bool | None) -> None:
    memory, _ = seen(Links(), link(up))
    assert memory.known[0].best_rate is None


def test_forgetting_a_link_that_is_there_forgets_its_best_rate() -> None:
    memory, _ = seen(Links(), link())
    memory, _ = seen(memory, link(rate=HDR), forgotten="mlx5_0/1")
    assert memory.known[0].best_rate == HDR


def test_a_link_that_is_gone_is_missing_until_it_is_back() -> None:
    memory, _ = seen(Links(), link(layer="InfiniBand"))
    memory, _ = seen(memory)
    gone = memory.known[0]
    assert (gone.missing, gone.link.up, gone.link.layer) == (True, False, "InfiniBand")
    assert gone.best_rate == NDR
    memory, flaps = seen(memory, link())
    assert (names(memory), flaps) == ({"mlx5_0/1": False}, {"mlx5_0/1": 0})


def test_a_link_that_is_gone_can_be_forgotten() -> None:
    memory, _ = seen(Links(), link())
    memory, _ = seen(memory, forgotten="mlx5_0/1")
    assert names(memory) == {}


def test_another_link_in_its_place_is_its_successor() -> None:
    memory, _ = seen(Links(), link())
    memory, _ = seen(memory, link(name="rocep26s0/1"))
    assert names(memory) == {"rocep26s0/1": False}


def test_places_that_are_unknown_are_not_the_same() -> None:
    memory, _ = seen(Links(), link(name="rxe0/1", place=""))
    memory, _ = seen(memory, link(name="rxe1/1", place=""))
    assert names(memory) == {"rxe0/1": True, "rxe1/1": False}


def test_what_is_excluded_now_is_not_missed() -> None:
    memory, _ = seen(Links(), link())
    memory, _ = memory.seen((), frozenset(), ("mlx5_*",), "boot")
    assert names(memory) == {}


def test_a_link_is_excluded_by_its_name_or_its_device() -> None:
    assert is_excluded("mlx5_bond_0/1", ("mlx5_bond_*",))
    assert is_excluded("mlx5_0/2", ("mlx5_0/2",))
    assert not is_excluded("mlx5_0/1", ("mlx5_0/2", "mlx5"))


@pytest.mark.parametrize(
    ("looks", "flaps"),
    [
        ([(True, 3), (True, 3)], 0),
        ([(True, 3), (True, 5)], 2),  # between two looks
        ([(True, 3), (False, 4), (True, 4)], 1),
        ([(True, 3), (False, 3), (True, 3)], 1),  # the driver does not count
        ([(True, None), (False, None), (True, None), (False, None)], 2),
        ([(True, 3), (False, 3), (False, 4)], 1),  # it counts one look later
        ([(True, 3), (True, 4), (False, 4)], 1),  # or one sooner than it shows
        ([(True, 3), (True, 4), (False, 5)], 2),
        ([(True, 254), (True, None), (False, None)], 1),  # saturated: our own sight goes on
        ([(True, 9), (True, 2)], 2),  # reset, and two since
        ([(True, 3), (None, 3), (False, 3)], 0),  # what is unknown did not fall
        ([(False, 3), (False, 3)], 0),
    ],
)
def test_each_time_a_link_went_down_is_counted_once(
    looks: list[tuple[bool | None, int | None]], flaps: int
) -> None:
    memory, total = Links(), 0
    for up, drops in looks:
        memory, told = seen(memory, link(up, drops=drops))
        total += told["mlx5_0/1"]
    assert total == flaps


def test_nothing_is_counted_across_a_boot_or_an_absence() -> None:
    memory, _ = seen(Links(), link(drops=3))
    assert seen(memory, link(drops=9), boot="another")[1] == {"mlx5_0/1": 0}
    missing = KnownLink(link=link(False), missing=True)
    assert count_flaps(missing, link(drops=9)) == (0, "")
