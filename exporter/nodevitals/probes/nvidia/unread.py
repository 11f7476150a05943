"""The GPUs that a run did not read: which of them are lost, and why the others are not. Pure.

A GPU is lost where NVML returns so, where it left the PCI bus, or where NVML lists only others. It
stays lost until it is read again. One that cannot be identified or read is neither lost nor up.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec

from nodevitals.probes.common.accelerators import KnownDevice
from nodevitals.probes.nvidia.nvml import LOST, UNKNOWN, Failure
from nodevitals.probes.nvidia.reader import GpuScan


class Unread(msgspec.Struct):
    """What `Inventory.seen` takes: slots that are `lost`, slots and uuids that are `withheld`, and
    NVML's codes of both. `unreadable` is the number of listed GPUs that are not lost and were not
    read. `strangers` are failures of GPUs that were never known: by index and slot, one of them ''.
    """

    lost: set[str]
    withheld: set[str]
    unreadable: int
    codes: dict[str, str] = {}
    strangers: dict[tuple[str, str], Failure] = {}
    texts: list[str] = []


def explain(
    scan: GpuScan,
    known: Iterable[KnownDevice],
    passed_through: AbstractSet[str],
    off_the_bus: AbstractSet[str],
) -> Unread:
    """Decide which GPUs are lost. `off_the_bus` are slots that were on the PCI bus and no longer
    are; `passed_through` are those of virtual machines.
    """
    named = {**scan.unreadable, **scan.lost}
    unnamed = dict(scan.listing.failed) if scan.unknown else {}
    unread = Unread(
        lost={key for key in scan.lost if ":" in key},  # others are uuids, of known GPUs
        withheld=set(passed_through),
        unreadable=len(scan.unreadable) + scan.unknown,
    )
    read = {device.uuid for device in scan.read}
    for one in known:
        device = one.device
        if device.uuid in read or device.slot in passed_through:
            continue
        failure = named.pop(device.slot, None) or named.pop(device.uuid, None)
        if failure is None and scan.unknown:
            failure = unnamed.pop(device.index, Failure(UNKNOWN, "nvmlDeviceGetHandleByIndex"))
        if failure is None:  # NVML lists all its GPUs, and this one is not among them
            continue
        unread.codes[device.uuid] = failure.label
        if failure.code == LOST:
            continue
        if one.lost_at is not None or device.slot in off_the_bus:
            unread.unreadable -= 1
            continue
        unread.withheld.add(device.uuid)
        unread.texts.append(f"GPU {device.index} at {device.slot or device.uuid}: {failure}")
    _add_strangers(unread, named, unnamed)
    unread.unreadable = max(unread.unreadable, 0)
    return unread


def _add_strangers(unread: Unread, named: dict[str, Failure], unnamed: dict[str, Failure]) -> None:
    for slot, failure in named.items():
        unread.codes[slot] = failure.label
        if failure.code != LOST:
            unread.strangers["", slot] = failure
            unread.texts.append(f"GPU at {slot}: {failure}")
    for index, failure in unnamed.items():
        unread.strangers[index, ""] = failure
        unread.texts.append(f"GPU {index}: {failure}")
