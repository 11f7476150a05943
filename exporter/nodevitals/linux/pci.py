"""PCI devices of one vendor and class, as sysfs lists them without a driver; ids of devices."""

from __future__ import annotations

import re
from pathlib import Path

from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_text

BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
MLX5_VIRTUAL_FUNCTIONS = (
    *("0x1012", "0x1014", "0x1016", "0x1018", "0x101a", "0x101c", "0x101e"),
    "0xa2d3",
)
"""Device ids, as sysfs writes them (https://github.com/torvalds/linux/blob/master/drivers/net/ethernet/mellanox/mlx5/core/main.c)."""

_ID = re.compile(r"0x[0-9a-f]{4,6}")


class PciReader:
    """Finds the devices; vendor and class of each are read until they are known."""

    def __init__(self, host: Host, vendor: str, classes: tuple[str, ...]) -> None:
        """`vendor` is as sysfs writes it; `classes` are the first digits of the classes."""
        self._folder = host.sys("bus/pci/devices")
        self._vendor = vendor
        self._classes = classes
        self._wanted: dict[str, bool] = {}
        self.listed = False
        """Whether the bus had any device when it was last read."""
        self.complete = False
        """Whether vendor and class of every device are known."""

    def read(self) -> list[Path]:
        """The current devices, each as a folder named by its bus id."""
        names = set(filter(BUS_ID.fullmatch, list_names(self._folder)))
        self.listed = bool(names)
        self._wanted = {name: wanted for name, wanted in self._wanted.items() if name in names}
        for name in names - self._wanted.keys():
            vendor = read_text(self._folder / name / "vendor")
            kind = read_text(self._folder / name / "class")
            if _ID.fullmatch(vendor or "") and kind is not None and _ID.fullmatch(kind):
                self._wanted[name] = vendor == self._vendor and kind.startswith(self._classes)
        self.complete = self.listed and len(self._wanted) == len(names)
        return [self._folder / name for name, wanted in sorted(self._wanted.items()) if wanted]
