"""A small client of the hub's side: orders tests on agents, one request per connection."""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from testbed.fabricport import FabricPort

HUB_NAME = "hub.example"
HUB_TOKEN = "another token, of the hub"
ORDERS = "/fabric/v1/orders"


class OrderClient:
    """Orders on one agent, with the certificate and the key in a folder, and a token."""

    def __init__(
        self, host: str, port: int, authority: Path, folder: Path, token: str = HUB_TOKEN
    ) -> None:
        self._port = FabricPort(host, port, authority, folder)
        self._token = token

    def put(self, order: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Send an order: HTTP status and message; of a text, its line as `text`."""
        return self.request("PUT", f"{ORDERS}/{order['id']}", json.dumps(order).encode())

    def get(self, identity: str, wait: int = 0) -> tuple[int, dict[str, Any]]:
        """The state of an order, when it is done or after so many seconds."""
        return self.request("GET", f"{ORDERS}/{identity}?wait={wait}")

    def delete(self, identity: str) -> tuple[int, dict[str, Any]]:
        """End an order."""
        return self.request("DELETE", f"{ORDERS}/{identity}")

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        """Any request with the token."""
        status, text = self._port.send(self.head(method, path, len(body)) + body)
        return status, json.loads(text) if text.startswith("{") else {"text": text}

    def raw(self, data: bytes, seconds: float = 120.0) -> int:
        """Send any bytes; the status of the response."""
        with self._port.connect() as sock:
            sock.settimeout(seconds)
            sock.sendall(data)
            with HTTPResponse(sock) as response:
                response.begin()
                return response.status

    def slow(self, data: bytes) -> ssl.SSLSocket:
        """A connection on which these bytes were sent, and nothing follows."""
        sock = self._port.connect()
        sock.sendall(data)
        return sock

    def head(self, method: str, path: str, length: int) -> bytes:
        """The head of a request."""
        lines = (f"{method} {path} HTTP/1.1", f"Authorization: Bearer {self._token}")
        return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


def order(source: str, target: str, *tests: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An order with an identity of its own, issued now; `node` is to be set for each of both."""
    identity = f"order-{secrets.token_hex(6)}"
    named = {"id": identity, "issued": time.time(), "source": source, "target": target}
    return {**named, "node": source, "tests": list(tests), **more}
