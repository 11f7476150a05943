"""The NVIDIA GPUs that the kernel lists, whether NVML works or not.

In: the PCI devices in sysfs and /proc/driver/nvidia. Only files that cannot hang are read: reading
the files below a GPU's folder calls the driver. Out: `Hardware`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID, PciReader
from nodevitals.linux.sysfs import link_name, read_text
from nodevitals.probes.common.nvidia import normal_bus_id

_VENDOR = "0x10de"
_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controller
_EXCLUDED = re.compile(r'^(?:ExcludedGpus|GpuBlacklist):\s*"[^"]', re.MULTILINE)
_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\S+)")


class Hardware(msgspec.Struct, frozen=True):
    """Bus ids on the PCI bus, each with the driver it is bound to; bus ids that the NVIDIA driver
    lists; and the loaded driver's version ('' if none is loaded). Virtual functions (SR-IOV) are no
    GPUs of their own. `bindings` has a number by bus id that changes when a device is bound to its
    driver again. `bus_listed` is False if no device of the PCI bus can be seen.
    `excludes_gpus`: the module parameter NVreg_ExcludedGpus (in older drivers NVreg_GpuBlacklist)
    names GPUs, which the driver lists and NVML does not.
    """

    pci: dict[str, str]
    driver: tuple[str, ...]
    bindings: dict[str, int]
    module_version: str
    bus_listed: bool
    excludes_gpus: bool

    @property
    def passed_through(self) -> set[str]:
        """The bus ids of GPUs that are bound to a driver of VFIO, for virtual machines: vfio-pci,
        on Grace nvgrace_gpu_vfio_pci.
        """
        return {bus_id for bus_id, driver in self.pci.items() if "vfio" in driver}


class HardwareReader:
    """Reads the GPUs that the kernel lists."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pci = PciReader(host, _VENDOR, _CLASSES)
        self._listed: list[str] = []

    def read(self) -> Hardware:
        """The GPUs that are listed now."""
        paths = self._pci.read()
        virtual = {path.name for path in paths if link_name(path / "physfn")}
        gpus = [path for path in paths if path.name not in virtual]
        listed = filter(BUS_ID.fullmatch, self._list_driver())
        return Hardware(
            pci={normal_bus_id(path.name): link_name(path / "driver") or "" for path in gpus},
            driver=tuple(sorted(normal_bus_id(name) for name in listed if name not in virtual)),
            bindings={normal_bus_id(path.name): _inode(path / "driver") for path in gpus},
            module_version=parse_version(read_text(self._host.proc("driver/nvidia/version")) or ""),
            bus_listed=self._pci.listed,
            excludes_gpus=bool(
                _EXCLUDED.search(read_text(self._host.proc("driver/nvidia/params")) or "")
            ),
        )

    def _list_driver(self) -> list[str]:
        """The bus ids that the driver lists; the last ones if they cannot be read now."""
        try:
            self._listed = os.listdir(self._host.proc("driver/nvidia/gpus"))
        except FileNotFoundError:
            self._listed = []
        except OSError:
            pass  # the list has not changed
        return self._listed


def _inode(link: Path) -> int:
    """The inode of a link, which is different for each new link in sysfs; 0 if there is none."""
    try:
        return link.lstat().st_ino
    except OSError:
        return 0


def parse_version(text: str) -> str:
    """The driver's version in the text of /proc/driver/nvidia/version; '' if it is missing."""
    match = _MODULE_VERSION.search(text)
    return match[1] if match else ""
