"""All cards of the node through NVML: who answers, what each tells, which Xids were heard."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device
from nodevitals.probes.nvidia import nvml
from nodevitals.probes.nvidia.card import CardReader, Told
from nodevitals.probes.nvidia.families import DEVICES, DRIVER_INFO, VENDOR, VERSION_MISMATCH
from nodevitals.probes.nvidia.nvml import Found, LostError, ask


class Look(msgspec.Struct):
    """The cards that were read, with what they told; the slots whose card is lost; and the slots
    whose card is there, but not for us.
    """

    read: dict[Device, Told]
    refused: set[str]
    withheld: set[str]


class Node:
    """The library, started. Making one and looking raise NvmlError."""

    def __init__(self, library: str, links_apart: bool) -> None:
        nvml.start(library)
        self._links_apart = links_apart
        self._readers: dict[str, CardReader] = {}
        self._events = nvml.XidEvents()

    def look(self, slots: Iterable[str], readings: Readings) -> Look:
        """Read every card the library has, and ask for those it should have in these slots."""
        found = nvml.cards()
        refused, withheld = set(), set()
        for slot in sorted(set(slots) - {one.slot for one in found}):
            answer = nvml.card_at(slot)
            if isinstance(answer, Found):
                found.append(answer)
            elif answer in nvml.LOST_OR_UNKNOWN:
                refused.add(slot)
            elif answer == nvml.NO_PERMISSION:
                withheld.add(slot)
        readings.add(DEVICES, len(found), "nvml")
        driver_version = _versions(readings)
        read = {}
        for one in found:
            before = len(readings.samples)
            try:
                card = _card(one, driver_version, readings)
                read[card] = self._reader(one).read(one, readings)
            except LostError:
                del readings.samples[before:]
                refused.add(one.slot)
        alive = [one for one in found if one.slot not in refused]
        self._readers = {one.uuid: self._reader(one) for one in alive}
        self._events.register(alive)
        return Look(read, refused, withheld)

    def heard_xids(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        return self._events.drain()

    def _reader(self, found: Found) -> CardReader:
        return self._readers.setdefault(found.uuid, CardReader(self._links_apart))


def _versions(readings: Readings) -> str:
    driver: str = ask(pynvml.nvmlSystemGetDriverVersion) or ""
    cuda = ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""
    readings.add(DRIVER_INFO, 1, driver, nvml.library_version() or "", cuda_version)
    readings.add(VERSION_MISMATCH, 0)
    return driver


def _card(found: Found, driver_version: str, readings: Readings) -> Device:
    calls = (pynvml.nvmlDeviceGetSerial, pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetVbiosVersion)
    serial, model, firmware = (ask(call, found.handle) or "" for call in calls)
    card = Device(
        uuid=found.uuid, index=str(found.index), slot=found.slot, serial=serial, model=model
    )
    labels = (card.index, card.uuid, serial, card.slot, model, driver_version, firmware, "")
    readings.add(accelerators.INFO, 1, VENDOR, *labels)
    return card
