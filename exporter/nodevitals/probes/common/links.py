"""The links of a node: the expected rate of each, which are missing, how often each went down.

Pure: the links found in a run and the links known so far go in, the links known now come out. RDMA
ports and network interfaces are links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from typing import Literal, Optional

import msgspec

from nodevitals.probe import Readings

# A link that trains lower has at most half its rate; rates are sums over lanes, exact in a double.
SLOW_SHARE = 0.99

Counted = Literal["", "driver", "observed"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A link as found in one run.

    `place` is its PCI address and port, '' if unknown; `layer` is the value of its label;
    `rate` is in bytes per second; `down_count` is the driver's number of times that the link went
    down, by the counter `down_source`. None means unknown, outdated or saturated.
    """

    name: str
    place: str = ""
    layer: str = ""
    up: Optional[bool] = None
    rate: Optional[float] = None
    down_count: Optional[int] = None
    down_source: str = ""


class KnownLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link that was found in this run or an earlier one. `best_rate` is the highest rate that it
    had while it was up; `missing` means that this run did not find it; `counted` is how the last
    run detected that the link had gone down; `observed` is how often that was observed while the
    driver's count could not be read.

    Its place and its count are the last known ones: a value that one run cannot read still holds.
    """

    link: Link
    best_rate: Optional[float] = None
    missing: bool = False
    counted: Counted = ""
    observed: int = 0


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """The links known on a node; kept in the state directory."""

    known: tuple[KnownLink, ...] = ()
    boot_id: str = ""

    def seen(
        self,
        present: Iterable[Link],
        forgotten: AbstractSet[str],
        excluded: tuple[str, ...],
        boot_id: str,
    ) -> tuple[Links, dict[str, int]]:
        """The links known after a run that found these, and how often each went down since the
        last run.

        A known link that was not found is missing until it is back, until another link is found in
        its place (it was renamed or replaced), or until it is forgotten. Nothing is counted across
        a boot, nor while the identifier of the boot is unknown (''); a later run counts that.
        """
        before = {entry.link.name: entry for entry in self.known}
        flaps: dict[str, int] = {}
        known: list[KnownLink] = []
        places = set()
        for link in present:
            old = before.pop(link.name, None)
            last = old if self.boot_id == boot_id else None
            flaps[link.name], counted = count_flaps(last, link)
            observed = last.observed if last is not None and link.down_count is None else 0
            best = None if old is None or link.name in forgotten else old.best_rate
            if link.up and link.rate is not None:
                best = max(best or 0.0, link.rate)
            if old is not None:
                link = _completed(link, old.link, self.boot_id == boot_id if boot_id else None)
            places.add(link.place)
            known.append(
                KnownLink(
                    link=link,
                    best_rate=best,
                    counted=counted,
                    observed=observed + (counted == "observed"),
                )
            )
        places.discard("")
        for name, old in before.items():
            if name in forgotten or old.link.place in places or is_excluded(name, excluded):
                continue
            gone = msgspec.structs.replace(old.link, up=False, rate=None, down_count=None)
            known.append(KnownLink(link=gone, best_rate=old.best_rate, missing=True))
        known.sort(key=lambda entry: entry.link.name)
        return Links(known=tuple(known), boot_id=boot_id or self.boot_id), flaps


def _completed(link: Link, old: Link, same_boot: bool | None) -> Link:
    """The link, with its last place and last count if the run could not read them. The count of
    another boot is dropped; while the boot is unknown (None), the last count is kept.
    """
    changes: dict[str, object] = {} if link.place else {"place": old.place}
    if same_boot is None or (same_boot and link.down_count is None):
        changes |= {"down_count": old.down_count, "down_source": old.down_source}
    return msgspec.structs.replace(link, **changes)


def count_flaps(before: KnownLink | None, now: Link) -> tuple[int, Counted]:
    """How often a link went down since the last run, and how that was detected.

    The driver's count includes what happened between two runs; the change from up to down includes
    what the driver does not count. One event may appear in both, one run apart: it is counted once.
    """
    if before is None or before.missing:
        return 0, ""
    last = before.link
    both = now.down_count is not None and now.down_source == last.down_source
    if both and now.down_count is not None and last.down_count is not None:
        # A lower count was reset; it has the events since then.
        reset = now.down_count < last.down_count
        more = now.down_count if reset else now.down_count - last.down_count
        if more:
            return max(0, more - before.observed), "driver"
    if last.up and now.up is False and before.counted != "driver":
        return 1, "observed"
    return 0, ""


def state_of(known: KnownLink, expected_rate: float | None, flaps: int = 0) -> str:
    """The state for the history, one word. A link that is up and went down since the last run has
    flapped: a series of flaps has one row at its start and one at its end.
    """
    if known.missing:
        return "missing"
    if flaps and known.link.up:
        return "flapped"
    if known.link.up is None:
        return "unknown"
    if not known.link.up:
        return "down" if expected_rate is not None else "unused"
    rate = known.link.rate
    slow = rate is not None and expected_rate is not None and rate < expected_rate * SLOW_SHARE
    return "slow" if slow else "ok"


def describe(known: KnownLink, expected_rate: float | None) -> str:
    """The detail for the history, one line: layer, rate, expected rate, place."""
    words = [known.link.layer]
    if known.link.rate is not None:
        words.append(f"{known.link.rate * 8 / 1e9:g} Gb/s")
    if expected_rate is not None and expected_rate != known.link.rate:
        words.append(f"expected {expected_rate * 8 / 1e9:g} Gb/s")
    if known.link.place:
        words.append(f"at {known.link.place}")
    return " ".join(filter(None, words))


def record(known: KnownLink, expected_rate: float | None, flaps: int, readings: Readings) -> None:
    """Record the state of a link for the history."""
    state = state_of(known, expected_rate, flaps)
    readings.condition(known.link.name, state, describe(known, expected_rate))


def with_expected(links: Links, expected: Mapping[str, float]) -> Links:
    """The links, with those that the configuration expects and no run has found as missing."""
    names = {entry.link.name for entry in links.known}
    unseen = (
        KnownLink(link=Link(name=name, up=False), missing=True)
        for name in expected
        if name not in names
    )
    return msgspec.structs.replace(links, known=(*links.known, *unseen))


def is_excluded(name: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern (with `*`, `?`, `[]`) matches a link's name, or the device of a port."""
    device = name.partition("/")[0]
    return any(fnmatchcase(name, pattern) or fnmatchcase(device, pattern) for pattern in patterns)
