"""Reads an RDMA port in sysfs: the values of its files, its network interface, and the GID that a
RoCE port should use.

In: the directory of a port or device in /sys/class/infiniband, and /sys/class/net. A RoCE port has
a table of addresses, one row per address of its network interface and per version of the protocol.
The order of the rows differs between nodes: index 3 is common, not universal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from nodevitals.linux import netdev
from nodevitals.linux.host import Host
from nodevitals.linux.sysfs import list_names, read_text

ACTIVE = 4
ACTIVE_DEFER = 5
_ID = re.compile(r"([0-9]{1,9}): ")
# `400 Gb/sec (4X NDR)`; older kernels leave the name out.
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec(?: \(.*\))?")

ROCE_V2 = "RoCE v2"
_KINDS = ("IB/RoCE v1", ROCE_V2)
_INTERFACE = re.compile(r"[!-.0-~]{1,15}")
_MAPPED_IPV4 = bytes(10) + b"\xff\xff"


def parse_id(text: str) -> int | None:
    """The number in `4: ACTIVE`, also if the kernel has no name for it; None for other text."""
    match = _ID.match(text)
    return int(match[1]) if match else None


def parse_rate(text: str) -> float | None:
    """Bytes per second of `400 Gb/sec (4X NDR)`; None for other text."""
    match = _RATE.fullmatch(text)
    return float(match[1]) * 1e9 / 8 if match and float(match[1]) else None


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


def choose_up(gids: Iterable[Gid], interfaces: str) -> Gid | None:
    """The same among the GIDs whose interface is not down; `interfaces` is /sys/class/net."""
    return choose(gid for gid in gids if netdev.is_up(f"{interfaces}/{gid.interface}") is not False)


def read_gids(directory: str) -> tuple[list[Gid], bool]:
    """The used rows of the GID table of a port, and whether every row could be read."""
    gids = []
    names = list_names(f"{directory}/gids")
    complete = bool(names)
    for index in sorted(int(name) for name in names if name.isdigit()):
        address = parse_gid(read_text(f"{directory}/gids/{index}") or "")
        if address is None or any(address):
            kind = read_text(f"{directory}/gid_attrs/types/{index}")
            interface = read_text(f"{directory}/gid_attrs/ndevs/{index}") or ""
            named = _INTERFACE.fullmatch(interface)
            if address is not None and kind in _KINDS and named:
                gids.append(Gid(index, address, kind, interface))
            else:
                complete = False
    return gids, complete


def gid_of_port(host: Host, device: str, port: int) -> Gid | None:
    """The GID to use on a port; None for an InfiniBand port and if there is none."""
    directory = str(host.sys(f"class/infiniband/{device}/ports/{port}"))
    if read_text(f"{directory}/link_layer") != "Ethernet":
        return None
    return choose_up(read_gids(directory)[0], str(host.sys("class/net")))


def _preference(gid: Gid) -> int | None:
    """Lower is better; None for a GID not to use: self-assigned IPv4 (169.254/16)."""
    address = gid.address
    if address.startswith(_MAPPED_IPV4):
        return None if address[12:14] == b"\xa9\xfe" else 0
    link_local = address[0] == 0xFE and address[1] & 0xC0 == 0x80
    return 2 if link_local else 1


def find_interface(device: str, number: str, interfaces: str) -> str:
    """The interface of a port without a GID; of several, the one with the port's number; '' if
    there is none. `device` is its directory in /sys/class/infiniband, `interfaces` is
    /sys/class/net.
    """
    names = list_names(f"{device}/device/net")
    if len(names) > 1:
        ports = {name: read_text(f"{interfaces}/{name}/dev_port") for name in names}
        names = [name for name in names if ports[name] == str(int(number) - 1)]
    return names[0] if len(names) == 1 else ""
