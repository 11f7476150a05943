"""Netlink: two requests of ethtool, and the kernel's multicasts of changed network interfaces
(rtnetlink(7)).

Messages are encoded and decoded by functions without I/O; lengths in messages are checked.
https://www.kernel.org/doc/html/latest/userspace-api/netlink/intro.html
https://www.kernel.org/doc/html/latest/networking/ethtool-netlink.html
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

_HEADER = struct.Struct("=IHHII")
_GENERIC = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ALIGNMENT = 4
_NETLINK_GENERIC = 16  # Python has no name for it
_TYPE_MASK = 0x3FFF  # without NLA_F_NESTED and NLA_F_NET_BYTEORDER
_NESTED = 0x8000
_REQUEST, _ACKNOWLEDGE = 1, 4
_ERROR, _DONE = 2, 3
_CONTROL_FAMILY, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_HEADER_NAME, _HEADER_FLAGS, _FLAG_STATS = 2, 3, 4
_FEC_GET, _MODULE_EEPROM_GET = 29, 31
_RECEIVE_BYTES = 65536
_MAX_ANSWERS = 100
_INTERFACE = struct.Struct("=BxHiII")
_GROUP_LINK = 1
_NEW_LINK, _DELETED_LINK = 16, 17
_MAX_CHANGES = 1000

Attributes = dict[int, bytes]


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The type, the sequence number and the body of each message of a datagram. Raises ValueError
    where a length does not fit.
    """
    place = 0
    while place < len(data):
        if len(data) - place < _HEADER.size:
            raise ValueError("a truncated message")
        length, kind, _, sequence, _ = _HEADER.unpack_from(data, place)
        if not _HEADER.size <= length <= len(data) - place:
            raise ValueError(f"a message of {length} bytes in {len(data) - place}")
        yield kind, sequence, data[place + _HEADER.size : place + length]
        place += length + -length % _ALIGNMENT


def attribute(kind: int, data: bytes) -> bytes:
    """One attribute, padded."""
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + b"\0" * (-length % _ALIGNMENT)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes in data, in their order. Raises ValueError where a length does not fit."""
    place = 0
    while place < len(data):
        if len(data) - place < _ATTRIBUTE.size:
            raise ValueError("a truncated attribute")
        length, kind = _ATTRIBUTE.unpack_from(data, place)
        if not _ATTRIBUTE.size <= length <= len(data) - place:
            raise ValueError(f"an attribute of {length} bytes in {len(data) - place}")
        yield kind & _TYPE_MASK, data[place + _ATTRIBUTE.size : place + length]
        place += length + -length % _ALIGNMENT


def request(family: int, command: int, sequence: int, body: bytes) -> bytes:
    """A request; the kernel answers and then acknowledges it."""
    length = _HEADER.size + _GENERIC.size + len(body)
    flags = _REQUEST | _ACKNOWLEDGE
    header = _HEADER.pack(length, family, flags, sequence, 0)
    return header + _GENERIC.pack(command, 1, 0) + body


class Answer:
    """What was received for one request."""

    def __init__(self, sequence: int) -> None:
        self._sequence = sequence
        self.attributes: Attributes = {}
        self.complete = False

    def feed(self, data: bytes) -> None:
        """Take a datagram. Raises OSError where the kernel refused the request, ValueError where it
        cannot be decoded.
        """
        for kind, sequence, body in messages(data):
            if sequence == self._sequence:  # otherwise it answers a request that timed out
                self._take(kind, body)
            if self.complete:
                return

    def _take(self, kind: int, body: bytes) -> None:
        if kind in (_ERROR, _DONE):
            if len(body) < 4:
                raise ValueError("a truncated acknowledgement")
            number = -struct.unpack_from("=i", body)[0]
            if number:
                raise OSError(number, os.strerror(number))
            self.complete = True
        elif len(body) < _GENERIC.size:
            raise ValueError("a truncated answer")
        else:
            self.attributes.update(attributes(body[_GENERIC.size :]))


class Ethtool:
    """Asks the drivers of network interfaces. Each request is a call into the driver, and may hang
    there.
    """

    def __init__(self, seconds: float) -> None:
        """Raises OSError or ValueError: the kernel has no such family before Linux 5.6."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_GENERIC)
        self._sequence = 0
        try:
            self._socket.settimeout(seconds)
            self._socket.bind((0, 0))
            name = attribute(_FAMILY_NAME, b"ethtool\0")
            number = self._ask(_CONTROL_FAMILY, _GET_FAMILY, name).get(_FAMILY_ID, b"")
            if len(number) != 2:
                raise ValueError("the kernel has no family ethtool")
            self._family = struct.unpack("=H", number)[0]
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def module_page(self, interface: str, page: int, offset: int, address: int) -> bytes:
        """128 bytes of a module's memory. Raises OSError, such as EOPNOTSUPP, or ValueError."""
        wanted = (2, struct.pack("=I", offset)), (3, struct.pack("=I", 128))
        chosen = (4, bytes([page])), (5, b"\0"), (6, bytes([address]))
        body = _device(1, interface) + b"".join(
            attribute(kind, value) for kind, value in (*wanted, *chosen)
        )
        data = self._ask(self._family, _MODULE_EEPROM_GET, body).get(7, b"")
        if len(data) != 128:
            raise ValueError(f"{len(data)} of 128 bytes of page {page}")
        return data

    def error_correction(self, interface: str) -> Mapping[int, bytes]:
        """The statistics of forward error correction. Raises OSError or ValueError."""
        flags = attribute(_HEADER_FLAGS, struct.pack("=I", _FLAG_STATS))
        return self._ask(self._family, _FEC_GET, _device(1, interface, flags))

    def _ask(self, family: int, command: int, body: bytes) -> Mapping[int, bytes]:
        self._sequence += 1
        answer = Answer(self._sequence)
        self._socket.send(request(family, command, self._sequence, body))
        for _ in range(_MAX_ANSWERS):
            data, (sender, _) = self._socket.recvfrom(_RECEIVE_BYTES)
            if sender == 0:  # the kernel: other processes can send to this socket too
                answer.feed(data)
            if answer.complete:
                return answer.attributes
        raise ValueError(f"no end after {_MAX_ANSWERS} answers")


def _device(kind: int, interface: str, more: bytes = b"") -> bytes:
    """The header of a request of ethtool."""
    name = attribute(_HEADER_NAME, interface.encode("ascii", "replace") + b"\0")
    return attribute(kind | _NESTED, name + more)


def changed_interfaces(data: bytes) -> set[int] | None:
    """The indexes of the interfaces in a datagram of rtnetlink; None where it cannot be read whole:
    any interface may have changed.
    """
    indexes = set()
    try:
        for kind, _, body in messages(data):
            if kind in (_NEW_LINK, _DELETED_LINK):
                indexes.add(_INTERFACE.unpack_from(body)[2])
    except (ValueError, struct.error):
        return None
    return indexes


class LinkEvents:
    """A socket that receives changes of interfaces in this process's network namespace. The values
    are read from sysfs: messages may be lost, and they contain no more than sysfs.
    """

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
        """Read the received messages. Returns whether one of these interfaces may have changed,
        also where messages were lost or cannot be decoded.
        """
        changed = False
        for _ in range(_MAX_CHANGES):
            try:
                data, (sender, _) = self._socket.recvfrom(_RECEIVE_BYTES)
            except BlockingIOError:
                return changed
            except OSError:  # ENOBUFS: the queue was full
                return True
            if sender == 0:  # the kernel: other processes can send to this socket too
                indexes = changed_interfaces(data)
                changed = changed or indexes is None or not watched.isdisjoint(indexes)
        return True


def index_of(interface: str) -> int | None:
    """The index of an interface in this process's network namespace; None where it has none."""
    try:
        return socket.if_nametoindex(interface)
    except (OSError, ValueError):
        return None
