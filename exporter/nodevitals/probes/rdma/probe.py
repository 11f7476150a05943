"""Probe `rdma`: every RDMA port, its state, rate, errors and traffic; which are missing.

In: /sys/class/infiniband, and /sys/class/net for the interfaces of RoCE ports. Out:
`nodevitals_rdma_*`. A file that cannot be read costs what it says and nothing else. One resident
worker: it can run every second, and for a minute it leaves alone what a driver refuses (asking
for some ports of mlx5 fills the kernel's log).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.document import BytesPerSecond, Problem
from nodevitals.linux.sysfs import read_attribute, read_integer
from nodevitals.probe import Absent, Family, Probe, ProbeError, Readings
from nodevitals.probes.common import links
from nodevitals.probes.common.links import Link, Links
from nodevitals.probes.rdma import families as rdma
from nodevitals.probes.rdma.counters import LIMITS
from nodevitals.probes.rdma.fields import ACTIVE, ACTIVE_DEFER, parse_id, parse_rate
from nodevitals.probes.rdma.reader import Port, Reader


class RdmaSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ports there should be, and which to leave alone.

    `expected` is the rate of each port (`mlx5_0/1: 400Gb/s`); that of one that is not named is the
    best it ever had. `exclude` takes devices and ports. `counters` are patterns for counters
    beyond the usual.
    """

    expected: dict[str, BytesPerSecond] = {}
    exclude: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Who expects ports does not want silence."""
        return self.enabled is True or bool(self.expected)

    def problems(self) -> Iterator[Problem]:
        """What is expected must be the name of a port, and not excluded."""
        for name in self.expected:
            device, _, port = name.partition("/")
            if not device or not port.isdigit():
                yield Problem(f"expected.{name}", "no port: write DEVICE/PORT, such as mlx5_0/1")
            elif links.is_excluded(name, self.exclude):
                yield Problem(f"expected.{name}", "excluded as well")


class RdmaProbe(Probe):
    """RDMA ports."""

    name: ClassVar[str] = "rdma"
    families: ClassVar[tuple[Family, ...]] = rdma.FAMILIES
    Settings: ClassVar[type[ProbeSettings]] = RdmaSettings
    resident: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    settings: RdmaSettings

    def open(self) -> None:
        """Start with nothing known of what hardly changes."""
        self._reader = Reader(self.host, self.settings.exclude, self.settings.counters)
        self._boot_id = self.host.boot_id()

    def run(self, readings: Readings) -> None:
        """One look at every port."""
        memory = readings.recalled(Links) or Links()
        layers = {one.link.name: one.link.layer for one in memory.known}
        names = self._reader.port_names(layers)
        for device, one in self._reader.devices.items():
            readings.add(rdma.DEVICE_INFO, 1, device, *one.info)
        found = [self._look(name, layers.get(name, ""), readings) for name in names]
        memory, flaps = memory.seen(found, readings.forgotten, self.settings.exclude, self._boot_id)
        known = links.with_expected(memory, self.settings.expected)
        if not known.known:
            raise Absent(f"no RDMA port in {self._reader.folder}")
        self._tell(known, flaps, readings)
        readings.carry = encode(memory)
        if not found and self.settings.required:
            text = f"no RDMA port in {self._reader.folder}: is the driver loaded? lspci, dmesg"
            raise ProbeError("absent", text)

    def _look(self, name: str, layer: str, readings: Readings) -> Link:
        device, _, number = name.partition("/")
        folder = self._reader.port_folder(name)
        state = parse_id(read_attribute(f"{folder}/state") or "")
        up = None if state is None else state in (ACTIVE, ACTIVE_DEFER)
        port = self._reader.port(name, layer, up)
        labels = (device, number, port.layer)
        readings.add(rdma.STATE, state, *labels)
        physical_state = parse_id(read_attribute(f"{folder}/phys_state") or "")
        readings.add(rdma.PHYSICAL_STATE, physical_state, *labels)
        # A port that is down says the lowest rate there is, or its last.
        rate = None if up is False else parse_rate(read_attribute(f"{folder}/rate") or "")
        readings.add(rdma.RATE, rate, *labels)
        if port.layer == "Ethernet":
            self._tell_interface(port, labels, readings)
        drops = self._count(port, labels, readings)
        if port.layer == "Ethernet":  # there the interface counts, and the port does not
            counted = self._reader.interface_drops(port.interface)
            drops = drops if counted is None else counted
        slot = self._reader.devices[device].place
        place = slot and f"{slot}/{number}"
        return Link(name=name, place=place, layer=port.layer, up=up, rate=rate, drops=drops)

    def _tell_interface(self, port: Port, labels: tuple[str, ...], readings: Readings) -> None:
        if port.interface:
            up = self._reader.interface_up(port.interface)
            readings.add(rdma.INTERFACE_UP, up, *labels, port.interface)
        gid = port.gid
        if gid is not None and gid.routable:
            readings.add(rdma.GID_USABLE, self._reader.interface_up(gid.interface), *labels)
        elif port.gids_known:
            readings.add(rdma.GID_USABLE, False, *labels)
        else:
            gid = None  # a row that could not be read may be a better one
        readings.add(rdma.GID_INDEX, None if gid is None else gid.index, *labels)

    def _count(self, port: Port, labels: tuple[str, ...], readings: Readings) -> int | None:
        """Tell of the counters; how often the port went down comes back, where it is counted."""
        drops = None
        data = set()
        for counter in list(port.counters):
            value = read_integer(counter.path)
            if value is None:
                port.counters.remove(counter)  # until what hardly changes is read again
            elif counter.family in (rdma.RECEIVED, rdma.TRANSMITTED):
                if counter.family.name not in data:  # of two files that say the same, the first
                    readings.add(counter.family, value * counter.worth, *labels)
                data.add(counter.family.name)
            else:
                readings.add(counter.family, value, *labels, counter.name)
                limit = LIMITS.get(counter.name)
                if limit is not None:
                    readings.add(rdma.SATURATED, value == limit, *labels, counter.name)
                if counter.name == "link_downed" and value != limit:
                    drops = value
        return drops

    def _tell(self, known: Links, flaps: dict[str, int], readings: Readings) -> None:
        readings.add(rdma.PRESENT, sum(not one.missing for one in known.known))
        readings.add(rdma.EXPECTED, len(known.known))
        for one in known.known:
            link = one.link
            labels = (*link.name.split("/"), link.layer)
            expected = self.settings.expected.get(link.name, one.best_rate)
            readings.add(rdma.UP, link.up, *labels)
            readings.add(rdma.EXPECTED_RATE, expected, *labels)
            readings.increment(rdma.FLAPS, flaps.get(link.name, 0), *labels)
            links.note(one, expected, flaps.get(link.name, 0), readings)
