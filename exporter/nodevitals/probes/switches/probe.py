"""Probe `switches`: the switch that each RDMA port and network interface is connected to.

In: the configuration, a CSV file for all nodes, lldpctl, a file with the output of ibnetdiscover,
sysfs. Out: `nodevitals_port_switch_*`, one series per port: a port that is down keeps the switch
that was last seen at it. A probe of its own, so that none of these delays `rdma` or `network`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Optional, TypeVar

import msgspec

from nodevitals.document.local import LocalFile, LocalProgram
from nodevitals.linux.host import Host, node_name
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probe import (
    Absent,
    Families,
    Probe,
    ProbeError,
    ProbeSettings,
    Problem,
    Readings,
    Seconds,
)
from nodevitals.probes.common.rdma import find_interface, parse_gid, read_gids
from nodevitals.probes.switches.sources import (
    Neighbour,
    Port,
    call_lldpctl,
    is_name,
    parse_port,
    read_list,
    read_topology,
    spread,
)

CONFIGURATION, LLDP, IBNETDISCOVER = "configuration", "lldp", "ibnetdiscover"
SOURCES = (CONFIGURATION, LLDP, IBNETDISCOVER)

metrics = Families("port_switch")
INFO = metrics.gauge(
    "info",
    "Always 1; switch of an RDMA port or network interface (port is empty), and the switch's port.",
    *("device", "port", "switch", "switch_port"),
    source=SOURCES,
)
WRITTEN = metrics.gauge(
    "ibnetdiscover_timestamp_seconds",
    "Unix time at which the file with the output of ibnetdiscover was written.",
)


class SwitchesSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the names of the switches come from: what is written here before what is seen."""

    interval: Optional[Seconds] = 300.0
    """Time between two runs."""
    ports: dict[str, str] = {}
    """Switch by RDMA port or network interface. Example: `{mlx5_0/1: leaf-a3, ens1f0: tor-7}`"""
    ports_file: Optional[LocalFile] = None
    """CSV file for all nodes, of which `host` may contain wildcards, with this first line:
    host,device,port,switch,switch_port. Write it under another name, then rename it.
    Example: `/etc/nodevitals/switches.csv`"""
    ibnetdiscover: Optional[LocalFile] = None
    """File with the output of ibnetdiscover, for InfiniBand: run it on one node, from cron, and
    copy the file to all. Example: `/var/lib/nodevitals/ibnetdiscover.txt`"""
    lldp: bool = True
    """Whether to call lldpctl, where it is there; it needs access to the socket of lldpd."""
    lldpctl: LocalProgram = "lldpctl"
    """Path of lldpctl, or its name on PATH."""
    keep: Seconds = 7 * 86400.0
    """Time that a port keeps the switch that was last seen at it, while none is seen."""

    @property
    def files(self) -> dict[str, str]:
        """The paths of the files, by the name of the setting."""
        paths = {"ports_file": self.ports_file, "ibnetdiscover": self.ibnetdiscover}
        return {name: path for name, path in paths.items() if path is not None}

    @property
    def sources(self) -> set[str]:
        """The sources that see neighbours, of those that may be used."""
        used = {LLDP: self.lldp, IBNETDISCOVER: self.ibnetdiscover is not None}
        return {name for name, is_used in used.items() if is_used}

    def problems(self) -> Iterator[Problem]:
        """Names of ports and of switches that cannot be one; paths that are not absolute."""
        for name, switch in self.ports.items():
            if parse_port(name) is None:
                text = "no port: write DEVICE/PORT, such as mlx5_0/1, or the name of an interface"
                yield Problem(f"ports.{name}", text)
            if not is_name(switch):
                yield Problem(
                    f"ports.{name}", "no name of a switch: write up to 128 printable characters"
                )
        for name, path in self.files.items():
            if not os.path.isabs(path) or "\0" in path:
                yield Problem(name, "not an absolute path: begin it with /")


class Hardware(msgspec.Struct, frozen=True):
    """`guids`: the GUIDs of the InfiniBand ports; `interfaces`: the network interface of each RDMA
    port; `bonds`: the members of each bond.
    """

    guids: dict[int, Port]
    interfaces: dict[Port, str]
    bonds: dict[str, tuple[str, ...]]


def read_hardware(host: Host) -> Hardware:
    """Read the hardware in sysfs."""
    guids: dict[int, Port] = {}
    interfaces: dict[Port, str] = {}
    infiniband, net = str(host.sys("class/infiniband")), str(host.sys("class/net"))
    for device in list_names(infiniband):
        for number in list_names(f"{infiniband}/{device}/ports"):
            port = parse_port(f"{device}/{number}")
            if port is None:
                continue
            directory = f"{infiniband}/{device}/ports/{number}"
            name = find_interface(f"{infiniband}/{device}", number, net)
            if read_text(f"{directory}/link_layer") == "Ethernet":
                gids, _ = read_gids(directory)
                # The interface of an RDMA device on a bond is the bond.
                name = gids[0].interface if gids else name
            else:
                gid = parse_gid(read_text(f"{directory}/gids/0") or "")
                if gid is not None and any(gid[8:]):
                    guids[int.from_bytes(gid[8:], "big")] = port
            if name:
                interfaces[port] = name
    return Hardware(guids, interfaces, _read_bonds(net))


def _read_bonds(net: str) -> dict[str, tuple[str, ...]]:
    members = {
        name: tuple((read_text(f"{net}/{name}/bonding/slaves") or "").split())
        for name in list_names(net)
    }
    return {name: names for name, names in members.items() if names}


# More are not exposed: each port is a series, and no node has so many.
MAX_PORTS = 256
_LLDP_SHARE = 0.5
T = TypeVar("T")
_FILES = ("ports_file", IBNETDISCOVER)


class SeenNeighbour(msgspec.Struct, frozen=True, array_like=True):
    """A neighbour, with the source and the Unix time of its last sighting."""

    neighbour: Neighbour
    source: str
    time: float


class SwitchesState(msgspec.Struct):
    """What was last seen at each port, and the node's rows in the last good CSV file."""

    seen: dict[str, SeenNeighbour] = {}
    listed: dict[str, Neighbour] = {}


class SwitchesProbe(Probe):
    """The switch and its port that each RDMA port and network interface is connected to. From the
    configuration, LLDP, or the output of ibnetdiscover.
    """

    name = "switches"
    families = (*metrics,)
    Settings = SwitchesSettings
    State = SwitchesState
    persistent = True
    settings: SwitchesSettings
    state: SwitchesState

    def run(self, readings: Readings) -> None:
        """Ask all sources, then report what is known of each port."""
        self._readings = readings
        self._now = time.time()
        self._problems: list[ProbeError] = []
        self._hardware = read_hardware(self.host)
        without_lldp = self._read_lldp()
        for file in _FILES:
            if file not in readings.interrupted:
                self._read_file(file)
        self._report(without_lldp)
        # Reading this source hung: its data counts from the next run on.
        for file in readings.interrupted & {*_FILES}:
            self._read_file(file)
        if self._problems:
            raise self._problems[0]

    def _report(self, without_lldp: str) -> None:
        oldest = self._now - self.settings.keep
        seen = self.state.seen = {
            name: link
            for name, link in self.state.seen.items()
            if link.time >= oldest and link.source in self.settings.sources
        }
        configured = self._spread(
            _by_port(self.state.listed) | _by_port(_neighbours(self.settings.ports))
        )
        if without_lldp and not (seen or configured or self.settings.files):
            raise Absent(f"no switch is configured; {without_lldp}")
        known = {port: (link.neighbour, link.source) for port, link in _by_port(seen).items()}
        known |= {port: (neighbour, CONFIGURATION) for port, neighbour in configured.items()}
        for port, (neighbour, source) in sorted(known.items())[:MAX_PORTS]:
            labels = (port.device, port.number, neighbour.switch, neighbour.switch_port)
            self._readings.add(INFO, 1, *labels, source)

    def _read_lldp(self) -> str:
        """Ask lldpd. Returns why it is not used, '' if it is."""
        if not self.settings.lldp:
            return "lldp: false"
        try:
            seconds = _LLDP_SHARE * self.timing.timeout_seconds
            neighbours = call_lldpctl(self.settings.lldpctl, seconds)
        except ProbeError as error:
            # lldpd may be installed and not in use, so only a source that has worked before can
            # fail.
            if any(link.source == LLDP for link in self.state.seen.values()):
                self._problems.append(error)
            return error.message
        current = {}
        for port, several in neighbours.items():
            last = self.state.seen.get(str(port))
            stays = last is not None and last.neighbour in several
            current[port] = last.neighbour if last is not None and stays else several[0]
        self._see(current, LLDP, self._now)
        return ""

    def _read_file(self, name: str) -> None:
        path = self.settings.files.get(name)
        if path is None:
            self.state.listed = {} if name == "ports_file" else self.state.listed
            return
        path = self.host.root(path)
        self._readings.at(name, path)
        try:
            if name == "ports_file":
                rows = read_list(path, node_name())
                self.state.listed = {
                    str(port): row for port, row in sorted(rows.items())[:MAX_PORTS]
                }
            else:
                guids = self._hardware.guids
                neighbours, written = read_topology(path, guids.keys())
                self._readings.add(WRITTEN, written)
                current = {guids[guid]: neighbour for guid, neighbour in neighbours.items()}
                self._see(current, IBNETDISCOVER, written)
        except ProbeError as error:
            self._problems.append(error)

    def _see(self, current: dict[Port, Neighbour], source: str, seen_at: float) -> None:
        """Remember neighbours, and record which ports were moved."""
        for port, neighbour in sorted(self._spread(current).items())[:MAX_PORTS]:
            last = self.state.seen.get(str(port))
            if last is not None and last.neighbour != neighbour and port in current:
                text = f"from {last.neighbour} to {neighbour}"
                self._readings.event(str(port), "moved", text)
            seen = SeenNeighbour(neighbour, source, min(seen_at, self._now))
            self.state.seen[str(port)] = seen

    def _spread(self, current: Mapping[Port, Neighbour]) -> dict[Port, Neighbour]:
        return spread(current, self._hardware.interfaces, self._hardware.bonds)


def _neighbours(switches: Mapping[str, str]) -> dict[str, Neighbour]:
    return {name: Neighbour(switch) for name, switch in switches.items()}


def _by_port(values: Mapping[str, T]) -> dict[Port, T]:
    return {port: value for name, value in values.items() if (port := parse_port(name)) is not None}
