"""Probe `rdma`: state, rate, errors and traffic of every RDMA port; which ports are missing.

In: /sys/class/infiniband, and /sys/class/net for the interfaces of RoCE ports. Out:
`nodevitals_rdma_*`. A file that cannot be read affects only its own samples. One resident worker:
it can run every second, and it leaves out for a minute what a driver refused (each read of some
mlx5 ports writes a line to the kernel's log).
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.linux.sysfs import read_integer, read_text
from nodevitals.probe import (
    Absent,
    BytesPerSecond,
    Probe,
    ProbeError,
    ProbeSettings,
    Problem,
    Readings,
)
from nodevitals.probes.common import links
from nodevitals.probes.common.downtime import Downtimes
from nodevitals.probes.common.link_watch import LinkWatch, report_downtimes
from nodevitals.probes.common.links import Link, Links
from nodevitals.probes.common.rdma import ACTIVE, ACTIVE_DEFER, parse_id, parse_rate
from nodevitals.probes.rdma import reader as rdma
from nodevitals.probes.rdma.reader import LIMITS, Port, Reader


class RdmaSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ports that are expected, and those to leave out."""

    expected: dict[str, BytesPerSecond] = {}
    """Expected rate by port; otherwise the highest that the port ever had.
    Example: `{mlx5_0/1: 400Gb/s}`"""
    exclude: tuple[str, ...] = ()
    """Patterns of devices and ports to leave out. Example: `["mlx5_bond_*", mlx5_0/2]`"""
    counters: tuple[str, ...] = ()
    """Patterns of further counters to expose. Example: `["rx_*_requests"]`"""

    @property
    def required(self) -> bool:
        """Whether the absence of ports is a failure."""
        return self.enabled is True or bool(self.expected)

    def problems(self) -> Iterator[Problem]:
        """What is expected must be the name of a port, and not excluded."""
        for name in self.expected:
            device, _, port = name.partition("/")
            if not device or not port.isdigit():
                yield Problem(f"expected.{name}", "no port: write DEVICE/PORT, such as mlx5_0/1")
            elif links.is_excluded(name, self.exclude):
                yield Problem(f"expected.{name}", "excluded as well: remove it here or there")


class RdmaState(msgspec.Struct):
    """The ports known on the node."""

    links: Links = Links()
    downtimes: Downtimes = msgspec.field(default_factory=Downtimes)


class RdmaProbe(Probe):
    """RDMA ports: present, up, at the expected rate; flaps, outages, errors, congestion, traffic.
    Also saturated counters, and interface and GID of RoCE ports.
    """

    name = "rdma"
    families = (*rdma.metrics, *rdma.port_metrics)
    Settings = RdmaSettings
    State = RdmaState
    resident = True
    persistent = True
    settings: RdmaSettings
    state: RdmaState

    def open(self) -> None:
        """Start without any device or port read."""
        self._reader = Reader(self.host, self.settings.exclude, self.settings.counters)
        self._boot_id = ""
        self._watch: Optional[LinkWatch] = None

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()

    def run(self, readings: Readings) -> None:
        """Read every port."""
        layers = {entry.link.name: entry.link.layer for entry in self.state.links.known}
        names = self._reader.port_names(layers)
        for device, ports in self._reader.devices.items():
            readings.add(rdma.DEVICE_INFO, 1, device, *ports.info)
        names.sort(key=lambda name: name in readings.interrupted)
        present = [self._report_port(name, layers.get(name, ""), readings) for name in names]
        self._boot_id = self._boot_id or self.host.boot_id()
        excluded = (*self.settings.exclude, *map(glob.escape, self._reader.virtual))
        self.state.links, flaps = self.state.links.seen(
            present, readings.forgotten, excluded, self._boot_id
        )
        known = links.with_expected(self.state.links, self.settings.expected)
        if not known.known and not self._reader.unlisted:
            raise Absent(f"no RDMA port in {self._reader.directory}")
        self._report_links(known, flaps, readings)
        self._report_downtimes(names, known, readings)
        if self._reader.unlisted:
            devices = ", ".join(self._reader.unlisted)
            raise ProbeError("sysfs", f"ports of {devices} in {self._reader.directory}: not listed")
        if not present and self.settings.required:
            text = f"no RDMA port in {self._reader.directory}: is the driver loaded? lspci, dmesg"
            raise ProbeError("absent", text)

    def _report_port(self, name: str, layer: str, readings: Readings) -> Link:
        device, _, number = name.partition("/")
        directory = self._reader.port_directory(name)
        readings.at(name, directory)
        state = parse_id(read_text(f"{directory}/state") or "")
        up = None if state is None else state in (ACTIVE, ACTIVE_DEFER)
        port = self._reader.port(name, layer, up)
        labels = (device, number, port.layer)
        readings.add(rdma.STATE, state, *labels)
        physical_state = parse_id(read_text(f"{directory}/phys_state") or "")
        readings.add(rdma.PHYSICAL_STATE, physical_state, *labels)
        # While a port is down, its file contains the lowest rate or the last one.
        rate = None if up is False else parse_rate(read_text(f"{directory}/rate") or "")
        readings.add(rdma.RATE, rate, *labels)
        down_count, source = self._report_counters(port, labels, readings), "link_downed"
        if port.layer == "Ethernet":
            self._report_interface(port, labels, readings)
            # A RoCE port has no such count; its network interface has.
            counted = self._reader.carrier_down_count(port.interface)
            down_count, source = counted or (down_count, source)
        slot = self._reader.devices[device].place
        return Link(
            name=name,
            place=slot and f"{slot}/{number}",
            layer=port.layer,
            up=up,
            rate=rate,
            down_count=down_count,
            down_source=source,
        )

    def _report_interface(self, port: Port, labels: tuple[str, ...], readings: Readings) -> None:
        if port.interface:
            up = self._reader.interface_up(port.interface)
            readings.add(rdma.INTERFACE_UP, up, *labels, port.interface)
        gid = port.gid
        if gid is not None and gid.routable:
            readings.add(rdma.GID_USABLE, self._reader.interface_up(gid.interface), *labels)
        elif port.gids_known:
            readings.add(rdma.GID_USABLE, False, *labels)
        else:
            gid = None  # a row that could not be read may be better
        readings.add(rdma.GID_INDEX, None if gid is None else gid.index, *labels)

    def _report_counters(
        self, port: Port, labels: tuple[str, ...], readings: Readings
    ) -> int | None:
        """Report the counters of a port. Returns its `link_downed`, None if that is unknown or
        saturated.
        """
        down_count = None
        for counter in list(port.counters):
            value = read_integer(counter.path)
            if value is None:
                port.counters.remove(counter)  # until the port is read again
            elif counter.family in (rdma.RECEIVED, rdma.TRANSMITTED):
                readings.add(counter.family, value * counter.factor, *labels)
            else:
                readings.add(counter.family, value, *labels, counter.name)
                limit = LIMITS.get(counter.name)
                if limit is not None:
                    readings.add(rdma.SATURATED, value == limit, *labels, counter.name)
                if counter.name == "link_downed" and value != limit:
                    down_count = value
        return down_count

    def _report_links(self, known: Links, flaps: dict[str, int], readings: Readings) -> None:
        if not self._reader.unlisted:
            readings.add(rdma.PRESENT, sum(not entry.missing for entry in known.known))
            readings.add(rdma.EXPECTED, len(known.known))
        for entry in known.known:
            link = entry.link
            labels = (*link.name.split("/"), link.layer)
            expected = self.settings.expected.get(link.name, entry.best_rate)
            readings.add(rdma.UP, link.up, *labels)
            readings.add(rdma.EXPECTED_RATE, expected, *labels)
            readings.increment(rdma.FLAPS, flaps.get(link.name, 0), *labels)
            links.record(entry, expected, flaps.get(link.name, 0), readings)

    def _report_downtimes(self, names: list[str], known: Links, readings: Readings) -> None:
        if self._watch is None:
            self._watch = LinkWatch(self.state.downtimes.of_boot(self._boot_id))
        ports = ((entry.link.name, entry.link.layer) for entry in known.known)
        labels = {name: (*name.split("/"), layer) for name, layer in ports}
        self._watch.update({name: self._reader.watched_files(name) for name in names}, labels)
        families = (rdma.DOWN_SECONDS, rdma.LONGEST_DOWN)
        self.state.downtimes = report_downtimes(
            self._watch, self.state.downtimes, labels, families, readings
        )
