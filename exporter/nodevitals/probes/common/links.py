"""Links that a node is known to have: what each should carry, which are gone, which flap.

Pure: what a look found goes in with what is remembered, what to remember comes out. RDMA ports
and network interfaces are both links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from nodevitals.probe import Readings

# A link that trains lower comes out at half or less; rates are sums of lanes, exact in a double.
SLOW_SHARE = 0.99


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link as found. `place` is where it is plugged in ('' where that is unknown), `layer` the
    word that its labels need; `rate` is in bytes a second, and `drops` is the driver's own count
    of how often the link went down: None where unknown, stale or saturated.
    """

    name: str
    place: str = ""
    layer: str = ""
    up: bool | None = None
    rate: float | None = None
    drops: int | None = None


class KnownLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link as remembered. `best_rate` is the highest it ever had while it was up; `missing` says
    that it is not there now; `counted` says how the last look learnt that the link had gone down.
    """

    link: Link
    best_rate: float | None = None
    missing: bool = False
    counted: Literal["", "driver", "sight"] = ""


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """The links known on a node; it lives in the state directory from run to run."""

    known: tuple[KnownLink, ...] = ()
    boot_id: str = ""

    def seen(
        self,
        found: Iterable[Link],
        forgotten: AbstractSet[str],
        excluded: tuple[str, ...],
        boot_id: str,
    ) -> tuple[Links, dict[str, int]]:
        """What is known after a look that found these, and how often each went down since the
        last look.

        A known link that is not among them is missing, until it is back, another is found in its
        place (it was renamed or exchanged), or it was forgotten. What went down before this boot
        is not counted.
        """
        before = {one.link.name: one for one in self.known}
        flaps: dict[str, int] = {}
        known: list[KnownLink] = []
        places = set()
        for link in found:
            old = before.pop(link.name, None)
            places.add(link.place)
            same_boot = old is not None and self.boot_id == boot_id
            flaps[link.name], counted = count_flaps(old if same_boot else None, link)
            best = None if old is None or link.name in forgotten else old.best_rate
            if link.up and link.rate is not None:
                best = max(best or 0.0, link.rate)
            known.append(KnownLink(link=link, best_rate=best, counted=counted))
        places.discard("")
        for name, old in before.items():
            if name in forgotten or old.link.place in places or is_excluded(name, excluded):
                continue
            gone = msgspec.structs.replace(old.link, up=False, rate=None, drops=None)
            known.append(KnownLink(link=gone, best_rate=old.best_rate, missing=True))
        known.sort(key=lambda one: one.link.name)
        return Links(known=tuple(known), boot_id=boot_id), flaps


def count_flaps(before: KnownLink | None, now: Link) -> tuple[int, Literal["", "driver", "sight"]]:
    """How often a link went down since it was last looked at, and how that was learnt.

    The driver's count sees what happened between two looks; our own sight sees what the driver
    does not count. One event may show in both, one look apart: it is counted once.
    """
    if before is None or before.missing:
        return 0, ""
    last = before.link
    if now.drops is not None and last.drops is not None:
        # A count that fell was reset, and has counted what came after.
        moved = now.drops - last.drops if now.drops >= last.drops else now.drops
        if moved:
            return moved - (before.counted == "sight"), "driver"
    if last.up and now.up is False and before.counted != "driver":
        return 1, "sight"
    return 0, ""


def state_of(one: KnownLink, expected_rate: float | None, flaps: int = 0) -> str:
    """One word for the history. A link that is up now, and was down since the last look, flapped:
    however often it does, that is one row when it begins and one when it ends.
    """
    if one.missing:
        return "missing"
    if flaps and one.link.up:
        return "flapped"
    if one.link.up is None:
        return "unknown"
    if not one.link.up:
        return "down" if expected_rate is not None else "unused"
    rate = one.link.rate
    slow = rate is not None and expected_rate is not None and rate < expected_rate * SLOW_SHARE
    return "slow" if slow else "ok"


def describe(one: KnownLink, expected_rate: float | None) -> str:
    """One line for the history: at which rate of which, and where it is plugged in."""
    words = [one.link.layer]
    if one.link.rate is not None:
        words.append(f"{one.link.rate * 8 / 1e9:g} Gb/s")
    if expected_rate is not None and expected_rate != one.link.rate:
        words.append(f"expected {expected_rate * 8 / 1e9:g} Gb/s")
    if one.link.place:
        words.append(f"at {one.link.place}")
    return " ".join(filter(None, words))


def note(one: KnownLink, expected_rate: float | None, flaps: int, readings: Readings) -> None:
    """A link's state, for the history."""
    state = state_of(one, expected_rate, flaps)
    readings.condition(one.link.name, state, describe(one, expected_rate))


def with_expected(links: Links, expected: Mapping[str, float]) -> Links:
    """The links, and those that the configuration names but nobody ever saw, as missing."""
    names = {one.link.name for one in links.known}
    unseen = (
        KnownLink(link=Link(name=name, up=False), missing=True)
        for name in expected
        if name not in names
    )
    return msgspec.structs.replace(links, known=(*links.known, *unseen))


def is_excluded(name: str, patterns: Iterable[str]) -> bool:
    """Whether a link, or the device whose port it is, is one of these; * ? [] stand for others."""
    device = name.partition("/")[0]
    return any(fnmatchcase(name, one) or fnmatchcase(device, one) for one in patterns)
