"""The ports of a node, and the switch that each is connected to. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

MAX_NAME_CHARACTERS = 128
# Names of devices as the kernel permits them.
_PORT = re.compile(r"(?P<device>[!-.0-~]{1,63})(?:/(?P<number>[0-9]{1,3}))?")


class Port(msgspec.Struct, frozen=True, order=True):
    """A port of an RDMA device, or a network interface: its `number` is ''."""

    device: str
    number: str = ""

    def __str__(self) -> str:
        return f"{self.device}/{self.number}" if self.number else self.device


class Neighbour(msgspec.Struct, frozen=True):
    """A switch by a name that an operator knows, and its port; '' where that is unknown."""

    switch: str
    switch_port: str = ""

    def __str__(self) -> str:
        return f"{self.switch} port {self.switch_port}" if self.switch_port else self.switch


def parse_port(name: str) -> Port | None:
    """The port `mlx5_0/1` or the interface `ens1f0`; None for any other text."""
    match = _PORT.fullmatch(name)
    return Port(match["device"], match["number"] or "") if match else None


def is_name(text: str) -> bool:
    """Whether a text that was found on the network or in a file may be a label's value."""
    return 0 < len(text) <= MAX_NAME_CHARACTERS and text.isprintable() and text == text.strip()


def spread(
    known: Mapping[Port, Neighbour],
    interfaces: Mapping[Port, str],
    bonds: Mapping[str, tuple[str, ...]],
) -> dict[Port, Neighbour]:
    """The neighbours, also of what shares a cable with the ports that have one: a bond whose
    members all are on one switch, an RDMA port and its interface (`interfaces`).
    """
    found = dict(known)
    for bond, members in bonds.items():
        ends = [found.get(Port(member)) for member in members]
        switches = {end.switch if end else "" for end in ends}
        if len(switches) == 1 and "" not in switches:
            ports = sorted({end.switch_port for end in ends if end and end.switch_port})
            found.setdefault(Port(bond), Neighbour(switches.pop(), ",".join(ports)))
    for port, name in interfaces.items():
        interface = Port(name)
        if interface in found:
            found.setdefault(port, found[interface])
        elif port in found:
            found[interface] = found[port]
    return found
