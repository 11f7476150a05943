"""GET requests over one HTTPS connection: bounded in time and in bytes, without redirects.

In: a URL, a TLS context, paths. Out: status, headers and body of each answer; else OSError or
HTTPException. http.client, because requests takes 40 ms more to import in each run.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import NamedTuple, Optional
from urllib.parse import urlsplit

from nodevitals.probe import ProbeError

# Errors of a request on a connection that the server has closed while it was idle.
_CLOSED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class Answer(NamedTuple):
    """A response. A body over the limit is cut one byte after the limit."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


def tls_context(ca_file: Optional[str], verify: bool) -> ssl.SSLContext:
    """The context that verifies the server's certificate; `ca_file` None: system authorities.
    Raises ProbeError.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        text = f"{ca_file}: {error.strerror or error}: no certificates of authorities"
        raise ProbeError("no_ca", text) from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Connection:
    """A connection that is opened at its first use, and again after the server has closed it."""

    def __init__(
        self, url: str, context: ssl.SSLContext, max_bytes: int, server_name: str = ""
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._context = context
        self._max_bytes = max_bytes
        self._server_name = server_name or self._host
        self._http: Optional[http.client.HTTPConnection] = None

    def get(self, path: str, headers: Mapping[str, str], deadline: float) -> Answer:
        """The complete answer to one request, before a deadline of the monotonic clock."""
        if self._http is not None:
            try:
                return self._exchange(path, headers, deadline)
            except _CLOSED:
                if time.monotonic() >= deadline:
                    raise
        return self._exchange(path, headers, deadline)

    def close(self) -> None:
        """Close the connection; a further request opens another one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _exchange(self, path: str, headers: Mapping[str, str], deadline: float) -> Answer:
        connection, self._http = self._http, None
        if connection is None:
            connection = self._connect(deadline)
        tls = connection.sock
        assert isinstance(tls, ssl.SSLSocket)
        # The timeout of a socket restarts at each byte, so a slow server could delay the run.
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, (tls,))
        timer.daemon = True
        timer.start()
        try:
            tls.settimeout(max(0.01, deadline - time.monotonic()))
            tls.do_handshake()  # returns at once if it is done
            connection.request("GET", path, headers=dict(headers))
            with connection.getresponse() as response:
                body = response.read(self._max_bytes + 1)
                if response.length and len(body) <= self._max_bytes:
                    raise http.client.IncompleteRead(body, response.length)
                if response.isclosed() and connection.sock is not None:
                    self._http = connection
                return Answer(response.status, response.headers, body)
        finally:
            timer.cancel()
            if self._http is None:
                tls.close()
                connection.close()

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        left = max(0.01, deadline - time.monotonic())
        raw = socket.create_connection((self._host, self._port), timeout=left)
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.auto_open = 0
        connection.sock = self._context.wrap_socket(
            raw, server_hostname=self._server_name, do_handshake_on_connect=False
        )
        return connection


def _cut(tls: ssl.SSLSocket) -> None:
    # Not the SSL socket's method, which would change the TLS state that the run is using.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(tls, socket.SHUT_RDWR)
