"""The NPUs that a run did not read: which are lost, and which are only unreadable. Pure.

An NPU that has left the PCI bus is lost; where its bus id is unknown, one that a whole table does
not list. Any other one without data is unreadable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from nodevitals.probes.ascend.table import Chip, Table
from nodevitals.probes.common.accelerators import Device


class Unread(msgspec.Struct, frozen=True):
    """The chips of which the table has a row without data, the reason by uuid for each that is
    unreadable, and the slots of all of these: also bus ids that a cut-off table does not list.
    """

    failed: tuple[Device, ...]
    codes: dict[str, str]
    slots: frozenset[str]


def explain(
    known: Iterable[Device],
    chips: Mapping[Device, Chip],
    table: Table,
    on_pci: AbstractSet[str],
    may_be_on_bus: Callable[[str], bool],
) -> Unread:
    """Decide which of the NPUs that were not read are unreadable. `chips` are those of the table,
    `on_pci` the bus ids of NPUs.
    """
    whole = table.complete and not table.unparsed
    failed = tuple(device for device, chip in chips.items() if chip.failed)
    uuids, slots = {one.uuid for one in chips}, {one.slot for one in chips}
    absent = [
        device
        for device in known
        if device.uuid not in uuids
        and device.slot not in slots
        and (may_be_on_bus(_bus_id(device)) if ":" in _bus_id(device) else not whole)
    ]
    codes = {one.uuid: "no_data" for one in failed} | {one.uuid: "not_listed" for one in absent}
    unread = {one.slot for one in (*failed, *absent)}
    if not whole:
        listed = {chip.bus_id for chip in chips.values()}
        unread |= on_pci - listed - {_bus_id(one) for one in absent}
    return Unread(failed, codes, frozenset(unread))


def _bus_id(device: Device) -> str:
    return device.slot.partition("/")[0]
