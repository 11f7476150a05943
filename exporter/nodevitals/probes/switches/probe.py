"""Probe `switches`: the switch that each RDMA port and network interface is connected to.

In: the configuration, a CSV file for all nodes, lldpctl, a file with the output of ibnetdiscover,
sysfs. Out: `nodevitals_port_switch_*`, one series per port: a port that is down keeps the switch
that was last seen at it. A probe of its own, so that none of these delays `rdma` or `network`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from nodevitals.linux.host import node_name
from nodevitals.probe import Absent, Probe, ProbeError, Readings
from nodevitals.probes.switches.families import (
    CONFIGURATION,
    IBNETDISCOVER,
    INFO,
    LLDP,
    WRITTEN,
    metrics,
)
from nodevitals.probes.switches.hardware import read_hardware
from nodevitals.probes.switches.ports import Neighbour, Port, parse_port, spread
from nodevitals.probes.switches.settings import SwitchesSettings
from nodevitals.probes.switches.sources import call_lldpctl, read_list, read_topology

# More are not exposed: each port is a series, and no node has as many.
MAX_PORTS = 256
_LLDP_SHARE = 0.5
T = TypeVar("T")
_FILES = ("ports_file", IBNETDISCOVER)


class SeenNeighbour(msgspec.Struct, frozen=True, array_like=True):
    """A neighbour, and by which source and at which Unix time it was last seen."""

    neighbour: Neighbour
    source: str
    time: float


class SwitchesState(msgspec.Struct):
    """What was last seen at each port, and the node's rows in the last good CSV file."""

    seen: dict[str, SeenNeighbour] = {}
    listed: dict[str, Neighbour] = {}


class SwitchesProbe(Probe):
    """The switch that each RDMA port and network interface is connected to, and its port: from the
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
        # Reading it hung: what it has counts from the next run on.
        for file in readings.interrupted & {*_FILES}:
            self._read_file(file)
        if self._problems:
            raise self._problems[0]

    def _report(self, without_lldp: str) -> None:
        oldest = self._now - self.settings.keep
        seen = self.state.seen = {
            name: one
            for name, one in self.state.seen.items()
            if one.time >= oldest and one.source in self.settings.sources
        }
        configured = self._spread(
            _by_port(self.state.listed) | _by_port(_neighbours(self.settings.ports))
        )
        if without_lldp and not (seen or configured or self.settings.files):
            raise Absent(f"no switch is configured; {without_lldp}")
        known = {port: (one.neighbour, one.source) for port, one in _by_port(seen).items()}
        known |= {port: (neighbour, CONFIGURATION) for port, neighbour in configured.items()}
        for port, (neighbour, source) in sorted(known.items())[:MAX_PORTS]:
            labels = (port.device, port.number, neighbour.switch, neighbour.switch_port)
            self._readings.add(INFO, 1, *labels, source)

    def _read_lldp(self) -> str:
        """Ask lldpd. Returns why it is not used, '' where it is."""
        if not self.settings.lldp:
            return "lldp: false"
        try:
            seconds = _LLDP_SHARE * self.timing.timeout_seconds
            neighbours = call_lldpctl(self.settings.lldpctl, seconds)
        except ProbeError as error:
            # It may be installed and not in use: only what has worked can fail.
            if any(one.source == LLDP for one in self.state.seen.values()):
                self._problems.append(error)
            return error.message
        found = {}
        for port, several in neighbours.items():
            last = self.state.seen.get(str(port))
            stays = last is not None and last.neighbour in several
            found[port] = last.neighbour if last is not None and stays else several[0]
        self._see(found, LLDP, self._now)
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
                    str(port): one for port, one in sorted(rows.items())[:MAX_PORTS]
                }
            else:
                guids = self._hardware.guids
                neighbours, written = read_topology(path, guids.keys())
                self._readings.add(WRITTEN, written)
                found = {guids[guid]: neighbour for guid, neighbour in neighbours.items()}
                self._see(found, IBNETDISCOVER, written)
        except ProbeError as error:
            self._problems.append(error)

    def _see(self, found: dict[Port, Neighbour], source: str, seen_at: float) -> None:
        """Remember neighbours, and record which ports were moved."""
        for port, neighbour in sorted(self._spread(found).items())[:MAX_PORTS]:
            last = self.state.seen.get(str(port))
            if last is not None and last.neighbour != neighbour and port in found:
                text = f"from {last.neighbour} to {neighbour}"
                self._readings.event(str(port), "moved", text)
            seen = SeenNeighbour(neighbour, source, min(seen_at, self._now))
            self.state.seen[str(port)] = seen

    def _spread(self, found: Mapping[Port, Neighbour]) -> dict[Port, Neighbour]:
        return spread(found, self._hardware.interfaces, self._hardware.bonds)


def _neighbours(switches: Mapping[str, str]) -> dict[str, Neighbour]:
    return {name: Neighbour(switch) for name, switch in switches.items()}


def _by_port(values: Mapping[str, T]) -> dict[Port, T]:
    return {port: one for name, one in values.items() if (port := parse_port(name)) is not None}
