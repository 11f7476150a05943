"""Probe `network`: physical interfaces and bonds, their carrier, speed, errors and traffic.

In: /sys/class/net, which shows the network namespace that sysfs was mounted in. Out:
`nodevitals_network_*`. Left out by rule: what is virtual (loopback, veth, bridges, VLANs), virtual
functions, and the switch-side representors of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import ClassVar

import msgspec
from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.document import BytesPerSecond, Problem
from nodevitals.linux import netdev
from nodevitals.linux.sysfs import link_name, list_folder, read_attribute, read_integer
from nodevitals.probe import Absent, Family, Kind, Probe, ProbeError, Readings
from nodevitals.probes.common import links
from nodevitals.probes.common.links import Link, Links

KINDS = ("physical", "bond")
ERROR_KINDS = ("error", "drop", "missed")
DIRECTIONS = ("receive", "transmit")
_MEGABIT_BYTES = 1e6 / 8
# What drivers say for unknown: -1, and the same in 16 or 32 bits.
_UNKNOWN_SPEEDS = (0, 65535, 4294967295)
# `pf0vf3`, `c1pf0vf3`, `pf0sf8`: the other end of a virtual or a sub-function.
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


def _interface(name: str, help_text: str, kind: Kind = "gauge") -> Family:
    return Family(
        name=f"nodevitals_network_{name}",
        kind=kind,
        help=help_text,
        labels=("interface", "kind"),
        closed={"kind": KINDS},
    )


PRESENT = Family(
    name="nodevitals_network_interfaces_present",
    kind="gauge",
    help="Physical and bonded interfaces that are there, excluded ones left out.",
)
EXPECTED = Family(
    name="nodevitals_network_interfaces_expected",
    kind="gauge",
    help="Interfaces that the configuration names or that were ever there, less those forgotten.",
)
UP = _interface(
    "up", "Whether the interface can carry traffic; 0 also for a known one that is gone."
)
SPEED = _interface("speed_bytes_per_second", "Speed of the link; missing while it is down.")
EXPECTED_SPEED = _interface(
    "expected_speed_bytes_per_second",
    "The speed that the configuration expects, or else the best that the interface ever had.",
)
FULL_DUPLEX = _interface("full_duplex", "Whether both directions can be used at once.")
MTU = _interface("mtu_bytes", "The largest packet that the interface sends.")
RECEIVED = _interface("received_bytes_total", "Data received.", "counter")
TRANSMITTED = _interface("transmitted_bytes_total", "Data sent.", "counter")
CARRIER_CHANGES = _interface(
    "carrier_changes_total", "How often the carrier went or came.", "counter"
)
ERRORS = Family(
    name="nodevitals_network_errors_total",
    kind="counter",
    help="Packets that were damaged (error), let go (drop), or too many for the card (missed).",
    labels=("interface", "direction", "kind"),
    closed={"direction": DIRECTIONS, "kind": ERROR_KINDS},
)
BOND_MEMBER_UP = Family(
    name="nodevitals_network_bond_member_up",
    kind="gauge",
    help="Whether the bond takes its member's link for good.",
    labels=("interface", "member"),
)
INFO = Family(
    name="nodevitals_network_info",
    kind="gauge",
    help="Always 1; which card an interface is.",
    labels=("interface", "kind", "pci_bus_id", "driver", "address"),
)

_STATISTICS: tuple[tuple[str, Family, tuple[str, ...]], ...] = (
    ("rx_errors", ERRORS, ("receive", "error")),
    ("rx_dropped", ERRORS, ("receive", "drop")),
    ("rx_missed_errors", ERRORS, ("receive", "missed")),
    ("tx_errors", ERRORS, ("transmit", "error")),
    ("tx_dropped", ERRORS, ("transmit", "drop")),
)


class NetworkSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which interfaces there should be, and which to leave alone.

    `expected` is the speed of each (`ens1f0: 100Gb/s`); that of one that is not named is the best
    it ever had. `exclude` are names and patterns.
    """

    expected: dict[str, BytesPerSecond] = {}
    exclude: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        """Who expects interfaces does not want silence."""
        return self.enabled is True or bool(self.expected)

    def problems(self) -> Iterator[Problem]:
        """What is expected must not be excluded."""
        for name in self.expected:
            if links.is_excluded(name, self.exclude):
                yield Problem(f"expected.{name}", "excluded as well")


class Interface(msgspec.Struct, frozen=True):
    """What never changes about an interface while it is there."""

    kind: str
    place: str
    driver: str
    address: str


def parse_speed(text: str) -> float | None:
    """Bytes a second of a speed in Mb/s; None for what drivers write when they do not know."""
    speed = int(text) if text.isascii() and text.isdigit() else 0
    return None if speed in _UNKNOWN_SPEEDS else speed * _MEGABIT_BYTES


def is_representor(port_name: str) -> bool:
    """Whether a `phys_port_name` is that of a virtual function's other end."""
    return _REPRESENTOR.fullmatch(port_name) is not None


class NetworkProbe(Probe):
    """Network interfaces."""

    name: ClassVar[str] = "network"
    families: ClassVar[tuple[Family, ...]] = (
        PRESENT,
        EXPECTED,
        UP,
        SPEED,
        EXPECTED_SPEED,
        FULL_DUPLEX,
        MTU,
        RECEIVED,
        TRANSMITTED,
        CARRIER_CHANGES,
        ERRORS,
        BOND_MEMBER_UP,
        INFO,
    )
    Settings: ClassVar[type[ProbeSettings]] = NetworkSettings
    resident: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    settings: NetworkSettings

    def open(self) -> None:
        """Start with no interface known."""
        self._folder = str(self.host.sys("class/net"))
        self._boot_id = self.host.boot_id()
        # By name and kernel index: another card may get the name of one that went.
        self._interfaces: dict[tuple[str, str], Interface | None] = {}

    def run(self, readings: Readings) -> None:
        """One look at every interface."""
        memory = readings.recalled(Links) or Links()
        interfaces = self._present()
        found = [self._look(name, one, readings) for name, one in interfaces.items()]
        memory, _ = memory.seen(found, readings.forgotten, self.settings.exclude, self._boot_id)
        known = links.with_expected(memory, self.settings.expected)
        if not known.known:
            raise Absent(f"no physical interface and no bond in {self._folder}")
        self._tell(known, readings)
        readings.carry = encode(memory)
        if not found and self.settings.required:
            text = f"no physical interface in {self._folder}: is it that of the node's namespace?"
            raise ProbeError("absent", text)

    def _present(self) -> dict[str, Interface]:
        keys = []
        for name in list_folder(self._folder, self.host.sysfs):
            index = read_attribute(f"{self._folder}/{name}/ifindex")
            if index is not None and not links.is_excluded(name, self.settings.exclude):
                keys.append((name, index))
        known = self._interfaces
        self._interfaces = {
            key: known[key] if key in known else self._read_interface(key[0]) for key in keys
        }
        return {name: one for (name, _), one in self._interfaces.items() if one is not None}

    def _read_interface(self, name: str) -> Interface | None:
        """An interface; None for one to leave out."""
        folder = f"{self._folder}/{name}"
        address = read_attribute(f"{folder}/address") or ""
        if os.path.isdir(f"{folder}/bonding"):
            return Interface("bond", "", "", address)
        place = link_name(f"{folder}/device")
        if not place or os.path.lexists(f"{folder}/device/physfn"):
            return None
        if is_representor(read_attribute(f"{folder}/phys_port_name") or ""):
            return None
        driver = link_name(f"{folder}/device/driver")
        return Interface("physical", place, driver, address)

    def _look(self, name: str, one: Interface, readings: Readings) -> Link:
        folder = f"{self._folder}/{name}"
        labels = (name, one.kind)
        readings.add(INFO, 1, *labels, one.place, one.driver, one.address)
        up = netdev.is_up(folder)
        # While it is down drivers refuse these, or say what they last were.
        speed = None if up is False else parse_speed(read_attribute(f"{folder}/speed") or "")
        duplex = None if up is False else read_attribute(f"{folder}/duplex")
        readings.add(SPEED, speed, *labels)
        if duplex in ("full", "half"):
            readings.add(FULL_DUPLEX, duplex == "full", *labels)
        readings.add(MTU, read_integer(f"{folder}/mtu"), *labels)
        changes = read_integer(f"{folder}/carrier_changes")
        readings.add(CARRIER_CHANGES, changes, *labels)
        readings.add(RECEIVED, read_integer(f"{folder}/statistics/rx_bytes"), *labels)
        readings.add(TRANSMITTED, read_integer(f"{folder}/statistics/tx_bytes"), *labels)
        for file, family, rest in _STATISTICS:
            readings.add(family, read_integer(f"{folder}/statistics/{file}"), name, *rest)
        if one.kind == "bond":
            self._tell_members(name, readings)
        port = read_integer(f"{folder}/dev_port")
        place = one.place and f"{one.place}/{port or 0}"
        return Link(name=name, place=place, layer=one.kind, up=up, rate=speed)

    def _tell_members(self, name: str, readings: Readings) -> None:
        members = read_attribute(f"{self._folder}/{name}/bonding/slaves") or ""
        for member in members.split():
            status = read_attribute(f"{self._folder}/{member}/bonding_slave/mii_status")
            up = None if status is None else status == "up"
            readings.add(BOND_MEMBER_UP, up, name, member)

    def _tell(self, known: Links, readings: Readings) -> None:
        readings.add(PRESENT, sum(not one.missing for one in known.known))
        readings.add(EXPECTED, len(known.known))
        for one in known.known:
            labels = (one.link.name, one.link.layer or "physical")
            expected = self.settings.expected.get(one.link.name, one.best_rate)
            readings.add(UP, one.link.up, *labels)
            readings.add(EXPECTED_SPEED, expected, *labels)
            links.note(one, expected, 0, readings)
