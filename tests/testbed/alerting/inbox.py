"""Where Alertmanager's notifications arrive: an HTTP server and a mail server on loopback."""

from __future__ import annotations

import http.server
import json
import threading
import time
from email.message import EmailMessage
from typing import Any

import msgspec

from testbed.mailserver import MailServer


class Request(msgspec.Struct, frozen=True):
    """One HTTP request: when it arrived (monotonic clock), its path and its JSON body."""

    at: float
    path: str
    body: dict[str, Any]


class Inbox:
    """Both servers; they run inside the with block."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._mailserver = MailServer()
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.inbox = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.smarthost = self._mailserver.address

    @property
    def mails(self) -> list[EmailMessage]:
        """The mails, in the order of their arrival."""
        return self._mailserver.mails

    def __enter__(self) -> Inbox:
        self._mailserver.__enter__()
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._mailserver.__exit__(*exception)


class _Server(http.server.ThreadingHTTPServer):
    inbox: Inbox
    daemon_threads = True
    request_queue_size = 128


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(time.monotonic(), self.path.removeprefix("/"), json.loads(body))
        self.server.inbox.requests.append(request)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass
