"""All GPUs of the node through NVML: which answer, what each reports, and the Xids of all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device
from nodevitals.probes.nvidia import nvml
from nodevitals.probes.nvidia.device_nodes import read_nodes
from nodevitals.probes.nvidia.events import XidEvents
from nodevitals.probes.nvidia.families import DEVICES, DRIVER_INFO, VENDOR, VERSION_MISMATCH
from nodevitals.probes.nvidia.gpu import GpuReader, GpuStatus
from nodevitals.probes.nvidia.hardware import Hardware
from nodevitals.probes.nvidia.hung import HungGpus
from nodevitals.probes.nvidia.listing import Listing, list_gpus
from nodevitals.probes.nvidia.nvml import Failure, Gpu, LostError, attempt, query
from nodevitals.probes.nvidia.owners import ProcessOwners
from nodevitals.probes.nvidia.usage import UsageOptions

_HANG = nvml.Failure(nvml.HANG, "the driver did not return in an earlier run")
_LATER = nvml.Failure(nvml.NOT_FOUND, "the driver has it since after the start of NVML")


class GpuScan(msgspec.Struct):
    """What NVML lists, and the GPUs that were read, with their status. `lost` and `unreadable` are
    the others, with a failure of each: by slot, or by uuid where there is no slot. `outdated` says
    that another start of the library might list more.
    """

    listing: Listing
    read: dict[Device, GpuStatus] = {}
    lost: dict[str, Failure] = {}
    unreadable: dict[str, Failure] = {}
    outdated: bool = False

    @property
    def unknown(self) -> int:
        """Number of listed GPUs that are neither lost, nor read, nor among the unreadable: it is
        not known which ones they are.
        """
        others = len(self.listing.gpus) + len(self.listing.lost) + len(self.listing.unreadable)
        return max(self.listing.count - others, 0)

    @property
    def total(self) -> int:
        """Number of GPUs: those that NVML counts, and those that it cannot open."""
        return max(self.listing.count, len(self.read) + len(self.lost) + len(self.unreadable))


class NvmlReader:
    """The library, started. Its constructor and `scan` raise NvmlError."""

    def __init__(
        self,
        library: str,
        hardware: Hardware,
        errors_by_link: bool,
        usage: UsageOptions,
        owners: ProcessOwners,
    ) -> None:
        # NVML's list is that of its start: what comes after this may not be in it.
        self._fewest_nodes = read_nodes()
        # What the driver has had without a break.
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
        lists or that a known GPU had. A GPU that hung before is left out, or comes last;
        `before_hung` is called before it, with a scan in which it is unreadable, and what it adds
        to the readings is discarded afterwards.
        """
        nvml.failures.clear()
        self._owners.start_run()
        devices = {device.uuid: device for device in known}
        slots = {*hardware.pci, *hardware.driver, *(one.slot for one in devices.values())}
        listing = list_gpus(slots - hardware.passed_through - {""}, devices.values())
        scan = GpuScan(listing, {}, dict(listing.lost), dict(listing.unreadable))
        self._forget_departed(hardware)
        self._explain_unlisted(scan, hardware)
        readings.add(DEVICES, listing.count, "nvml")
        driver_version = self._report_versions(readings)
        places = {_place(gpu): gpu.uuid for gpu in listing.gpus}
        interrupted = {places[one] for one in readings.interrupted if one in places}
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
        self._readers = {uuid: one for uuid, one in self._readers.items() if uuid in read}
        self._events.register(gpu for gpu in listing.gpus if gpu.uuid in read)
        return scan

    def drain_xids(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        return self._events.drain()

    def _explain_unlisted(self, scan: GpuScan, hardware: Hardware) -> None:
        """Add the GPUs that the driver has and NVML does not list, unless they are dead: those that
        the driver got later, and all where device files cannot be opened. One that could not be
        opened remains so until the next start of the library.
        """
        listing = scan.listing
        listed = {*(gpu.slot for gpu in listing.gpus), *listing.lost, *listing.unreadable}
        unlisted = frozenset(hardware.driver) - listed - hardware.passed_through
        # One that is listed and has no slot in this run may be among them.
        if unlisted and not (scan.unknown or "" in listed or hardware.excludes_gpus):
            nodes = read_nodes()
            self._fewest_nodes = min(self._fewest_nodes, nodes, key=lambda one: one.usable)
            failure = self._fewest_nodes.refusal(len(hardware.driver))
            if failure:
                self._refused |= dict.fromkeys(unlisted - self._unlisted, failure)
            self._refused |= dict.fromkeys(unlisted - self._since_start, _LATER)
            self._unlisted |= unlisted
            refused = not unlisted.isdisjoint(self._refused)
            scan.outdated = refused and nodes.usable > self._fewest_nodes.usable
        scan.unreadable |= {slot: one for slot, one in self._refused.items() if slot in unlisted}

    def _forget_departed(self, hardware: Hardware) -> None:
        bindings = self._bindings.items()
        moved = {slot for slot, one in bindings if hardware.bindings.get(slot, one) not in (one, 0)}
        self._since_start = (self._since_start & frozenset(hardware.driver)) - moved

    def _has_later(self, scan: GpuScan, hardware: Hardware) -> bool:
        """Whether the driver got a GPU after the start of the library, and it was not read."""
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
        """Read one GPU into the scan. A GPU of which only the identity can be read is not up."""
        nvml.failures.clear()
        nvml.position.device = _place(gpu)
        mark = readings.mark()
        try:
            device = self._read_identity(gpu, known, driver_version, readings)
            identity = readings.mark()
            made = GpuReader(self._errors_by_link, self._usage, self._owners)
            reader = self._readers.setdefault(gpu.uuid, made)
            status = reader.read(gpu, driver_version, readings)
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
        self, gpu: Gpu, known: Device | None, driver_version: str, readings: Readings
    ) -> Device:
        serial = self._text(gpu.uuid, "serial", query(pynvml.nvmlDeviceGetSerial, gpu.handle))
        model = self._text(gpu.uuid, "model", query(pynvml.nvmlDeviceGetName, gpu.handle))
        vbios = query(pynvml.nvmlDeviceGetVbiosVersion, gpu.handle)
        firmware = self._text(gpu.uuid, "firmware", vbios)
        device = accelerators.completed(
            Device(uuid=gpu.uuid, index=gpu.index, slot=gpu.slot, serial=serial, model=model), known
        )
        labels = (device.index, device.uuid, device.serial, device.slot, device.model)
        readings.add(accelerators.INFO, 1, VENDOR, *labels, driver_version, firmware, "")
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
        """A text that does not change while the driver is loaded: as it was, where it fails."""
        if value:
            self._texts[uuid, name] = value
        return self._texts.get((uuid, name), "")


def _place(gpu: Gpu) -> str:
    return f"GPU {gpu.index or gpu.slot}"
