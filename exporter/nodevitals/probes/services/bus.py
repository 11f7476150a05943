"""Calls of systemd over D-Bus, on the bus's socket or systemd's own.

In: the path of the socket, and a call's parts. Out: the values of the reply, as jeepney decodes
them. A bus may hang, reset, refuse or send anything: each is a ProbeError, before the deadline.
https://dbus.freedesktop.org/doc/dbus-specification.html

`connect` tries the system bus, then systemd's own socket, which only root may use. A bus daemon
that hangs has half of the time.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any

from jeepney.auth import BEGIN, AuthenticationError, Authenticator
from jeepney.low_level import HeaderFields, Message, MessageFlag, MessageType, Parser
from jeepney.wrappers import DBusAddress, new_method_call

from nodevitals.probe import ProbeError
from nodevitals.wire import one_line, without_controls

# 10,000 units are 1.5 MB.
MAX_RECEIVED_BYTES = 16 * 1024 * 1024
_DBUS = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
_BROKEN = (
    *(ValueError, TypeError, KeyError, IndexError, AssertionError),
    *(struct.error, RecursionError, OverflowError),
)


class ReplyError(Exception):
    """The other side answered with an error; has its name and its text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name)
        self.name = name
        self.text = text


class Bus:
    """An authenticated connection; on a bus, after the call Hello. Raises ProbeError:
    `missing`, `refused`, `permission`, `timeout`, `closed`, `protocol`, `too_long`.
    """

    def __init__(self, path: str, deadline: float, direct: bool) -> None:
        """`direct` is systemd's own socket, which is no bus: nothing is addressed there."""
        self._path = path
        self._deadline = deadline
        self._direct = direct
        self._serial = 0
        self._received = 0
        self._parser = Parser()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._connect()
            self._authenticate()
            if not direct:
                self._ask(new_method_call(_DBUS, "Hello"))
        except ReplyError as error:
            self.close()
            raise self._error("refused", f"{error.name}: {error.text}") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(
        self, address: DBusAddress, method: str, signature: str = "", body: tuple[Any, ...] = ()
    ) -> tuple[Any, ...]:
        """The values of the reply. Raises ReplyError as well."""
        message = new_method_call(address, method, signature or None, body)
        # Without this flag, a bus without systemd would start a program that only reports an error.
        message.header.flags |= MessageFlag.no_auto_start
        if self._direct:
            del message.header.fields[HeaderFields.destination]
        return self._ask(message)

    def _connect(self) -> None:
        self._wait()
        try:
            self._socket.connect(self._path)
        except (FileNotFoundError, NotADirectoryError):
            raise self._error("missing", "there is no such socket") from None
        except PermissionError:
            raise self._error("permission", "no permission to connect") from None
        except socket.timeout:
            raise self._timeout() from None
        except OSError as error:
            raise self._error("refused", str(error.strerror or error)) from None

    def _authenticate(self) -> None:
        authenticator = Authenticator()
        try:
            for line in authenticator:
                self._send(line)
                authenticator.feed(self._receive(4096))
            self._send(BEGIN)
        except AuthenticationError as error:
            raise self._error("permission", _plain(f"not authenticated: {error}")) from None

    def _ask(self, message: Message) -> tuple[Any, ...]:
        self._serial += 1
        serial = self._serial
        self._send(message.serialise(serial))
        while True:
            reply = self._next()
            if reply.header.fields.get(HeaderFields.reply_serial) != serial:
                continue  # a signal
            if reply.header.message_type is MessageType.error:
                name = reply.header.fields.get(HeaderFields.error_name, "")
                raise ReplyError(_plain(name), _plain(" ".join(map(str, reply.body))))
            body: tuple[Any, ...] = reply.body
            return body

    def _next(self) -> Message:
        while True:
            try:
                message = self._parser.get_next_message()
            except _BROKEN as error:
                text = f"not a D-Bus message: {type(error).__name__}: {error}"
                raise self._error("protocol", _plain(text)) from None
            if message is not None:
                return message
            data = self._receive(65536)
            self._received += len(data)
            if self._received > MAX_RECEIVED_BYTES:
                raise self._error("too_long", f"sent over {MAX_RECEIVED_BYTES} bytes")
            self._parser.add_data(data)

    def _send(self, data: bytes) -> None:
        self._wait()
        try:
            self._socket.sendall(data)
        except socket.timeout:
            raise self._timeout() from None
        except OSError as error:
            raise self._error("closed", str(error.strerror or error)) from None

    def _receive(self, limit: int) -> bytes:
        self._wait()
        try:
            data = self._socket.recv(limit)
        except socket.timeout:
            raise self._timeout() from None
        except OSError as error:
            raise self._error("closed", str(error.strerror or error)) from None
        if not data:
            raise self._error("closed", "closed the connection")
        return data

    def _wait(self) -> None:
        """Set the timeout of the next call to the time until the deadline."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self._timeout()
        self._socket.settimeout(left)

    def _timeout(self) -> ProbeError:
        return self._error("timeout", "systemd or the bus does not answer in time")

    def _error(self, reason: str, text: str) -> ProbeError:
        return ProbeError(reason, f"{self._path}: {text}")


def _plain(text: object) -> str:
    return without_controls(one_line(str(text)))


def connect(bus: str, private: str, seconds: float) -> Bus:
    """A connection to the first socket that answers. Raises the ProbeError of the bus if
    neither does.
    """
    now = time.monotonic()
    second = os.geteuid() == 0 and os.path.exists(private)
    try:
        return Bus(bus, now + (seconds / 2 if second else seconds), direct=False)
    except ProbeError as error:
        if not second:
            raise
        first = error
    try:
        return Bus(private, now + seconds, direct=True)
    except ProbeError:
        raise first from None
