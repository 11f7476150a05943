"""Links of a node: known, missing, slow; how often each went down."""

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
    before: Links, *found: Link, forgotten: str = "", boot: str = "boot"
) -> tuple[Links, dict[str, int]]:
    return before.seen(found, {forgotten}, (), boot)


def missing_by_name(links: Links) -> dict[str, bool]:
    return {one.link.name: one.missing for one in links.known}


def test_expected_rate_is_the_highest_while_the_link_was_up() -> None:
    links, _ = seen(Links(), link(rate=HDR))
    links, _ = seen(links, link(rate=NDR))
    links, _ = seen(links, link(rate=HDR))
    assert links.known[0].best_rate == NDR
    assert state_of(links.known[0], NDR) == "slow"


@pytest.mark.parametrize("up", [False, None])
def test_rate_of_a_link_that_is_not_up_is_ignored(up: bool | None) -> None:
    links, _ = seen(Links(), link(up))
    assert links.known[0].best_rate is None


def test_forgetting_a_present_link_resets_its_best_rate() -> None:
    links, _ = seen(Links(), link())
    links, _ = seen(links, link(rate=HDR), forgotten="mlx5_0/1")
    assert links.known[0].best_rate == HDR


def test_lost_link_is_missing_until_it_returns() -> None:
    links, _ = seen(Links(), link(layer="InfiniBand"))
    links, _ = seen(links)
    gone = links.known[0]
    assert (gone.missing, gone.link.up, gone.link.layer) == (True, False, "InfiniBand")
    assert gone.best_rate == NDR
    links, flaps = seen(links, link())
    assert (missing_by_name(links), flaps) == ({"mlx5_0/1": False}, {"mlx5_0/1": 0})


def test_missing_link_can_be_forgotten() -> None:
    links, _ = seen(Links(), link())
    links, _ = seen(links, forgotten="mlx5_0/1")
    assert missing_by_name(links) == {}


def test_link_with_another_name_in_the_same_place_replaces_a_missing_one() -> None:
    links, _ = seen(Links(), link())
    links, _ = seen(links, link(name="rocep26s0/1"))
    assert missing_by_name(links) == {"rocep26s0/1": False}


def test_links_in_unknown_places_do_not_replace_each_other() -> None:
    links, _ = seen(Links(), link(name="rxe0/1", place=""))
    links, _ = seen(links, link(name="rxe1/1", place=""))
    assert missing_by_name(links) == {"rxe0/1": True, "rxe1/1": False}


def test_excluded_link_is_not_missing() -> None:
    links, _ = seen(Links(), link())
    links, _ = links.seen((), frozenset(), ("mlx5_*",), "boot")
    assert missing_by_name(links) == {}


def test_link_is_excluded_by_its_name_or_its_device() -> None:
    assert is_excluded("mlx5_bond_0/1", ("mlx5_bond_*",))
    assert is_excluded("mlx5_0/2", ("mlx5_0/2",))
    assert not is_excluded("mlx5_0/1", ("mlx5_0/2", "mlx5"))


@pytest.mark.parametrize(
    ("runs", "flaps"),
    [
        ([(True, 3), (True, 3)], 0),
        ([(True, 3), (True, 5)], 2),  # between two runs
        ([(True, 3), (False, 4), (True, 4)], 1),
        ([(True, 3), (False, 3), (True, 3)], 1),  # the driver does not count
        ([(True, None), (False, None), (True, None), (False, None)], 2),
        ([(True, 3), (False, 3), (False, 4)], 1),  # it counts one run later
        ([(True, 3), (True, 4), (False, 4)], 1),  # or one run earlier
        ([(True, 3), (True, 4), (False, 5)], 2),
        ([(True, 254), (True, None), (False, None)], 1),  # saturated: the change of state counts
        ([(True, 9), (True, 2)], 2),  # reset, and two since
        ([(True, 3), (None, 3), (False, 3)], 0),  # unknown is not down
        ([(False, 3), (False, 3)], 0),
    ],
)
def test_each_loss_of_a_link_is_counted_once(
    runs: list[tuple[bool | None, int | None]], flaps: int
) -> None:
    links, total = Links(), 0
    for up, down_count in runs:
        links, counted = seen(links, link(up, down_count=down_count))
        total += counted["mlx5_0/1"]
    assert total == flaps


def test_counts_of_two_files_are_not_compared() -> None:
    """A driver's count that cannot be read for a while is replaced by that of another file."""
    links, total = Links(), 0
    for count, source in ((7, "a"), (2, "b"), (7, "a"), (8, "a")):
        links, flaps = seen(links, link(down_count=count, down_source=source))
        total += flaps["mlx5_0/1"]
    assert total == 1


def test_what_happened_while_the_count_was_unknown_is_counted_once() -> None:
    links, total = seen(Links(), link(down_count=3))[0], 0
    for up, count in ((False, None), (False, None), (True, None), (False, None), (True, 6)):
        links, flaps = seen(links, link(up, down_count=count))
        total += flaps["mlx5_0/1"]
    assert total == 3


def test_flaps_wait_while_the_boot_is_unknown_and_the_place_is_kept() -> None:
    links, _ = seen(Links(), link(down_count=3))
    links, flaps = seen(links, link(down_count=5, place=""), boot="")
    assert flaps == {"mlx5_0/1": 0}
    assert links.known[0].link.place == "0000:1a:00.0/1"
    assert seen(links, link(down_count=5))[1] == {"mlx5_0/1": 2}
    assert seen(links, link(down_count=5), boot="another")[1] == {"mlx5_0/1": 0}


def test_no_flap_is_counted_across_a_boot_or_an_absence() -> None:
    links, _ = seen(Links(), link(down_count=3))
    assert seen(links, link(down_count=9), boot="another")[1] == {"mlx5_0/1": 0}
    missing = KnownLink(link=link(False), missing=True)
    assert count_flaps(missing, link(down_count=9)) == (0, "")
