"""Network namespaces, each at the other end of a veth pair, and servers that listen there.

`Network()` is a context manager; `add("name")` makes a namespace with the address 10.99.N.2, where
this side has 10.99.N.1. Everything is real: sockets, routes, link states.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress

_CLONE_NEWNET = 0x40000000
_SERVE_SECONDS = 30.0


def ip(*arguments: str) -> None:
    """Run one `ip` command. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Namespace:
    """One namespace, and the servers in it."""

    def __init__(self, name: str, number: int) -> None:
        # Their names are files of /run, which other runs share; in their pid namespaces all have
        # the same pid.
        self.name = f"nv{secrets.token_hex(4)}-{name}"
        self.link = f"nv{os.getpid() % 100000}.{number}"
        self.address = f"10.99.{number}.2"
        self.our_address = f"10.99.{number}.1"
        self._sockets: list[socket.socket] = []
        ip("netns", "add", self.name)
        try:
            self._plug()
        except subprocess.CalledProcessError:
            ip("netns", "del", self.name)
            raise

    def _plug(self) -> None:
        pair = ("type", "veth", "peer", "name", "eth0", "netns", self.name)
        ip("link", "add", self.link, *pair)
        ip("addr", "add", f"{self.our_address}/30", "dev", self.link)
        ip("link", "set", self.link, "up")
        self.ip("addr", "add", f"{self.address}/30", "dev", "eth0")
        self.up()

    def ip(self, *arguments: str) -> None:
        """Run `ip` inside."""
        ip("-n", self.name, *arguments)

    def sysctl(self, name: str, value: str) -> None:
        """Set a kernel parameter of this namespace, without a program that minimal systems lack."""
        file = f"/proc/sys/{name.replace('.', '/')}"
        ip("netns", "exec", self.name, "sh", "-c", f"echo {value} > {file}")

    def down(self) -> None:
        """Take the far end of the link down."""
        self.ip("link", "set", "eth0", "down")

    def up(self) -> None:
        """Bring the far end of the link up."""
        self.ip("link", "set", "eth0", "up")

    def drop(self) -> None:
        """Drop all packets that this namespace sends back."""
        self.ip("route", "add", "blackhole", f"{self.our_address}/32")

    def listen(self, serve: Callable[[socket.socket], None] | None, port: int = 0) -> int:
        """Listen inside, and return the port. `serve` handles each connection; with None they wait
        in the kernel, accepted but not served.
        """
        made: list[socket.socket] = []

        def inside() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{self.name}", "rb") as handle:
                assert libc.setns(handle.fileno(), _CLONE_NEWNET) == 0, ctypes.get_errno()
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((self.address, port))
            server.listen(64)
            made.append(server)

        # The namespace is changed for one thread only, which then ends.
        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        server = made[0]
        self._sockets.append(server)
        if serve is not None:
            threading.Thread(target=_accept, args=(server, serve), daemon=True).start()
        return int(server.getsockname()[1])

    def remove(self) -> None:
        """Close the servers, and delete the namespace, with its link: the kernel would delete that
        later.
        """
        for sock in self._sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", self.link)
        ip("netns", "del", self.name)


def _accept(server: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            connection.settimeout(_SERVE_SECONDS)
            serve(connection)


class Network:
    """Namespaces, by name."""

    def __init__(self) -> None:
        self.namespaces: list[Namespace] = []

    def __enter__(self) -> Network:
        return self

    def add(self, name: str) -> Namespace:
        """Make a namespace."""
        self.namespaces.append(Namespace(name, len(self.namespaces) + 1))
        return self.namespaces[-1]

    def __exit__(self, *_: object) -> None:
        for namespace in self.namespaces:
            namespace.remove()
