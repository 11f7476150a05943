"""The GID that a RoCE port should use. Pure.

A RoCE port has a table of addresses, one row per address of its network interface and per version
of the protocol. The order of the rows differs between nodes: index 3 is common, not universal.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

ROCE_V2 = "RoCE v2"
KINDS = ("IB/RoCE v1", ROCE_V2)
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


class Gid(msgspec.Struct, frozen=True):
    """A row of the table: its index, the address (16 bytes), the type in the kernel's words, and
    the network interface with the address.
    """

    index: int
    address: bytes
    kind: str
    interface: str

    @property
    def routable(self) -> bool:
        """Whether packets with this GID can leave the local network."""
        return _preference(self) in (0, 1)


def parse_gid(text: str) -> bytes | None:
    """The 16 bytes of an address of eight hexadecimal groups, all zero in an empty row; None for
    any other text.
    """
    groups = text.split(":")
    if len(groups) != 8 or any(len(group) != 4 for group in groups):
        return None
    try:
        return bytes.fromhex("".join(groups))
    except ValueError:
        return None


def choose(gids: Iterable[Gid]) -> Gid | None:
    """The RoCE v2 GID to use: IPv4 before routable IPv6 before link-local IPv6, then the lowest
    index. None where there is none.
    """
    usable = [gid for gid in gids if gid.kind == ROCE_V2 and _preference(gid) is not None]
    return min(usable, key=lambda gid: (_preference(gid), gid.index), default=None)


def _preference(gid: Gid) -> int | None:
    """Lower is better; None for a GID not to use: self-assigned IPv4 (169.254/16)."""
    address = gid.address
    if address.startswith(_MAPPED_IPV4):
        return None if address[12:14] == b"\xa9\xfe" else 0
    link_local = address[0] == 0xFE and address[1] & 0xC0 == 0x80
    return 2 if link_local else 1
