"""Where Alertmanager's notifications arrive: an HTTP server and a mail server on loopback."""

from __future__ import annotations

import email
import email.policy
import http.server
import json
import socketserver
import threading
import time
from email.message import EmailMessage
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    """One HTTP request: when it arrived (monotonic clock), its path and its JSON body."""

    at: float
    path: str
    body: dict[str, Any]


class Mail(msgspec.Struct, frozen=True):
    """One mail: when it arrived (monotonic clock), its headers and its plain text."""

    at: float
    headers: dict[str, str]
    text: str


class Inbox:
    """Both servers; they run inside the with block."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.mails: list[Mail] = []
        self._http = _HttpServer(("127.0.0.1", 0), _HttpHandler)
        self._smtp = _SmtpServer(("127.0.0.1", 0), _SmtpHandler)
        self._http.inbox = self._smtp.inbox = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.smarthost = f"127.0.0.1:{self._smtp.server_address[1]}"

    def __enter__(self) -> Inbox:
        for server in (self._http, self._smtp):
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._http, self._smtp):
            server.shutdown()
            server.server_close()


class _HttpServer(http.server.ThreadingHTTPServer):
    inbox: Inbox
    daemon_threads = True
    request_queue_size = 128


class _HttpHandler(http.server.BaseHTTPRequestHandler):
    server: _HttpServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(time.monotonic(), self.path.removeprefix("/"), json.loads(body))
        self.server.inbox.requests.append(request)
        # PagerDuty's answer to an event that it accepts.
        self.send_response(202 if self.path.startswith("/pagerduty/") else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _SmtpServer(socketserver.ThreadingTCPServer):
    inbox: Inbox
    daemon_threads = True
    request_queue_size = 128


class _SmtpHandler(socketserver.StreamRequestHandler):
    """Accepts every mail, RFC 5321."""

    server: _SmtpServer

    def handle(self) -> None:
        self.wfile.write(b"220 inbox\r\n")
        while line := self.rfile.readline():
            verb = line.split()[0].upper() if line.split() else b""
            if verb == b"DATA":
                self.wfile.write(b"354 go ahead\r\n")
                self._receive()
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
            if verb == b"QUIT":
                return

    def _receive(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b".") else line)
        message = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        part = message.get_body(("plain",))
        text = part.get_content() if part is not None else ""
        headers = {name: str(value) for name, value in message.items()}
        self.server.inbox.mails.append(Mail(time.monotonic(), headers, text))
