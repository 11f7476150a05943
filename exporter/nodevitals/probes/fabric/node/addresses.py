"""The addresses by which iperf3 uses the named device: it has no option for one.

In: a network interface of this node; an address that the target of a test sent. Out: IP addresses,
'' where there is none.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

from nodevitals.probes.fabric.settings import TestSettings

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of netdevice(7): the first IPv4 address
_REQUEST = struct.Struct("16s16s8x")
_IPV6_TABLE = "/proc/self/net/if_inet6"
# Not usable as a source, or not for long: IFA_F_DEPRECATED, IFA_F_TENTATIVE, IFA_F_DADFAILED.
_UNUSABLE = 0x20 | 0x40 | 0x08


def own_address(test: TestSettings, version: int | None = None) -> str:
    """The address of this node's device that a peer reaches, of one version of IP or of any: IPv4
    first. '' for another tool than iperf3.
    """
    if test.tool != "iperf3":
        return ""
    found = [_ipv4(test.device)] if version != 6 else []
    if version != 4:
        found += ipv6_addresses(_ipv6_table(), test.device)
    return next((address for address in found if usable(address)), "")


def usable(address: str) -> str:
    """The address that the target of a test sent, if it may be one of the target's device; else ''.

    A hostile target can name another host: iperf3 then connects to the port that the target chose
    there, for no longer and with no more data than the test's settings permit, and the figure is
    that of another path. It can name neither this node's loopback, link-local or group addresses,
    nor a name to resolve, nor anything that iperf3 reads as an option.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if "%" in address or getattr(found, "ipv4_mapped", None) is not None:
        return ""
    special = found.is_loopback or found.is_link_local or found.is_multicast
    return "" if special or found.is_unspecified or found.is_reserved else str(found)


def ends(test: TestSettings, peer: str) -> tuple[str, str]:
    """The peer's address and this node's own one of the same version of IP; both '' where one of
    them is missing.
    """
    address = usable(peer)
    own = own_address(test, 6 if ":" in address else 4) if address else ""
    return (address, own) if own else ("", "")


def ipv6_addresses(table: str, device: str) -> list[str]:
    """The global addresses of a device that are in use, by the text of /proc/net/if_inet6."""
    rows = [row for row in map(str.split, table.splitlines()) if len(row) == 6]
    return [
        str(ipaddress.IPv6Address(int(address, 16)))
        for address, _, _, scope, flags, name in rows
        if name == device and scope == "00" and not int(flags, 16) & _UNUSABLE
    ]


def _ipv4(device: str) -> str:
    request = _REQUEST.pack(device.encode()[:15], b"")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            reply = fcntl.ioctl(sock, _GET_ADDRESS, request)
    except OSError:  # no such device, or no IPv4 address
        return ""
    return socket.inet_ntop(socket.AF_INET, _REQUEST.unpack(reply)[1][4:8])


def _ipv6_table() -> str:
    try:
        with open(_IPV6_TABLE, encoding="ascii") as file:
            return file.read()
    except OSError:  # IPv6 is off
        return ""
