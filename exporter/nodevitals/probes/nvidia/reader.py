"""All GPUs of the node through NVML: which answer, what each reports, and the Xids of all."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pynvml

from nodevitals.probe import Readings
from nodevitals.probes.common import accelerators
from nodevitals.probes.common.accelerators import Device
from nodevitals.probes.nvidia import nvml
from nodevitals.probes.nvidia.families import DEVICES, DRIVER_INFO, VENDOR, VERSION_MISMATCH
from nodevitals.probes.nvidia.gpu import GpuReader, GpuStatus
from nodevitals.probes.nvidia.nvml import Gpu, LostError, query


class GpuScan(msgspec.Struct):
    """The GPUs that were read, with their status; the slots whose GPU is lost; and the slots whose
    GPU is there, but not accessible to this process.
    """

    read: dict[Device, GpuStatus]
    lost: set[str]
    withheld: set[str]


class NvmlReader:
    """The library, started. Its constructor and `scan` raise NvmlError."""

    def __init__(self, library: str, errors_by_link: bool) -> None:
        nvml.start(library)
        self._errors_by_link = errors_by_link
        self._readers: dict[str, GpuReader] = {}
        self._events = nvml.XidEvents()

    def scan(self, slots: Iterable[str], readings: Readings) -> GpuScan:
        """Read every GPU that the library lists, and look for one in each of these slots too."""
        gpus = nvml.gpus()
        lost, withheld = set(), set()
        for slot in sorted(set(slots) - {gpu.slot for gpu in gpus}):
            found = nvml.gpu_at(slot)
            if isinstance(found, Gpu):
                gpus.append(found)
            elif found in nvml.LOST_OR_UNKNOWN:
                lost.add(slot)
            elif found == nvml.NO_PERMISSION:
                withheld.add(slot)
        readings.add(DEVICES, len(gpus), "nvml")
        driver_version = _report_versions(readings)
        read = {}
        for gpu in gpus:
            mark = readings.mark()
            try:
                device = _read_identity(gpu, driver_version, readings)
                read[device] = self._reader(gpu).read(gpu, readings)
            except LostError:
                readings.discard_since(mark)
                lost.add(gpu.slot)
        answering = [gpu for gpu in gpus if gpu.slot not in lost]
        self._readers = {gpu.uuid: self._reader(gpu) for gpu in answering}
        self._events.register(answering)
        return GpuScan(read, lost, withheld)

    def drain_xids(self) -> list[tuple[str, int]]:
        """Slot and code of each Xid since the last call."""
        return self._events.drain()

    def _reader(self, gpu: Gpu) -> GpuReader:
        return self._readers.setdefault(gpu.uuid, GpuReader(self._errors_by_link))


def _report_versions(readings: Readings) -> str:
    driver: str = query(pynvml.nvmlSystemGetDriverVersion) or ""
    cuda = query(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    cuda_version = f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else ""
    readings.add(DRIVER_INFO, 1, driver, nvml.library_version() or "", cuda_version)
    readings.add(VERSION_MISMATCH, 0)
    return driver


def _read_identity(gpu: Gpu, driver_version: str, readings: Readings) -> Device:
    functions = (
        pynvml.nvmlDeviceGetSerial,
        pynvml.nvmlDeviceGetName,
        pynvml.nvmlDeviceGetVbiosVersion,
    )
    serial, model, firmware = (query(function, gpu.handle) or "" for function in functions)
    device = Device(uuid=gpu.uuid, index=str(gpu.index), slot=gpu.slot, serial=serial, model=model)
    labels = (device.index, device.uuid, serial, device.slot, model, driver_version, firmware, "")
    readings.add(accelerators.INFO, 1, VENDOR, *labels)
    return device
