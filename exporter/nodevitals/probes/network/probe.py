"""Probe `network`: carrier, speed, errors and traffic of physical interfaces and bonds.

In: /sys/class/net, which shows the network namespace that sysfs was mounted in. Out:
`nodevitals_network_*`. Always left out: virtual interfaces (loopback, veth, bridges, VLANs),
virtual functions and their representors.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.sysfs import list_names_or_fail, read_integer, read_text
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
from nodevitals.probes.common.links import Link, Links
from nodevitals.probes.network import families as network
from nodevitals.probes.network.interface import Interface, parse_speed, read_interface


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
                yield Problem(f"expected.{name}", "excluded as well")


class NetworkState(msgspec.Struct):
    """The interfaces known on the node."""

    links: Links = Links()


class NetworkProbe(Probe):
    """Physical network interfaces and bonds: carrier, speed, errors, drops; bond members."""

    name = "network"
    families = (*network.metrics, *network.interface_metrics)
    Settings = NetworkSettings
    State = NetworkState
    resident = True
    persistent = True
    settings: NetworkSettings
    state: NetworkState

    def open(self) -> None:
        """Start without any interface read."""
        self._directory = str(self.host.sys("class/net"))
        self._boot_id = self.host.boot_id()
        # By name and kernel index: another device may get the name of one that was removed.
        self._interfaces: dict[tuple[str, str], Interface | None] = {}

    def run(self, readings: Readings) -> None:
        """Read every interface."""
        interfaces = self._present()
        found = [self._report_interface(name, one, readings) for name, one in interfaces.items()]
        self.state.links, _ = self.state.links.seen(
            found, readings.forgotten, self.settings.exclude, self._boot_id
        )
        known = links.with_expected(self.state.links, self.settings.expected)
        if not known.known:
            raise Absent(f"no physical interface and no bond in {self._directory}")
        self._report_links(known, readings)
        if not found and self.settings.required:
            what = f"no physical interface in {self._directory}"
            raise ProbeError("absent", f"{what}: is it of the node's network namespace?")

    def _present(self) -> dict[str, Interface]:
        keys = []
        for name in list_names_or_fail(self._directory, self.host.sysfs):
            index = read_text(f"{self._directory}/{name}/ifindex")
            if index is not None and not links.is_excluded(name, self.settings.exclude):
                keys.append((name, index))
        known = self._interfaces
        self._interfaces = {
            key: known[key] if key in known else read_interface(f"{self._directory}/{key[0]}")
            for key in keys
        }
        return {name: one for (name, _), one in self._interfaces.items() if one is not None}

    def _report_interface(self, name: str, one: Interface, readings: Readings) -> Link:
        directory = f"{self._directory}/{name}"
        labels = (name, one.kind)
        readings.add(network.INFO, 1, *labels, one.place, one.driver, one.address)
        up = netdev.is_up(directory)
        # While the link is down, drivers fail these reads or return the last values.
        speed = None if up is False else parse_speed(read_text(f"{directory}/speed") or "")
        duplex = None if up is False else read_text(f"{directory}/duplex")
        readings.add(network.SPEED, speed, *labels)
        if duplex in ("full", "half"):
            readings.add(network.FULL_DUPLEX, duplex == "full", *labels)
        for family, file in (
            (network.MTU, "mtu"),
            (network.CARRIER_CHANGES, "carrier_changes"),
            (network.RECEIVED, "statistics/rx_bytes"),
            (network.TRANSMITTED, "statistics/tx_bytes"),
        ):
            readings.add(family, read_integer(f"{directory}/{file}"), *labels)
        for file, (family, rest) in network.STATISTICS.items():
            readings.add(family, read_integer(f"{directory}/statistics/{file}"), name, *rest)
        if one.kind == "bond":
            self._report_members(name, readings)
        port = read_integer(f"{directory}/dev_port")
        place = one.place and f"{one.place}/{port or 0}"
        return Link(name=name, place=place, layer=one.kind, up=up, rate=speed)

    def _report_members(self, bond: str, readings: Readings) -> None:
        members = read_text(f"{self._directory}/{bond}/bonding/slaves") or ""
        for member in members.split():
            status = read_text(f"{self._directory}/{member}/bonding_slave/mii_status")
            up = None if status is None else status == "up"
            readings.add(network.BOND_MEMBER_UP, up, bond, member)

    def _report_links(self, known: Links, readings: Readings) -> None:
        readings.add(network.PRESENT, sum(not one.missing for one in known.known))
        readings.add(network.EXPECTED, len(known.known))
        for one in known.known:
            labels = (one.link.name, one.link.layer or "physical")
            expected = self.settings.expected.get(one.link.name, one.best_rate)
            readings.add(network.UP, one.link.up, *labels)
            readings.add(network.EXPECTED_SPEED, expected, *labels)
            links.record(one, expected, 0, readings)
