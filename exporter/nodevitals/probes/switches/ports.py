"""The ports of a node by name. Pure."""

from __future__ import annotations

import re

import msgspec

# Names of devices as the kernel permits them.
_PORT = re.compile(r"(?P<device>[!-.0-~]{1,63})(?:/(?P<number>[0-9]{1,3}))?")


class Port(msgspec.Struct, frozen=True, order=True):
    """A port of an RDMA device, or a network interface: its `number` is ''."""

    device: str
    number: str = ""


def parse_port(name: str) -> Port | None:
    """The port `mlx5_0/1` or the interface `ens1f0`; None for any other text."""
    match = _PORT.fullmatch(name)
    return Port(match["device"], match["number"] or "") if match else None
