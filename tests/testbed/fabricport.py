"""A client of an agent's fabric port: raw bytes over TLS, and the requests of the protocol."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from testbed.loopback import DEVICE, TOKEN, Loopback

PATH = "/fabric/v1/tests"
TEST_KEY = f"perftest-write_bw-{DEVICE}-1-65536-1000-1"


class FabricPort:
    """Connects to a port with the certificate in a folder's `cert.pem` and `key.pem`."""

    def __init__(self, host: str, port: int, authority: Path, folder: Path | None = None) -> None:
        self.host, self.port = host, port
        self.context = ssl.create_default_context(cafile=authority)
        if folder is not None:
            self.context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    @classmethod
    def of(cls, made: Loopback, name: str, client: str | None) -> FabricPort:
        """An agent's port, used with the certificate of another one."""
        folder = None if client is None else made.folder / client
        return cls(name, made.proxies[name].port, made.folder / "ca.pem", folder)

    def connect(self) -> ssl.SSLSocket:
        """A connection after its handshake."""
        sock = socket.create_connection((self.host, self.port), 20)
        return self.context.wrap_socket(sock, server_hostname=self.host)

    def send(self, data: bytes) -> tuple[int, str]:
        """Send these bytes and no more: status and text of the response. Raises HTTPException or
        OSError where there is no well-formed one.
        """
        with self.connect() as sock:
            with suppress(OSError):  # the response to the first part may have closed it
                sock.sendall(data)
            with HTTPResponse(sock) as response:
                response.begin()
                return response.status, response.read().decode()

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        """Send a request with the token."""
        head = f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"
        return self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def open(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Request a test."""
        status, text = self.request("POST", PATH, json.dumps(fields).encode())
        return status, json.loads(text) if status in (200, 409) else {"text": text}
