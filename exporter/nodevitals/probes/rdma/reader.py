"""Reads what hardly changes about RDMA devices and their ports, and keeps it for a minute.

In: /sys/class/infiniband and /sys/class/net. Out: `Device` and `Port`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import link_name, list_folder, list_names, read_attribute
from nodevitals.probe import Family
from nodevitals.probes.common import links
from nodevitals.probes.rdma.counters import wanted
from nodevitals.probes.rdma.families import LINK_LAYERS
from nodevitals.probes.rdma.gids import KINDS, Gid, choose, parse_gid

# What hardly changes, and what a driver has refused, is looked at so often.
SLOW_SECONDS = 60.0
_INTERFACE = re.compile(r"[!-.0-~]{1,15}")


class Device(msgspec.Struct, frozen=True):
    """A device. `place` is its PCI bus id, '' for software; `info` are the labels of its info."""

    place: str
    virtual: bool
    info: tuple[str, ...]


class Counter(msgspec.Struct, frozen=True):
    """A counter's file: the family it fills, and what one count is worth."""

    path: str
    name: str
    family: Family
    worth: int


class Port(msgspec.Struct):
    """A port. `gid` is the one to use; `gids_known` is false where a row of the table that might
    be better could not be read. `counters` are those that the driver gives; `up` is as it was.
    """

    layer: str
    interface: str
    gid: Gid | None
    gids_known: bool
    counters: list[Counter]
    up: bool | None
    read_at: float


class Reader:
    """Devices by name, and ports by `DEVICE/PORT`. No file of an excluded one is opened."""

    def __init__(self, host: Host, excluded: tuple[str, ...], counters: tuple[str, ...]) -> None:
        self._sysfs = host.sysfs
        self.folder = str(host.sys("class/infiniband"))
        self._interfaces = str(host.sys("class/net"))
        self._excluded = excluded
        self._patterns = counters
        self.devices: dict[str, Device] = {}
        self._devices_read_at = -SLOW_SECONDS
        self._ports: dict[str, Port] = {}

    def port_names(self, remembered: Iterable[str]) -> list[str]:
        """The ports that are there. Where a device does not let its own be listed, those that are
        remembered are. Raises ProbeError where sysfs itself does not.
        """
        names = [
            name
            for name in list_folder(self.folder, self._sysfs)
            if not links.is_excluded(name, self._excluded)
        ]
        now = time.monotonic()
        if now - self._devices_read_at >= SLOW_SECONDS or set(names) != self.devices.keys():
            devices = {name: self._read_device(name) for name in names}
            self.devices = {name: one for name, one in devices.items() if not one.virtual}
            self._devices_read_at = now
        found = []
        for device in self.devices:
            try:
                ports = sorted(os.listdir(f"{self.folder}/{device}/ports"))
            except FileNotFoundError:
                continue
            except OSError:
                found += [name for name in remembered if name.startswith(f"{device}/")]
                continue
            found += [f"{device}/{port}" for port in ports if port.isdigit()]
        found = [name for name in found if not links.is_excluded(name, self._excluded)]
        self._ports = {name: port for name, port in self._ports.items() if name in found}
        return found

    def port(self, name: str, layer: str, up: bool | None) -> Port:
        """A port, read anew every minute and whenever it went up or down. `layer` is what it had
        before, where the file does not tell.
        """
        known, now = self._ports.get(name), time.monotonic()
        if known is None or known.up != up or now - known.read_at >= SLOW_SECONDS:
            self._ports[name] = self._read_port(name, layer, up, now)
        return self._ports[name]

    def port_folder(self, name: str) -> str:
        """Where a port's files are."""
        device, _, number = name.partition("/")
        return f"{self.folder}/{device}/ports/{number}"

    def interface_up(self, interface: str) -> bool | None:
        """Whether a network interface is up; None where that, or which it is, is unknown."""
        return netdev.is_up(f"{self._interfaces}/{interface}") if interface else None

    def interface_drops(self, interface: str) -> int | None:
        """How often a network interface lost its carrier; None where that is unknown."""
        return netdev.drops(f"{self._interfaces}/{interface}") if interface else None

    def _read_device(self, name: str) -> Device:
        folder = f"{self.folder}/{name}"
        # A virtual function's port is its physical one's, and comes and goes with its machine.
        if os.path.lexists(f"{folder}/device/physfn"):
            return Device("", True, ())
        place = link_name(f"{folder}/device")
        place = place if BUS_ID.fullmatch(place) else ""
        guid, kind, board, firmware = (
            _word(read_attribute(f"{folder}/{file}"))
            for file in ("node_guid", "hca_type", "board_id", "fw_ver")
        )
        return Device(place, False, (guid, place, kind, board, firmware))

    def _read_port(self, name: str, layer: str, up: bool | None, now: float) -> Port:
        folder = self.port_folder(name)
        text = read_attribute(f"{folder}/link_layer")
        layer = text if text in LINK_LAYERS and text else layer
        files = [
            f"{group}/{file}"
            for group in ("counters", "hw_counters")
            for file in list_names(f"{folder}/{group}")
        ]
        counters = [
            Counter(f"{folder}/{file}", file.partition("/")[2], family, worth)
            for file, family, worth in wanted(files, self._patterns)
        ]
        gids, complete = self._read_gids(folder) if layer == "Ethernet" else ([], True)
        interface = gids[0].interface if gids else self._find_interface(name, layer)
        alive = [gid for gid in gids if self.interface_up(gid.interface) is not False]
        gid = choose(alive)
        return Port(layer, interface, gid, complete, counters, up, now)

    def _read_gids(self, folder: str) -> tuple[list[Gid], bool]:
        """The rows of the GID table that are in use, and whether all of it could be read."""
        found, complete = [], True
        for index in sorted(int(n) for n in list_names(f"{folder}/gids") if n.isdigit()):
            address = parse_gid(read_attribute(f"{folder}/gids/{index}") or "")
            if address is None or any(address):
                kind = read_attribute(f"{folder}/gid_attrs/types/{index}")
                interface = read_attribute(f"{folder}/gid_attrs/ndevs/{index}") or ""
                named = _INTERFACE.fullmatch(interface)
                if address is not None and kind in KINDS and named:
                    found.append(Gid(index, address, kind, interface))
                else:
                    complete = False
        return found, complete

    def _find_interface(self, name: str, layer: str) -> str:
        """The interface of a RoCE port without a GID: with several, the one of its number."""
        device, _, number = name.partition("/")
        names = list_names(f"{self.folder}/{device}/device/net") if layer == "Ethernet" else []
        if len(names) > 1:
            ports = {one: read_attribute(f"{self._interfaces}/{one}/dev_port") for one in names}
            names = [one for one in names if ports[one] == str(int(number) - 1)]
        return names[0] if len(names) == 1 else ""


def _word(text: str | None) -> str:
    """A text that may stand in a label, else ''."""
    return text if text and text.isascii() and text.isprintable() else ""
