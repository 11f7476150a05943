"""Finds the accelerator of a device file.

In: messages of the probes `nvidia` and `ascend`, /proc/driver/nvidia. Out: the index and uuid for
labels. N of /dev/nvidiaN is the minor number of a GPU, not NVML's index; N of /dev/davinciN is
the physical id of an NPU.
"""

from __future__ import annotations

import os

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import list_names, parse_integer, read_text
from nodevitals.probe import Readings
from nodevitals.probes.common.device_files import DeviceFile
from nodevitals.probes.common.device_names import DeviceName, DeviceNames, NpuNames
from nodevitals.probes.common.nvidia import normal_bus_id

GPUS = "driver/nvidia/gpus"


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as its driver describes it; the uuid is '' if the driver has not read it yet. `binding`
    changes when the GPU is bound to the driver again; until then, the minor number is the same.
    """

    minor: int
    uuid: str
    binding: int = 0


class DeviceState(msgspec.Struct):
    """The names in the last messages, and the GPUs by their folder in /proc/driver/nvidia."""

    gpu_names: dict[str, DeviceName] = {}
    npu_names: dict[int, DeviceName] = {}
    gpus: dict[str, Gpu] = {}


def parse_information(text: str) -> Gpu | None:
    """/proc/driver/nvidia/gpus/*/information; None without a minor number.

    https://github.com/NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c. Before the
    first program has opened the GPU, its uuid consists of question marks.
    """
    lines = (line.partition(":") for line in text.splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    minor, uuid = parse_integer(values.get("Device Minor", "")), values.get("GPU UUID", "")
    usable = uuid.startswith("GPU-") and "?" not in uuid and uuid.isascii() and len(uuid) < 64
    return None if minor is None else Gpu(minor, uuid if usable else "")


class DeviceTable:
    """Finds the accelerators of device files, for one run."""

    def __init__(self, host: Host, state: DeviceState, readings: Readings) -> None:
        self._host = host
        self._state = state
        self._readings = readings
        self._by_minor: dict[int, DeviceName] | None = None
        for message in readings.received:
            if isinstance(message, DeviceNames):
                state.gpu_names = message.by_bus_id
            elif isinstance(message, NpuNames):
                state.npu_names = message.by_physical_id

    def find(self, file: DeviceFile) -> DeviceName | None:
        """The accelerator of a device file; None where it is not known."""
        if file.vendor == "ascend":
            return self._state.npu_names.get(file.number)
        if self._by_minor is None:
            self._by_minor = self._read_gpus()
        return self._by_minor.get(file.number)

    def is_partitioned(self) -> bool:
        """Whether a GPU of the node has MIG instances."""
        folder = self._host.proc("driver/nvidia/capabilities")
        gpus = [name for name in list_names(folder) if name.startswith("gpu")]
        return any(
            name.startswith("gi") for gpu in gpus for name in list_names(folder / gpu / "mig")
        )

    def _read_gpus(self) -> dict[int, DeviceName]:
        """The GPUs by minor number. Each is read once, because reading its file calls the driver,
        which may hang if the GPU has failed.
        """
        folders = [
            bus_id for bus_id in list_names(self._host.proc(GPUS)) if BUS_ID.fullmatch(bus_id)
        ]
        known = {}
        for folder in folders:
            binding = self._binding(folder)
            gpu = self._state.gpus.get(folder)
            if gpu is None or gpu.binding != binding or self._name(folder, gpu) is None:
                gpu = self._read_gpu(folder, binding) or gpu
            if gpu is not None:
                known[folder] = gpu
        self._state.gpus = known
        names = {gpu.minor: self._name(folder, gpu) for folder, gpu in known.items()}
        return {minor: name for minor, name in names.items() if name is not None}

    def _read_gpu(self, folder: str, binding: int) -> Gpu | None:
        if folder in self._readings.interrupted:
            return None
        self._readings.at(folder, "information")
        gpu = parse_information(read_text(self._host.proc(GPUS) / folder / "information") or "")
        return None if gpu is None else msgspec.structs.replace(gpu, binding=binding)

    def _binding(self, folder: str) -> int:
        """The inode of the link to the driver, which changes when the GPU is bound again."""
        try:
            return os.lstat(self._host.sys("bus/pci/devices") / folder / "driver").st_ino
        except OSError:
            return 0

    def _name(self, folder: str, gpu: Gpu) -> DeviceName | None:
        name = self._state.gpu_names.get(normal_bus_id(folder))
        return name or (DeviceName("", gpu.uuid) if gpu.uuid else None)
