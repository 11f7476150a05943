"""Probe `network`: carrier, speed, errors and traffic of physical interfaces and bonds.

In: /sys/class/net, which shows the network namespace that sysfs was mounted in. Out:
`nodevitals_network_*`. Always left out: virtual interfaces (loopback, veth, bridges, VLANs),
virtual functions and their representors.
"""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Iterator
from typing import Optional

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.sysfs import list_names_or_fail, read_integer, read_text
from nodevitals.probe import (
    Absent,
    BytesPerSecond,
    Families,
    Family,
    Probe,
    ProbeError,
    ProbeSettings,
    Problem,
    Readings,
)
from nodevitals.probes.common import links
from nodevitals.probes.common.downtime import Downtimes
from nodevitals.probes.common.interface import Interface, parse_speed, read_interface
from nodevitals.probes.common.link_watch import InterfaceFiles, LinkWatch, report_downtimes
from nodevitals.probes.common.links import Link, Links

KINDS = ("physical", "bond")
ERROR_KINDS = ("error", "drop", "missed")
DIRECTIONS = ("receive", "transmit")

metrics = Families("network")
PRESENT = metrics.gauge(
    "interfaces_present", "Number of physical and bond interfaces that exist and are not excluded."
)
EXPECTED = metrics.gauge(
    "interfaces_expected",
    "Number of interfaces that the configuration names or that ever existed, less the forgotten.",
)
ERRORS = metrics.counter(
    "errors_total",
    "Number of packets with errors (error), dropped by the kernel or the driver (drop), or dropped "
    "for lack of buffers in the device (missed).",
    "interface",
    direction=DIRECTIONS,
    kind=ERROR_KINDS,
)
BOND_MEMBER_UP = metrics.gauge(
    "bond_member_up", "Whether the bond considers the member's link up.", "interface", "member"
)
INFO = metrics.gauge(
    "info",
    "Always 1; PCI address, driver and MAC address of the interface.",
    "interface",
    "kind",
    "pci_bus_id",
    "driver",
    "address",
)

interface_metrics = Families("network", "interface", kind=KINDS)
UP = interface_metrics.gauge(
    "up", "Whether the interface can carry traffic; 0 also for a known interface that is missing."
)
SPEED = interface_metrics.gauge(
    "speed_bytes_per_second", "Speed of the link; missing while it is down."
)
EXPECTED_SPEED = interface_metrics.gauge(
    "expected_speed_bytes_per_second",
    "Speed that the configuration expects, or else the highest that the interface ever had.",
)
FULL_DUPLEX = interface_metrics.gauge("full_duplex", "Whether the link is full duplex.")
MTU = interface_metrics.gauge("mtu_bytes", "Maximum transmission unit.")
RECEIVED = interface_metrics.counter("received_bytes_total", "Number of bytes received.")
TRANSMITTED = interface_metrics.counter("transmitted_bytes_total", "Number of bytes transmitted.")
CARRIER_CHANGES = interface_metrics.counter(
    "carrier_changes_total", "Number of times the carrier was lost or came back."
)
DOWN_SECONDS = interface_metrics.counter(
    "down_seconds_total",
    "Time that the interface was down after it had been up, to about a second; not while it "
    "is switched off or gone.",
)
LONGEST_DOWN = interface_metrics.gauge(
    "longest_down_seconds",
    "Length of the longest outage of the interface that goes on or has ended within the last hour.",
)

# By file in `statistics/`: the family, and its labels after the interface.
STATISTICS: dict[str, tuple[Family, tuple[str, ...]]] = {
    "rx_errors": (ERRORS, ("receive", "error")),
    "rx_dropped": (ERRORS, ("receive", "drop")),
    "rx_missed_errors": (ERRORS, ("receive", "missed")),
    "tx_errors": (ERRORS, ("transmit", "error")),
    "tx_dropped": (ERRORS, ("transmit", "drop")),
}


# How often to read rarely changing values again, and values that could not be read.
REFRESH_SECONDS = 60.0
# A file among the directories.
_NO_INTERFACE = "bonding_masters"
# https://docs.kernel.org/networking/bonding.html
_MEMBER_UP = {"up": True, "going down": False, "down": False, "going back": False}
_NAME = re.compile(r"[!-.0-~]{1,15}")


class KnownInterface(msgspec.Struct, frozen=True):
    """An interface, read at `read_at` (monotonic seconds). Another device may get the name of a
    removed interface, but not its kernel `index`; None if that was unknown.
    """

    it: Interface
    index: Optional[int]
    read_at: float


class NetworkSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The interfaces that are expected, and those to leave out."""

    expected: dict[str, BytesPerSecond] = {}
    """Expected speed by interface; otherwise the highest that the interface ever had.
    Example: `{ens1f0: 100Gb/s}`"""
    exclude: tuple[str, ...] = ()
    """Patterns of interfaces to leave out. Example: `["enp*s0f1"]`"""

    @property
    def required(self) -> bool:
        """Whether the absence of interfaces is a failure."""
        return self.enabled is True or bool(self.expected)

    def problems(self) -> Iterator[Problem]:
        """An expected interface must not be excluded."""
        for name in self.expected:
            if links.is_excluded(name, self.exclude):
                yield Problem(f"expected.{name}", "excluded as well: remove it here or there")


class NetworkState(msgspec.Struct):
    """The interfaces known on the node."""

    links: Links = Links()
    downtimes: Downtimes = msgspec.field(default_factory=Downtimes)


class NetworkProbe(Probe):
    """Physical interfaces and bonds: carrier, outages, speed, errors, drops; bond members."""

    name = "network"
    families = (*metrics, *interface_metrics)
    Settings = NetworkSettings
    State = NetworkState
    resident = True
    persistent = True
    settings: NetworkSettings
    state: NetworkState

    def open(self) -> None:
        """Start without any interface read."""
        self._directory = str(self.host.sys("class/net"))
        self._interfaces: dict[str, KnownInterface] = {}
        self._watch: Optional[LinkWatch] = None

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()

    def run(self, readings: Readings) -> None:
        """Read every interface."""
        interfaces = self._present()
        present = [
            self._report_interface(name, interface, readings)
            for name, interface in interfaces.items()
        ]
        virtual = (name for name, interface in self._interfaces.items() if not interface.it.watched)
        excluded = (*self.settings.exclude, *map(glob.escape, virtual))
        # Losses of the carrier are not counted here, so the boot does not matter.
        self.state.links, _ = self.state.links.seen(present, readings.forgotten, excluded, "")
        known = links.with_expected(self.state.links, self.settings.expected)
        if not known.known:
            raise Absent(f"no physical interface and no bond in {self._directory}")
        self._report_links(known, readings)
        self._report_downtimes(list(interfaces), known, readings)
        if not present and self.settings.required:
            what = f"no physical interface in {self._directory}"
            raise ProbeError("absent", f"{what}: is it of the node's network namespace?")

    def _present(self) -> dict[str, Interface]:
        names = list_names_or_fail(self._directory, self.host.sysfs)
        if not names and self.state.links.known:  # there is always a loopback interface
            raise ProbeError("sysfs", f"no interface in {self._directory}: is it mounted?")
        kinds = {entry.link.name: entry.link.layer for entry in self.state.links.known}
        self._interfaces = {
            name: self._read_interface(name, kinds.get(name, ""))
            for name in names
            if name != _NO_INTERFACE and not links.is_excluded(name, self.settings.exclude)
        }
        return {
            name: interface.it
            for name, interface in self._interfaces.items()
            if interface.it.watched
        }

    def _read_interface(self, name: str, kind: str) -> KnownInterface:
        """The interface with this name. `kind` is the kind that an earlier worker found."""
        directory, now = f"{self._directory}/{name}", time.monotonic()
        index, last = read_integer(f"{directory}/ifindex"), self._interfaces.get(name)
        if last is not None and index in (last.index, None):
            if now - last.read_at < REFRESH_SECONDS:
                return last
            return KnownInterface(read_interface(directory, last.it), last.index, now)
        return KnownInterface(read_interface(directory, Interface(kind)), index, now)

    def _report_interface(self, name: str, interface: Interface, readings: Readings) -> Link:
        directory = f"{self._directory}/{name}"
        labels = (name, interface.kind or "physical")
        readings.add(INFO, 1, *labels, interface.place, interface.driver, interface.address)
        up = netdev.is_up(directory)
        # While the link is down, drivers fail these reads or return the last values.
        speed = None if up is False else parse_speed(read_text(f"{directory}/speed") or "")
        duplex = None if up is False else read_text(f"{directory}/duplex")
        readings.add(SPEED, speed, *labels)
        if duplex in ("full", "half"):
            readings.add(FULL_DUPLEX, duplex == "full", *labels)
        for family, file in (
            (MTU, "mtu"),
            (CARRIER_CHANGES, "carrier_changes"),
            (RECEIVED, "statistics/rx_bytes"),
            (TRANSMITTED, "statistics/tx_bytes"),
        ):
            readings.add(family, read_integer(f"{directory}/{file}"), *labels)
        for file, (family, rest) in STATISTICS.items():
            readings.add(family, read_integer(f"{directory}/statistics/{file}"), name, *rest)
        if interface.kind == "bond":
            self._report_members(name, readings)
        port = read_integer(f"{directory}/dev_port")
        place = "" if port is None else interface.place and f"{interface.place}/{port}"
        return Link(name=name, place=place, layer=interface.kind, up=up, rate=speed)

    def _report_members(self, bond: str, readings: Readings) -> None:
        members = read_text(f"{self._directory}/{bond}/bonding/slaves") or ""
        for member in filter(_NAME.fullmatch, members.split()):
            status = read_text(f"{self._directory}/{member}/bonding_slave/mii_status")
            readings.add(BOND_MEMBER_UP, _MEMBER_UP.get(status or ""), bond, member)

    def _report_links(self, known: Links, readings: Readings) -> None:
        readings.add(PRESENT, sum(not entry.missing for entry in known.known))
        readings.add(EXPECTED, len(known.known))
        for entry in known.known:
            labels = (entry.link.name, entry.link.layer or "physical")
            expected = self.settings.expected.get(entry.link.name, entry.best_rate)
            readings.add(UP, entry.link.up, *labels)
            readings.add(EXPECTED_SPEED, expected, *labels)
            links.record(entry, expected, 0, readings)

    def _report_downtimes(self, names: list[str], known: Links, readings: Readings) -> None:
        if self._watch is None:
            self._watch = LinkWatch(self.state.downtimes.of_boot(self.host.boot_id()))
        labels = {
            entry.link.name: (entry.link.name, entry.link.layer or "physical")
            for entry in known.known
        }
        files = {name: InterfaceFiles(name, f"{self._directory}/{name}") for name in names}
        self._watch.update(files, labels)
        families = (DOWN_SECONDS, LONGEST_DOWN)
        self.state.downtimes = report_downtimes(
            self._watch, self.state.downtimes, labels, families, readings
        )
