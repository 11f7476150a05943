"""A mail server that records what it is sent, with as much of SMTP as Alertmanager speaks."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Mapping
from contextlib import suppress
from email.message import EmailMessage
from types import MappingProxyType


class MailServer:
    """An SMTP server on loopback; it runs inside the with block. `refused` has an answer for the
    commands that it does not accept.
    """

    def __init__(self, refused: Mapping[bytes, bytes] = MappingProxyType({})) -> None:
        self._refused = refused
        self.mails: list[EmailMessage] = []
        """The mails, in the order of their arrival."""
        outer = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with suppress(ConnectionError):  # Alertmanager has ended
                    outer._converse(self)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> MailServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _converse(self, session: socketserver.StreamRequestHandler) -> None:
        """Accept every command; a line over RFC 5321's 1000 bytes is refused."""
        session.wfile.write(b"220 mail\r\n")
        for line in session.rfile:
            command = line[:4].upper()
            if command in self._refused:
                session.wfile.write(self._refused[command] + b"\r\n")
            elif command == b"EHLO" and b"AUTH" in self._refused:
                session.wfile.write(b"250-mail\r\n250 AUTH PLAIN LOGIN\r\n")
            elif command == b"DATA":
                session.wfile.write(b"354 go on\r\n")
                session.wfile.write(self._receive(session))
            elif command == b"QUIT":
                session.wfile.write(b"221 bye\r\n")
                return
            else:
                session.wfile.write(b"250 ok\r\n")

    def _receive(self, session: socketserver.StreamRequestHandler) -> bytes:
        lines: list[bytes] = []
        for line in session.rfile:
            if line == b".\r\n":
                break
            lines.append(line.removeprefix(b"."))
        if any(len(line) > 1000 for line in lines):
            return b"500 line too long\r\n"
        mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return b"250 ok\r\n"
