"""What rarely changes about RDMA devices and their ports, read from sysfs once per minute.

In: /sys/class/infiniband and /sys/class/net. Out: `RdmaDevice` and `Port`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Optional

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.host import Host
from nodevitals.linux.pci import BUS_ID
from nodevitals.linux.sysfs import (
    exists,
    link_name,
    list_names,
    list_names_or_fail,
    read_label,
    read_text,
)
from nodevitals.probe import Family
from nodevitals.probes.common import links
from nodevitals.probes.common.link_sights import InterfaceFiles, LinkFiles, PortFiles
from nodevitals.probes.common.rdma_gids import Gid, choose_up, read_gids
from nodevitals.probes.common.rdma_interfaces import find_interface
from nodevitals.probes.rdma.counters import LIMITS, wanted
from nodevitals.probes.rdma.families import LINK_LAYERS

# How often to read again what rarely changes, and what a driver has refused.
REFRESH_SECONDS = 60.0
_INFO_FILES = ("node_guid", "hca_type", "board_id", "fw_ver")


class RdmaDevice(msgspec.Struct, frozen=True):
    """A device. `place` is its PCI address, '' for a software device; `virtual` for a virtual
    function; `info` are its labels of DEVICE_INFO after the first. What cannot be read is as it
    last was; a device that may be a virtual function is watched until that is known.
    """

    place: str = ""
    virtual: bool = False
    info: tuple[str, ...] = ("",) * 5


class CounterFile(msgspec.Struct, frozen=True):
    """The file of a counter, the family it fills, and the factor of its value."""

    path: str
    name: str
    family: Family
    factor: int


class Port(msgspec.Struct):
    """A port. `gid` is the one to use; `gids_known` is false where a row of the table that may be
    better could not be read. `files` are all counters, `counters` the readable ones; `up` is the
    state at the time of reading, `read_at` in monotonic seconds.
    """

    layer: str
    interface: str
    gid: Optional[Gid]
    gids_known: bool
    files: dict[str, list[str]]
    counters: list[CounterFile]
    up: Optional[bool]
    read_at: float


class Reader:
    """Devices by name, and ports by `DEVICE/PORT`. No file of an excluded one is opened."""

    def __init__(self, host: Host, excluded: tuple[str, ...], counters: tuple[str, ...]) -> None:
        """`excluded` are patterns for devices and ports, `counters` for further counters."""
        self._sysfs = host.sysfs
        self.directory = str(host.sys("class/infiniband"))
        self._interfaces = str(host.sys("class/net"))
        self._excluded = excluded
        self._patterns = counters
        self.devices: dict[str, RdmaDevice] = {}
        self.virtual: list[str] = []
        """The virtual functions: their ports are not watched."""
        self.unlisted: list[str] = []
        """The devices of which no port is known, because they cannot be listed."""
        self._devices_read_at = -REFRESH_SECONDS
        self._ports: dict[str, Port] = {}

    def port_names(self, known: Iterable[str]) -> list[str]:
        """The ports that exist; of a device whose ports cannot be listed, those that are known.
        Raises ProbeError where the devices cannot be listed.
        """
        names = [
            name
            for name in list_names_or_fail(self.directory, self._sysfs)
            if not links.is_excluded(name, self._excluded)
        ]
        now = time.monotonic()
        watched = {*self.devices, *self.virtual}
        if now - self._devices_read_at >= REFRESH_SECONDS or set(names) != watched:
            devices = {name: self._read_device(name) for name in names}
            self.virtual = [name for name, one in devices.items() if one.virtual]
            self.devices = {name: one for name, one in devices.items() if not one.virtual}
            self._devices_read_at = now
        found, self.unlisted = [], []
        for device in self.devices:
            try:
                ports = sorted(os.listdir(f"{self.directory}/{device}/ports"))
            except OSError:  # also where there is none: a device that is gone is not listed
                last = [name for name in known if name.startswith(f"{device}/")]
                self.unlisted += [] if last else [device]
                found += last
                continue
            found += [f"{device}/{port}" for port in ports if port.isdigit()]
        found = [name for name in found if not links.is_excluded(name, self._excluded)]
        self._ports = {name: port for name, port in self._ports.items() if name in found}
        return found

    def port(self, name: str, layer: str, up: bool | None) -> Port:
        """A port, read again every minute and when it goes up or down. `layer` is the last known
        link layer, used where its file cannot be read.
        """
        known, now = self._ports.get(name), time.monotonic()
        if known is None or known.up != up or now - known.read_at >= REFRESH_SECONDS:
            self._ports[name] = self._read_port(name, layer, up, now)
        return self._ports[name]

    def port_directory(self, name: str) -> str:
        """The directory of a port in sysfs."""
        device, _, number = name.partition("/")
        return f"{self.directory}/{device}/ports/{number}"

    def watched_files(self, name: str) -> LinkFiles:
        """What is looked at between two runs."""
        port = self._ports.get(name)
        if port is not None and port.interface:
            return InterfaceFiles(port.interface, f"{self._interfaces}/{port.interface}")
        return PortFiles(self.port_directory(name), LIMITS["link_downed"])

    def interface_up(self, interface: str) -> bool | None:
        """Whether a network interface is up; None where unknown, also for ''."""
        return netdev.is_up(f"{self._interfaces}/{interface}") if interface else None

    def carrier_down_count(self, interface: str) -> tuple[int, str] | None:
        """Number of times a network interface lost its carrier, and the file that counts it; None
        where unknown.
        """
        if not interface:
            return None
        return netdev.carrier_down_count(f"{self._interfaces}/{interface}")

    def _read_device(self, name: str) -> RdmaDevice:
        directory = f"{self.directory}/{name}"
        # A virtual function shares the port of its physical function, and comes and goes with its
        # virtual machine.
        virtual = exists(f"{directory}/device/physfn")
        if virtual or (virtual is None and name in self.virtual):
            return RdmaDevice(virtual=True)
        last = self.devices.get(name, RdmaDevice())
        link = link_name(f"{directory}/device")
        place = last.place if link is None else link if BUS_ID.fullmatch(link) else ""
        labels = [read_label(f"{directory}/{file}") for file in _INFO_FILES]
        labels.insert(1, place)
        info = tuple(now or was for was, now in zip(last.info, labels))
        return RdmaDevice(place, False, info)

    def _read_port(self, name: str, layer: str, up: bool | None, now: float) -> Port:
        directory = self.port_directory(name)
        last = self._ports.get(name)
        text = read_text(f"{directory}/link_layer")
        layer = text if text in LINK_LAYERS and text else last.layer if last else layer
        files = {
            group: list_names(f"{directory}/{group}") or (last.files[group] if last else [])
            for group in ("counters", "hw_counters")
        }
        paths = [f"{group}/{file}" for group, names in files.items() for file in names]
        counters = [
            CounterFile(f"{directory}/{file}", file.partition("/")[2], family, factor)
            for file, family, factor in wanted(paths, self._patterns)
        ]
        gids, complete = read_gids(directory) if layer == "Ethernet" else ([], True)
        interface = gids[0].interface if gids else self._find_interface(name, layer)
        if last and (not complete or not interface):
            interface = last.interface
        gid = choose_up(gids, self._interfaces)
        return Port(layer, interface, gid, complete, files, counters, up, now)

    def _find_interface(self, name: str, layer: str) -> str:
        """The interface of a RoCE port without a GID."""
        device, _, number = name.partition("/")
        if layer != "Ethernet":
            return ""
        return find_interface(f"{self.directory}/{device}", number, self._interfaces)
