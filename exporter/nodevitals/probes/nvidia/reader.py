"""All GPUs of the node through NVML: which answer, what each reports, and the Xids of all.

A GPU is lost if NVML reports it as lost, if it left the PCI bus, or if NVML lists only other GPUs.
It stays lost until it is read again. A GPU that cannot be identified or read is neither lost nor
up.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device, KnownDevice
from nodevitals.probes.nvidia import nvml
from nodevitals.probes.nvidia.families import DEVICES, DRIVER_INFO, VENDOR, VERSION_MISMATCH
from nodevitals.probes.nvidia.gpu import GpuReader, GpuStatus
from nodevitals.probes.nvidia.hardware import Hardware
from nodevitals.probes.nvidia.hung import HungGpus
from nodevitals.probes.nvidia.listing import Listing, list_gpus, read_nodes
from nodevitals.probes.nvidia.nvml import (
    LOST,
    UNKNOWN,
    Failure,
    Gpu,
    GpuReadings,
    Handle,
    LostError,
    attempt,
    call,
)
from nodevitals.probes.nvidia.owners import ProcessOwners
from nodevitals.probes.nvidia.usage import UsageOptions

MAX_EVENTS_PER_RUN = 1000


class XidEvents:
    """NVML's queue of Xids, which the driver fills for every client that registers."""

    def __init__(self) -> None:
        self._set: Any = None
        self._registered: set[str] = set()
        self._slots: dict[int, str] = {}

    def register(self, gpus: Iterable[Gpu]) -> None:
        """Register for the Xids of these GPUs; register again for GPUs that were lost in
        between.
        """
        by_uuid = {gpu.uuid: gpu for gpu in gpus}
        self._registered &= by_uuid.keys()
        if self._set is None:
            self._set = attempt(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for uuid in by_uuid.keys() - self._registered:
            gpu = by_uuid[uuid]
            kind = pynvml.nvmlEventTypeXidCriticalError
            result = call(pynvml.nvmlDeviceRegisterEvents, gpu.handle, kind, self._set)
            if isinstance(result, Failure):
                continue  # the kernel log is the first source anyway
            self._registered.add(uuid)
            self._slots[_address(gpu.handle)] = gpu.slot

    def drain(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        xids: list[tuple[str, int]] = []
        while self._set is not None and len(xids) < MAX_EVENTS_PER_RUN:
            event = call(pynvml.nvmlEventSetWait, self._set, 0)
            if isinstance(event, Failure):
                if event.code != pynvml.NVML_ERROR_TIMEOUT:
                    self.close()  # the set of a lost GPU is useless
                break
            slot = self._slots.get(_address(event.device))
            if slot:
                xids.append((slot, int(event.eventData)))
        return xids

    def close(self) -> None:
        """Free the set; the next `register` creates another."""
        if self._set is not None:
            attempt(pynvml.nvmlEventSetFree, self._set)
        self._set, self._registered = None, set()


def _address(handle: Handle) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


_HANG = nvml.Failure(nvml.HANG, "the driver did not return in an earlier run")
_LATER = nvml.Failure(nvml.NOT_FOUND, "the driver has it since after the start of NVML")


class GpuScan(msgspec.Struct):
    """The GPUs that NVML lists, and those that were read, with their status. `lost` and
    `unreadable` have a failure of each other GPU, by slot, or by uuid without a slot. `outdated`:
    another start of the library might list more GPUs.
    """

    listing: Listing
    read: dict[Device, GpuStatus] = {}
    lost: dict[str, Failure] = {}
    unreadable: dict[str, Failure] = {}
    outdated: bool = False

    @property
    def unknown(self) -> int:
        """Number of listed GPUs that are neither lost, nor read, nor among the unreadable ones:
        which GPUs they are is unknown.
        """
        others = len(self.listing.gpus) + len(self.listing.lost) + len(self.listing.unreadable)
        return max(self.listing.count - others, 0)

    @property
    def total(self) -> int:
        """Number of GPUs: those that NVML counts, and those that it cannot open."""
        return max(self.listing.count, len(self.read) + len(self.lost) + len(self.unreadable))


class NvmlReader:
    """Reads all GPUs through the started library. Its constructor and `scan` raise NvmlError."""

    def __init__(
        self,
        library: str,
        hardware: Hardware,
        errors_by_link: bool,
        usage: UsageOptions,
        owners: ProcessOwners,
    ) -> None:
        # NVML lists the GPUs at its start; later ones may be missing.
        self._fewest_nodes = read_nodes()
        # The GPUs that the driver has had without interruption.
        self._since_start = frozenset(hardware.driver)
        self._bindings = hardware.bindings
        nvml.start(library)
        self._errors_by_link = errors_by_link
        self._usage = usage
        self._owners = owners
        self._readers: dict[str, GpuReader] = {}
        self._events = XidEvents()
        self._texts: dict[tuple[str, str], str] = {}
        self._unlisted: frozenset[str] = frozenset()
        self._refused: dict[str, Failure] = {}

    def scan(
        self,
        hardware: Hardware,
        known: Iterable[Device],
        readings: Readings,
        hung: HungGpus,
        before_hung: Callable[[GpuScan], None],
    ) -> GpuScan:
        """Read every GPU that the library lists, and look for one in each slot that the kernel
        lists or that a known GPU had. A GPU that hung before is left out, or comes last:
        before that, `before_hung` is called with a scan in which the GPU is unreadable; the
        samples that it adds are discarded afterwards.
        """
        nvml.failures.clear()
        self._owners.start_run()
        devices = {device.uuid: device for device in known}
        slots = {*hardware.pci, *hardware.driver, *(device.slot for device in devices.values())}
        listing = list_gpus(slots - hardware.passed_through - {""}, devices.values())
        scan = GpuScan(listing, {}, dict(listing.lost), dict(listing.unreadable))
        self._forget_departed(hardware)
        self._explain_unlisted(scan, hardware)
        readings.add(DEVICES, listing.count, "nvml")
        driver_version = self._report_versions(readings)
        places = {_place(gpu): gpu.uuid for gpu in listing.gpus}
        interrupted = {places[place] for place in readings.interrupted if place in places}
        left_out = hung.begin(places.values(), interrupted)
        scan.unreadable.update(
            {gpu.slot or gpu.uuid: _HANG for gpu in listing.gpus if gpu.uuid in hung.gpus}
        )
        for gpu in sorted(listing.gpus, key=lambda gpu: gpu.uuid in hung.gpus):
            if gpu.uuid in left_out:
                continue
            mark = readings.mark()
            if gpu.uuid in hung.gpus:
                readings.at(_place(gpu), "an earlier run")  # until its first call is announced
                before_hung(scan)
            until = readings.mark()
            scan.unreadable.pop(gpu.slot or gpu.uuid, None)
            self._read_gpu(gpu, devices.get(gpu.uuid), driver_version, scan, readings)
            readings.discard_since(mark, until)
            hung.returned(gpu.uuid)
        nvml.position.device = "all GPUs"
        scan.outdated |= self._has_later(scan, hardware)
        read = {device.uuid for device in scan.read}
        self._readers = {uuid: reader for uuid, reader in self._readers.items() if uuid in read}
        self._events.register(gpu for gpu in listing.gpus if gpu.uuid in read)
        return scan

    def drain_xids(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        return self._events.drain()

    def _explain_unlisted(self, scan: GpuScan, hardware: Hardware) -> None:
        """Add the GPUs that the driver has and NVML does not list, unless they are dead: GPUs that
        the driver got later, and all GPUs if device files cannot be opened. A GPU that could not be
        opened stays unreadable until the next start of the library.
        """
        listing = scan.listing
        listed = {*(gpu.slot for gpu in listing.gpus), *listing.lost, *listing.unreadable}
        unlisted = frozenset(hardware.driver) - listed - hardware.passed_through
        # A listed GPU without a slot in this run may be among them.
        if unlisted and not (scan.unknown or "" in listed or hardware.excludes_gpus):
            nodes = read_nodes()
            self._fewest_nodes = min(self._fewest_nodes, nodes, key=lambda node: node.usable)
            failure = self._fewest_nodes.refusal(len(hardware.driver))
            if failure:
                self._refused |= dict.fromkeys(unlisted - self._unlisted, failure)
            self._refused |= dict.fromkeys(unlisted - self._since_start, _LATER)
            self._unlisted |= unlisted
            refused = not unlisted.isdisjoint(self._refused)
            scan.outdated = refused and nodes.usable > self._fewest_nodes.usable
        scan.unreadable |= {
            slot: error for slot, error in self._refused.items() if slot in unlisted
        }

    def _forget_departed(self, hardware: Hardware) -> None:
        bindings = self._bindings.items()
        moved = {
            slot
            for slot, binding in bindings
            if hardware.bindings.get(slot, binding) not in (binding, 0)
        }
        self._since_start = (self._since_start & frozenset(hardware.driver)) - moved

    def _has_later(self, scan: GpuScan, hardware: Hardware) -> bool:
        """Whether the driver got a GPU after the start of the library that was not read."""
        later = frozenset(hardware.driver) - self._since_start - hardware.passed_through
        return not later <= {device.slot for device in scan.read}

    def _read_gpu(
        self,
        gpu: Gpu,
        known: Device | None,
        driver_version: str,
        scan: GpuScan,
        readings: Readings,
    ) -> None:
        """Read one GPU into the scan. If only its identity can be read, it is not up."""
        nvml.failures.clear()
        nvml.position.device = _place(gpu)
        mark = readings.mark()
        try:
            of_gpu = GpuReadings(gpu.handle, readings, gpu.index, gpu.uuid)
            device = self._read_identity(gpu, of_gpu, known, driver_version)
            identity = readings.mark()
            made = GpuReader(self._errors_by_link, self._usage, self._owners)
            reader = self._readers.setdefault(gpu.uuid, made)
            status = reader.read(of_gpu, driver_version)
        except LostError as error:
            readings.discard_since(mark)
            scan.lost[gpu.slot or gpu.uuid] = error.failure
            return
        if readings.mark() == identity:
            readings.discard_since(mark)
            scan.unreadable[gpu.slot or gpu.uuid] = nvml.main_failure()
        else:
            scan.read[device] = status

    def _read_identity(
        self, gpu: Gpu, of_gpu: GpuReadings, known: Device | None, driver_version: str
    ) -> Device:
        serial = self._text(gpu.uuid, "serial", of_gpu.query(pynvml.nvmlDeviceGetSerial))
        model = self._text(gpu.uuid, "model", of_gpu.query(pynvml.nvmlDeviceGetName))
        vbios = of_gpu.query(pynvml.nvmlDeviceGetVbiosVersion)
        firmware = self._text(gpu.uuid, "firmware", vbios)
        device = accelerators.completed(
            Device(uuid=gpu.uuid, index=gpu.index, slot=gpu.slot, serial=serial, model=model), known
        )
        labels = (device.index, device.uuid, device.serial, device.slot, device.model)
        of_gpu.readings.add(accelerators.INFO, 1, VENDOR, *labels, driver_version, firmware, "")
        return device

    def _report_versions(self, readings: Readings) -> str:
        driver = self._text("", "driver", attempt(pynvml.nvmlSystemGetDriverVersion))
        cuda = attempt(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""
        library = self._text("", "library", nvml.library_version())
        labels = (driver, library, self._text("", "cuda", cuda_version))
        readings.add(DRIVER_INFO, 1, *labels)
        readings.add(VERSION_MISMATCH, 0)
        return driver

    def _text(self, uuid: str, name: str, value: str | None) -> str:
        """A text that does not change while the driver is loaded; the last one if the call
        fails.
        """
        if value:
            self._texts[uuid, name] = value
        return self._texts.get((uuid, name), "")


def _place(gpu: Gpu) -> str:
    return f"GPU {gpu.index or gpu.slot}"


class Unread(msgspec.Struct):
    """The arguments of `Inventory.seen`: the `lost` slots, the `withheld` slots and uuids, and
    NVML's codes of both. `unreadable` is the number of listed GPUs that are not lost and were not
    read. `strangers` are failures of unknown GPUs, by index and slot, one of which is ''.
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
    """Decide which GPUs are lost. `off_the_bus` are slots that are no longer on the PCI bus;
    `passed_through` are the slots of virtual machines.
    """
    named = {**scan.unreadable, **scan.lost}
    unnamed = dict(scan.listing.failed) if scan.unknown else {}
    unread = Unread(
        lost={key for key in scan.lost if ":" in key},  # other keys are uuids of known GPUs
        withheld=set(passed_through),
        unreadable=len(scan.unreadable) + scan.unknown,
    )
    read = {device.uuid for device in scan.read}
    for entry in known:
        device = entry.device
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
        if entry.lost_at is not None or device.slot in off_the_bus:
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
