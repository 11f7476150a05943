"""Changes of network interfaces, as the kernel multicasts them (rtnetlink(7)).

Out: the indexes of the interfaces that changed. What changed is read from sysfs: a message may be
lost, and it says nothing that sysfs does not.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Set as AbstractSet

# https://www.kernel.org/doc/html/latest/userspace-api/netlink/intro.html
_HEADER = struct.Struct("=IHHII")
_INTERFACE = struct.Struct("=BxHiII")
_ALIGNMENT = 4
_GROUP_LINK = 1
_NEW_LINK, _DELETED_LINK = 16, 17
_MESSAGE_BYTES = 65536
_MAX_MESSAGES = 1000


def changed_interfaces(data: bytes) -> set[int] | None:
    """The indexes of the interfaces in a datagram of rtnetlink; None where it cannot be read whole:
    any interface may have changed.
    """
    indexes, place = set(), 0
    while place < len(data):
        if len(data) - place < _HEADER.size:
            return None
        length, kind, _, _, _ = _HEADER.unpack_from(data, place)
        if not _HEADER.size <= length <= len(data) - place:
            return None
        if kind in (_NEW_LINK, _DELETED_LINK):
            if length < _HEADER.size + _INTERFACE.size:
                return None
            indexes.add(_INTERFACE.unpack_from(data, place + _HEADER.size)[2])
        place += (length + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    return indexes


class LinkEvents:
    """A socket that receives the changes. They are those of this process's network namespace."""

    def __init__(self) -> None:
        """Raises OSError where there is no netlink."""
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        try:
            self._socket.bind((0, 1 << (_GROUP_LINK - 1)))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The descriptor, readable when something changed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def changed(self, watched: AbstractSet[int]) -> bool:
        """Take what was received. Whether one of these interfaces may have changed: also where
        messages were lost or cannot be read.
        """
        found = False
        for _ in range(_MAX_MESSAGES):
            try:
                data, (sender, _) = self._socket.recvfrom(_MESSAGE_BYTES)
            except BlockingIOError:
                return found
            except OSError:  # ENOBUFS: the queue was full
                return True
            if sender == 0:  # the kernel; others may send here, too
                indexes = changed_interfaces(data)
                found = found or indexes is None or not watched.isdisjoint(indexes)
        return True


def index_of(interface: str) -> int | None:
    """The index of an interface in this process's network namespace; None where it has none."""
    try:
        return socket.if_nametoindex(interface)
    except (OSError, ValueError):
        return None
