"""What one look at a link reads: few files of sysfs, because it happens every second.

A RoCE port is looked at through its network interface: the kernel announces its changes, while a
look at the port itself is a request to the firmware.
"""

from __future__ import annotations

from typing import NamedTuple, Union

from nodevitals.linux import netdev
from nodevitals.linux.sysfs import exists, read_integer, read_text
from nodevitals.probes.common.downtime import Sight
from nodevitals.probes.common.rdma_fields import ACTIVE, ACTIVE_DEFER, parse_id

_DOWN_STATES = (1, 2, 3)  # down, initializing, armed
_DISABLED = 3


class InterfaceFiles(NamedTuple):
    """A network interface, by its name and its directory in /sys/class/net."""

    name: str
    directory: str

    def look(self) -> Sight:
        """Whether it is up. One that is switched off is away, as one that is gone."""
        switched_on = netdev.is_switched_on(self.directory)
        if switched_on is None:
            return "away" if exists(self.directory) is False else "unknown"
        up = netdev.is_up(self.directory) if switched_on else None
        if not switched_on:
            return "away"
        return "unknown" if up is None else "up" if up else "down"

    def down_count(self) -> int | None:
        """Number of times that it lost its carrier."""
        counted = netdev.carrier_down_count(self.directory)
        return counted[0] if counted else None


class PortFiles(NamedTuple):
    """An RDMA port, by its directory in /sys/class/infiniband; `saturated` is the largest value of
    its `link_downed`.
    """

    directory: str
    saturated: int

    def look(self) -> Sight:
        """Whether it is active. One that is disabled is away, as one that is gone."""
        state = parse_id(read_text(f"{self.directory}/state") or "")
        if state in (ACTIVE, ACTIVE_DEFER):
            return "up"
        if state is None and exists(self.directory) is False:
            return "away"
        physical = parse_id(read_text(f"{self.directory}/phys_state") or "")
        if state not in _DOWN_STATES or physical is None:
            return "unknown"
        return "away" if physical == _DISABLED else "down"

    def down_count(self) -> int | None:
        """Number of times that its link went down."""
        count = read_integer(f"{self.directory}/counters/link_downed")
        return None if count == self.saturated else count


LinkFiles = Union[InterfaceFiles, PortFiles]
