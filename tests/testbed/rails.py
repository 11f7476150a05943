"""Eight nodes with eight shaped links each: the links `fab3` of all nodes end at a switch of their
own, which is rail 3. Agents, the hub and ssh talk over a network beside the rails.

Real agents in network namespaces, real iperf3, a real hub and sshd. In: an empty folder, and
namespaces of the caller's own (tools/private-mounts --network --processes), with which all of it
ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import trustme

from testbed.fabric import REAL_TOOLS, FabricNode, issue
from testbed.hubcluster import HubFabric

LINK_RATE, LINK_BYTES_PER_SECOND = "20mbit", 2.5e6
Direction = Literal["", "sending", "receiving"]
DIRECTIONS: tuple[Direction, ...] = ("sending", "receiving")


class RailNode(FabricNode):
    """An agent that sees the real /sys of its namespace."""

    def command(self) -> list[str]:
        """The command, run inside the namespace; `ip netns exec` mounts a /sys of it."""
        enter = ["ip", "netns", "exec", self.space.name]
        return [*enter, *super().command()[2:], "--path.sysfs=/sys"]


class RailFabric(HubFabric):
    """Nodes `gpu-1` …, each with the links `fab0` … at the rails."""

    link, rate = "eth1", LINK_RATE

    def __init__(self, folder: Path, count: int = 8, links: int = 8) -> None:
        super().__init__(folder, count)
        self.devices = [f"fab{number}" for number in range(links)]
        # As long as any check of this bed takes.
        self.settings |= {"budget": {"seconds_per_hour": 3600, "bytes_per_hour": 10**15}}

    def _set_up(self, stack: ExitStack) -> None:
        lines = []
        for device in self.devices:
            lines += [f"link add {device} type bridge", f"link set {device} up"]
        _batch(["ip"], lines)
        super()._set_up(stack)

    def _plug(self, name: str) -> None:
        super()._plug(name)
        space, number = self.spaces[name], self.names.index(name) + 1
        outside, inside = [], []
        for rail, device in enumerate(self.devices):
            port = self.port(name, device)
            peer = f"type veth peer name {device} netns {space.name}"
            outside += [f"link add {port} {peer}", f"link set {port} master {device} up"]
            inside += [f"addr add 10.64.{rail}.{number}/24 dev {device}", f"link set {device} up"]
        _batch(["ip"], outside)
        _batch(["ip", "-n", space.name], inside)

    def port(self, name: str, device: str) -> str:
        """The switch's end of a node's link."""
        return f"{device}.{self.names.index(name) + 1}"

    def throttle(self, name: str, rate: str) -> None:
        """Limit the rate of all links of a node, in both directions."""
        self.shape([name], rate)

    def shape(
        self,
        names: Iterable[str],
        rate: str = LINK_RATE,
        devices: Sequence[str] = (),
        direction: Direction = "",
    ) -> None:
        """Set the rate of links, of all devices and in both directions by default."""
        limit = f"root tbf rate {rate} burst 32kb latency 200ms"
        ports = []
        for name in names:
            chosen = devices or self.devices
            if direction != "receiving":
                lines = [f"qdisc replace dev {device} {limit}" for device in chosen]
                _batch(["tc", "-n", self.spaces[name].name], lines)
            if direction != "sending":
                ports += [
                    f"qdisc replace dev {self.port(name, device)} {limit}" for device in chosen
                ]
        _batch(["tc"], ports)

    def _add(self, name: str, authority: trustme.CA) -> None:
        folder = self.folder / name
        folder.mkdir()
        issue(folder, authority, name)
        self.nodes[name] = RailNode(folder, self.spaces[name], self.config(name), **REAL_TOOLS)


def _batch(command: Sequence[str], lines: Iterable[str]) -> None:
    """Run many commands of `ip` or `tc` in one process. Raises CalledProcessError."""
    text = "".join(f"{line}\n" for line in lines)
    subprocess.run([*command, "-batch", "-"], input=text, text=True, check=True)
