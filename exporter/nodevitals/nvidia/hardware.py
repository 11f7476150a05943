"""What the kernel lists of NVIDIA cards, whether NVML works or not.

In: sysfs' PCI devices and /proc/driver/nvidia, of which only what cannot hang is read: the files
below a card's folder ask the driver. Out: `Hardware`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from nodevitals.host import Host
from nodevitals.nvidia.xid import normal_bus_id

_PCI_VENDOR = "0x10de"
_PCI_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controller
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\S+)")


class Hardware(msgspec.Struct, frozen=True):
    """Bus ids on the PCI bus, each with the driver it is bound to; bus ids that the NVIDIA driver
    lists; and the loaded driver's version ('' where there is none).
    """

    pci: dict[str, str]
    driver: tuple[str, ...]
    module_version: str

    @property
    def given_away(self) -> set[str]:
        """The bus ids of cards that belong to virtual machines."""
        return {bus_id for bus_id, driver in self.pci.items() if driver == "vfio-pci"}


class HardwareReader:
    """Reads what the kernel lists; of each PCI device, vendor and class only once."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_gpu: dict[str, bool] = {}

    def read(self) -> Hardware:
        """What is listed now."""
        driver = filter(_BUS_ID.fullmatch, _names(self._host.proc("driver/nvidia/gpus")))
        return Hardware(
            pci={normal_bus_id(path.name): _driver(path) for path in self._gpus_on_pci()},
            driver=tuple(sorted(normal_bus_id(name) for name in driver)),
            module_version=parse_version(_text(self._host.proc("driver/nvidia/version"))),
        )

    def _gpus_on_pci(self) -> list[Path]:
        folder = self._host.sys("bus/pci/devices")
        names = set(filter(_BUS_ID.fullmatch, _names(folder)))
        self._is_gpu = {name: gpu for name, gpu in self._is_gpu.items() if name in names}
        for name in names - self._is_gpu.keys():
            vendor, kind = _text(folder / name / "vendor"), _text(folder / name / "class")
            self._is_gpu[name] = vendor == _PCI_VENDOR and kind.startswith(_PCI_CLASSES)
        return [folder / name for name, is_gpu in sorted(self._is_gpu.items()) if is_gpu]


def parse_version(text: str) -> str:
    """The driver's version out of /proc/driver/nvidia/version; '' when it is not there."""
    match = _MODULE_VERSION.search(text)
    return match[1] if match else ""


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _driver(device: Path) -> str:
    try:
        return os.path.basename(os.readlink(device / "driver"))
    except OSError:
        return ""
