"""A client of generic netlink, and the two requests of ethtool that are needed here.

Messages are encoded and decoded by pure functions; what an answer claims about lengths is checked.
https://www.kernel.org/doc/html/latest/networking/ethtool-netlink.html
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping

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
_ANSWER_BYTES = 65536
_MAX_ANSWERS = 100

Attributes = dict[int, bytes]


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
    """A request, which is answered and then acknowledged."""
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
        place = 0
        while place < len(data) and not self.complete:
            if len(data) - place < _HEADER.size:
                raise ValueError("a truncated message")
            length, kind, _, sequence, _ = _HEADER.unpack_from(data, place)
            if not _HEADER.size <= length <= len(data) - place:
                raise ValueError(f"a message of {length} bytes in {len(data) - place}")
            if sequence == self._sequence:  # else of a request that was given up
                self._take(kind, data[place + _HEADER.size : place + length])
            place += length + -length % _ALIGNMENT

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
            found = self._ask(_CONTROL_FAMILY, _GET_FAMILY, name).get(_FAMILY_ID, b"")
            if len(found) != 2:
                raise ValueError("the kernel has no family ethtool")
            self._family = struct.unpack("=H", found)[0]
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
        body = _device(1, interface) + b"".join(attribute(*one) for one in (*wanted, *chosen))
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
            data, (sender, _) = self._socket.recvfrom(_ANSWER_BYTES)
            if sender == 0:  # the kernel; other processes may send here, too
                answer.feed(data)
            if answer.complete:
                return answer.attributes
        raise ValueError(f"no end after {_MAX_ANSWERS} answers")


def _device(kind: int, interface: str, more: bytes = b"") -> bytes:
    """The header of a request of ethtool."""
    name = attribute(_HEADER_NAME, interface.encode("ascii", "replace") + b"\0")
    return attribute(kind | _NESTED, name + more)
