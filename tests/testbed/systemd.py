"""systemd's manager on D-Bus, for tests: a real socket, with a marshaller of its own.

It speaks the authentication and the messages as the D-Bus specification has them, answers what
systemd answers, and checks what it is asked: `mistakes` has what no client should send.
`fault` makes it misbehave.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

NAME = "org.freedesktop.systemd1"
BUS = "run/dbus/system_bus_socket"
PRIVATE = "run/systemd/private"
_NO_AUTO_START = 2
_CALL, _RETURN, _ERROR, _SIGNAL = 1, 2, 3, 4
_PATH, _INTERFACE, _MEMBER, _ERROR_NAME, _REPLY, _DESTINATION, _SENDER, _SIGNATURE = range(1, 9)
_TYPES = {1: "o", 2: "s", 3: "s", 4: "s", 5: "u", 6: "s", 7: "s", 8: "g"}
_ALIGN = {"y": 1, "g": 1, "v": 1, "b": 4, "i": 4, "u": 4, "s": 4, "o": 4, "a": 4, "t": 8, "(": 8}
_NUMBERS = {"y": "B", "b": "I", "i": "i", "u": "I", "t": "Q"}


class Unit(msgspec.Struct):
    """A unit as systemd knows it. `restarts` None: this version has no such property."""

    active: str = "active"
    sub: str = "running"
    file_state: str = "enabled"
    restarts: int | None = 0
    condition: bool = True
    tried: int = 1
    aliases: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True):
    """A call that was made, by the parts of its header."""

    serial: int
    path: str
    interface: str
    member: str
    destination: str | None
    body: tuple[Any, ...]


class DBusError(Exception):
    """The error that a call is answered with."""


def parts(signature: str) -> Iterator[str]:
    """The single complete types of a signature."""
    while signature:
        end = _end(signature)
        yield signature[:end]
        signature = signature[end:]


def _end(signature: str) -> int:
    if signature[0] == "a":
        return 1 + _end(signature[1:])
    if signature[0] != "(":
        return 1
    depth = 0
    for index, letter in enumerate(signature):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index + 1
    raise ValueError(signature)


def pack(signature: str, values: tuple[Any, ...], data: bytearray | None = None) -> bytearray:
    """The little-endian form of values, appended to what stands before them."""
    data = bytearray() if data is None else data
    for kind, value in zip(parts(signature), values, strict=True):
        data.extend(bytes(-len(data) % _ALIGN[kind[0]]))
        if kind in _NUMBERS:
            data.extend(struct.pack("<" + _NUMBERS[kind], value))
        elif kind in "so":
            text = value.encode()
            data.extend(struct.pack("<I", len(text)) + text + b"\0")
        elif kind == "g":
            data.extend(bytes([len(value)]) + value.encode() + b"\0")
        elif kind == "v":
            pack("g", (value[0],), data)
            pack(value[0], (value[1],), data)
        elif kind[0] == "(":
            pack(kind[1:-1], value, data)
        else:
            _pack_array(kind[1:], value, data)
    return data


def _pack_array(kind: str, values: Any, data: bytearray) -> None:
    place = len(data)
    data.extend(bytes(4))
    data.extend(bytes(-len(data) % _ALIGN[kind[0]]))
    start = len(data)
    for value in values:
        pack(kind, (value,), data)
    data[place : place + 4] = struct.pack("<I", len(data) - start)


def unpack(signature: str, data: bytes, place: int = 0) -> tuple[list[Any], int]:
    """The values at a place, and the place after them."""
    values: list[Any] = []
    for kind in parts(signature):
        place += -place % _ALIGN[kind[0]]
        if kind in _NUMBERS:
            form = "<" + _NUMBERS[kind]
            values += struct.unpack_from(form, data, place)
            place += struct.calcsize(form)
        elif kind in "so":
            (length,) = struct.unpack_from("<I", data, place)
            values.append(data[place + 4 : place + 4 + length].decode())
            place += length + 5
        elif kind == "g":
            values.append(data[place + 1 : place + 1 + data[place]].decode())
            place += data[place] + 2
        elif kind == "v":
            (inner,), place = unpack("g", data, place)
            found, place = unpack(inner, data, place)
            values += found
        elif kind[0] == "(":
            found, place = unpack(kind[1:-1], data, place)
            values.append(tuple(found))
        else:
            (length,) = struct.unpack_from("<I", data, place)
            place += 4 + -(place + 4) % _ALIGN[kind[1]]
            end, array = place + length, []
            while place < end:
                found, place = unpack(kind[1:], data, place)
                array += found
            values.append(array)
    return values, place


def message(kind: int, serial: int, fields: dict[int, Any], body: bytes = b"") -> bytes:
    """A whole message."""
    typed = [(code, (_TYPES[code], value)) for code, value in fields.items()]
    head = pack("yyyyuua(yv)", (ord("l"), kind, 1, 1, len(body), serial, typed))
    return bytes(head) + bytes(-len(head) % 8) + body


def object_path(unit: str) -> str:
    """The path of a unit's object, with the escapes of sd-bus."""
    letters = (one if one.isalnum() and one.isascii() else f"_{ord(one):02x}" for one in unit)
    return "/org/freedesktop/systemd1/unit/" + "".join(letters)


class Systemd:
    """One socket below a node's root: the bus's, or systemd's own (`direct`)."""

    def __init__(self, root: Path, direct: bool = False) -> None:
        self.units: dict[str, Unit] = {}
        self.more_rows: list[tuple[Any, ...]] = []
        """Rows of units that a list has besides, whatever was asked for."""
        self.fault = ""
        self.error = "org.freedesktop.DBus.Error.AccessDenied"
        self.calls: list[Call] = []
        self.mistakes: list[str] = []
        self.hellos = 0
        self._direct = direct
        self._path = root / (PRIVATE if direct else BUS)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._ended = threading.Event()

    def __enter__(self) -> Systemd:
        self._listener = socket.socket(socket.AF_UNIX)
        # The names of sockets are short, those of tests' folders are not.
        folder = os.open(self._path.parent, os.O_PATH)
        self._listener.bind(f"/proc/self/fd/{folder}/{self._path.name}")
        os.close(folder)
        self._listener.listen(16)
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            with suppress(OSError):
                client = self._listener.accept()[0]
                threading.Thread(target=self._client, args=(client,), daemon=True).start()

    def _client(self, client: socket.socket) -> None:
        with client, suppress(ConnectionError, EOFError):
            self._authenticate(client)
            while True:
                self._answer(client, self._read_call(client))

    def _authenticate(self, client: socket.socket) -> None:
        self._hang_if("hang_authentication")
        user = str(os.getuid()).encode().hex()
        line = _line(client)
        if line != f"\0AUTH EXTERNAL {user}":
            self.mistakes.append(line)
        if self.fault == "reject":
            client.sendall(b"REJECTED DBUS_COOKIE_SHA1\r\n")
            raise EOFError
        client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        if (line := _line(client)) != "BEGIN":
            self.mistakes.append(line)

    def _hang_if(self, fault: str) -> None:
        while self.fault == fault and not self._ended.wait(0.02):
            pass

    def _read_call(self, client: socket.socket) -> Call:
        head = _exactly(client, 16)
        (length, serial, fields), _ = unpack("uuu", head, 4)
        rest = _exactly(client, fields + -fields % 8 + length)
        (pairs,), _ = unpack("a(yv)", head[12:16] + bytes(4) + rest)  # structs stand at eights
        found = dict(pairs)
        body, _ = unpack(found.get(_SIGNATURE, ""), rest[len(rest) - length :])
        if head[0] != ord("l") or head[1] != _CALL or head[3] != 1:
            self.mistakes.append(f"header {head!r}")
        if not head[2] & _NO_AUTO_START and found[_MEMBER] != "Hello":
            self.mistakes.append(f"{found[_MEMBER]} may start a service")
        return Call(
            serial,
            found[_PATH],
            found.get(_INTERFACE, ""),
            found[_MEMBER],
            found.get(_DESTINATION),
            tuple(body),
        )

    def _answer(self, client: socket.socket, call: Call) -> None:
        if call.member == "Hello":
            self._hello(client, call)
            return
        self.calls.append(call)
        if call.destination != (None if self._direct else NAME):
            self.mistakes.append(f"destination {call.destination}")
        self._hang_if("hang")
        if self.fault == "reset":
            raise EOFError
        if self.fault == "garbage":
            client.sendall(b"l\2\0\1" + struct.pack("<III", 0, 1, 8) + b"\xff" * 8)
        if self.fault == "huge":
            client.sendall(struct.pack("<4BII", ord("l"), 2, 0, 1, 120_000_000, 1) + bytes(4))
            with suppress(OSError):
                while True:
                    client.sendall(bytes(1 << 16))
        # Whoever follows signals gets them between replies.
        signal = {_PATH: "/", _INTERFACE: f"{NAME}.Manager", _MEMBER: "UnitNew"}
        client.sendall(message(_SIGNAL, 7, signal))
        try:
            if self.fault == "error":
                raise DBusError(self.error)
            signature, values = self._value(call)
        except DBusError as error:
            self._send(client, call, _ERROR, {_ERROR_NAME: str(error)}, "s", ("No\nsuch",))
        else:
            self._send(client, call, _RETURN, {}, signature, values)

    def _hello(self, client: socket.socket, call: Call) -> None:
        if self._direct:
            self.mistakes.append("Hello to systemd's own socket")
        if call.destination != "org.freedesktop.DBus":
            self.mistakes.append(f"Hello to {call.destination}")
        self.hellos += 1
        self._hang_if("hang_hello")
        self._send(client, call, _RETURN, {}, "s", (":1.7",))

    def _send(
        self,
        client: socket.socket,
        call: Call,
        kind: int,
        fields: dict[int, Any],
        signature: str,
        values: tuple[Any, ...],
    ) -> None:
        body = bytes(pack(signature, values))
        fields = {_REPLY: call.serial, _SENDER: ":1.1", **fields, _SIGNATURE: signature}
        client.sendall(message(kind, 1, fields, body))

    def _value(self, call: Call) -> tuple[str, tuple[Any, ...]]:
        if call.member == "Get" and call.interface == "org.freedesktop.DBus.Properties":
            return "v", (self._property(call.path, *call.body),)
        if (call.path, call.interface) != ("/org/freedesktop/systemd1", f"{NAME}.Manager"):
            self.mistakes.append(f"{call}")
            raise DBusError("org.freedesktop.DBus.Error.UnknownObject")
        if call.member == "GetUnit":
            for name, unit in self.units.items():
                if call.body[0] in (name, *unit.aliases):
                    return "o", (object_path(name),)
            raise DBusError(f"{NAME}.NoSuchUnit")
        if call.member == "ListUnitsByPatterns":
            states, patterns = call.body
            wanted = [pattern.replace("\\\\", "\\") for pattern in patterns]
            if states:
                self.mistakes.append(f"{call}")
            return "a(ssssssouso)", (self._rows(name for name in self.units if name in wanted),)
        if call.member == "ListUnitsFiltered" and call.body == (["failed"],):
            failed = (name for name, unit in self.units.items() if unit.active == "failed")
            return "a(ssssssouso)", (self._rows(failed),)
        self.mistakes.append(f"{call}")
        raise DBusError("org.freedesktop.DBus.Error.UnknownMethod")

    def _rows(self, names: Iterator[str]) -> list[tuple[Any, ...]]:
        return [
            *(
                (name, "A unit", "loaded", unit.active, unit.sub, "", object_path(name), 0, "", "/")
                for name in names
                if (unit := self.units[name])
            ),
            *self.more_rows,
        ]

    def _property(self, path: str, interface: str, name: str) -> tuple[str, Any]:
        found = [one for one in self.units if object_path(one) == path]
        if not found:
            raise DBusError("org.freedesktop.DBus.Error.UnknownObject")
        unit = self.units[found[0]]
        values: dict[tuple[str, str], tuple[str, Any]] = {
            ("Unit", "Id"): ("s", found[0]),
            ("Unit", "ActiveState"): ("s", unit.active),
            ("Unit", "UnitFileState"): ("s", unit.file_state),
            ("Unit", "ConditionResult"): ("b", unit.condition),
            ("Unit", "ConditionTimestampMonotonic"): ("t", unit.tried),
        }
        if found[0].endswith(".service") and unit.restarts is not None:
            values["Service", "NRestarts"] = ("u", unit.restarts)
        key = (interface.removeprefix(f"{NAME}."), name)
        if key not in values:
            raise DBusError("org.freedesktop.DBus.Error.UnknownProperty")
        return values[key]


def _line(client: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\r\n"):
        data += _exactly(client, 1)
    return data[:-2].decode("ascii", "replace")


def _exactly(client: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = client.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return data
