"""Clients that guess passwords: one that hangs up at once, one that waits for the response."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import closing
from pathlib import Path

import bcrypt


def write_users(path: Path, cost: int, **passwords: str) -> None:
    """Write a web configuration file with these users and no TLS."""
    users = {
        user: bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()
        for user, password in passwords.items()
    }
    path.write_text(json.dumps({"basic_auth_users": users}))


def request_as(user: str, password: str) -> bytes:
    """Return a scrape with a login; the server closes the connection after it."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    head = f"GET /metrics HTTP/1.1\r\nAuthorization: Basic {login}\r\nConnection: close\r\n\r\n"
    return head.encode()


def ask(port: int, user: str, password: str, address: str = "127.0.0.1") -> socket.socket:
    """Send a scrape with a login from a loopback address. Returns the open connection."""
    sock = socket.create_connection(("127.0.0.1", port), 60, source_address=(address, 0))
    sock.sendall(request_as(user, password))
    return sock


def ask_and_leave(port: int, user: str, password: str) -> None:
    """Send a scrape with a login, and hang up before the response."""
    ask(port, user, password).close()


def response_to(sock: socket.socket) -> bytes:
    """Return all that the server sends until it closes the connection; close it, too."""
    with closing(sock):
        response = b""
        try:
            while piece := sock.recv(65536):
                response += piece
        except ConnectionError:  # reset: the connection was refused
            pass
        return response


def status_of(response: bytes) -> str:
    """Return the status of a response; '' where there was none."""
    return response[9:12].decode()
