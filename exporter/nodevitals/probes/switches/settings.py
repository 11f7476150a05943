"""The configuration of probe `switches`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Optional

from nodevitals.probe import ProbeSettings, Problem, Seconds
from nodevitals.probes.switches.families import IBNETDISCOVER, LLDP
from nodevitals.probes.switches.ports import is_name, parse_port


class SwitchesSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the names of the switches come from: what is written here before what is seen."""

    interval: Optional[Seconds] = 300.0
    """Time between two runs."""
    ports: dict[str, str] = {}
    """Switch by RDMA port or network interface. Example: `{mlx5_0/1: leaf-a3, ens1f0: tor-7}`"""
    ports_file: Optional[str] = None
    """CSV file for all nodes, of which `host` may contain wildcards, with this first line:
    host,device,port,switch,switch_port. Write it under another name, then rename it.
    Example: `/etc/nodevitals/switches.csv`"""
    ibnetdiscover: Optional[str] = None
    """File with the output of ibnetdiscover, for InfiniBand: run it on one node, from cron, and
    copy the file to all. Example: `/var/lib/nodevitals/ibnetdiscover.txt`"""
    lldp: bool = True
    """Whether to call lldpctl, where it is there; it needs access to the socket of lldpd."""
    lldpctl: str = "lldpctl"
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
        return {name for name, one in used.items() if one}

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
