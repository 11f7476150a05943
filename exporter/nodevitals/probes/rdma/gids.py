"""Which GID a RoCE port should use.

A RoCE port has a table of addresses, one row for each address of its interface and each version
of the protocol. Their order differs between nodes: index 3 is common, not universal.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

ROCE_V2 = "RoCE v2"
KINDS = ("IB/RoCE v1", ROCE_V2)
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


class Gid(msgspec.Struct, frozen=True):
    """A row of the table: its index, the address (16 bytes), the type as the kernel words it, and
    the network interface that has the address.
    """

    index: int
    address: bytes
    kind: str
    interface: str

    @property
    def routable(self) -> bool:
        """Whether packets to it can leave the local network."""
        return _preference(self) in (0, 1)


def parse_gid(text: str) -> bytes | None:
    """The 16 bytes of eight groups of hexadecimal digits, all zero in an empty row; None for what
    is no address.
    """
    groups = text.split(":")
    if len(groups) != 8 or any(len(group) != 4 for group in groups):
        return None
    try:
        return bytes.fromhex("".join(groups))
    except ValueError:
        return None


def choose(gids: Iterable[Gid]) -> Gid | None:
    """The RoCE v2 GID to use: IPv4, then IPv6 that can be routed, then link-local IPv6; of equals
    the lowest index. None where there is none.
    """
    usable = [gid for gid in gids if gid.kind == ROCE_V2 and _preference(gid) is not None]
    return min(usable, key=lambda gid: (_preference(gid), gid.index), default=None)


def _preference(gid: Gid) -> int | None:
    """Lower is better; None for what must not be used: self-assigned IPv4 (169.254/16)."""
    address = gid.address
    if address.startswith(_MAPPED_IPV4):
        return None if address[12:14] == b"\xa9\xfe" else 0
    link_local = address[0] == 0xFE and address[1] & 0xC0 == 0x80
    return 2 if link_local else 1
