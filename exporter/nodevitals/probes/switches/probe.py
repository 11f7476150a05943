"""Probe `switches`: the switch that each port of the node is connected to.

In: the configuration. Out: `nodevitals_port_switch_info`, one series per port.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodevitals.probe import Absent, Probe, ProbeSettings, Problem, Readings, Seconds
from nodevitals.probes.switches.families import CONFIGURATION, INFO, metrics
from nodevitals.probes.switches.ports import parse_port


class SwitchesSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the names of the switches come from."""

    interval: Seconds | None = 300.0
    """Time between two runs."""
    ports: dict[str, str] = {}
    """Switch by RDMA port or network interface. Example: `{mlx5_0/1: leaf-a3, ens1f0: tor-7}`"""

    def problems(self) -> Iterator[Problem]:
        """Names of ports, and of switches, that cannot be one."""
        for name, switch in self.ports.items():
            if parse_port(name) is None:
                text = "no port: write DEVICE/PORT, such as mlx5_0/1, or the name of an interface"
                yield Problem(f"ports.{name}", text)
            if not switch:
                yield Problem(f"ports.{name}", "no name of a switch")


class SwitchesProbe(Probe):
    """The switch of each RDMA port and network interface."""

    name = "switches"
    families = (*metrics,)
    Settings = SwitchesSettings
    settings: SwitchesSettings

    def run(self, readings: Readings) -> None:
        """Report the switch of each port."""
        if not self.settings.ports:
            raise Absent("no switch is configured")
        for name, switch in self.settings.ports.items():
            port = parse_port(name)
            if port is not None:
                readings.add(INFO, 1, port.device, port.number, switch, "", CONFIGURATION)
