"""Which local disks a node has had in this boot, and which of them are gone.

Pure: the disks of a run and what is known go in, what is known now comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec

from nodevitals.probes.disks.block import Disk


class KnownDisk(msgspec.Struct, frozen=True, array_like=True):
    """A disk by its name; '' where its serial number or its place is unknown."""

    name: str
    serial: str = ""
    place: str = ""


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The disks of this boot: those that are there and those that are gone, and how many there
    were at most, less those that were forgotten.
    """

    boot_id: str = ""
    present: tuple[KnownDisk, ...] = ()
    gone: tuple[KnownDisk, ...] = ()
    highest: int = 0

    def seen(self, disks: Iterable[Disk], forgotten: AbstractSet[str], boot_id: str) -> Inventory:
        """What is known after a run that found these. While the boot is unknown (''), it is taken
        for the same.
        """
        same = boot_id in ("", self.boot_id)
        before = (*self.present, *self.gone) if same else ()
        known = {(one.name, one.serial): one for one in before}
        now = [KnownDisk(one.name, one.serial, one.place) for one in disks]
        serials = {one.serial for one in now} - {""}
        names, places = {one.name for one in now}, {one.place for one in now} - {""}
        gone = [
            one
            for one in known.values()
            # Another disk in its slot replaces it; under its name, it does unless it moved there.
            if one.serial not in serials and one.place not in places and one.name not in names
        ]
        retired = [one for one in gone if {one.serial, one.name} & forgotten]
        gone = [one for one in gone if one not in retired]
        highest = max(self.highest if same else 0, len(now)) - len(retired)
        highest = max(highest, len(now))
        if len(now) >= highest:
            gone = []
        return Inventory(
            boot_id=boot_id or self.boot_id,
            present=tuple(now),
            gone=tuple(gone),
            highest=highest,
        )
