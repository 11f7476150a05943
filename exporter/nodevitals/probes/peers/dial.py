"""Connects to many peers at once, from one thread, and sends them nothing.

In: peers with their addresses. Out: a `DialResult` for each. The kernel measures the round trip,
from SYN to SYN-ACK, so the load on this process does not affect it.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Optional

import msgspec

REASONS = (
    "refused",
    "timeout",
    "unreachable",
    "name",
    "silent",
    "closed",
    "protocol",
    "blocked",
)
_REASON_OF = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "timeout",
    errno.ECONNRESET: "closed",
    errno.EPIPE: "closed",
    # A firewall rule of this node rejects the connection.
    errno.EPERM: "blocked",
    errno.EACCES: "blocked",
}
# Faults of this node, not of the peer: no free port, memory or file descriptor.
_LOCAL = (errno.EADDRNOTAVAIL, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
# RFC 4253, 4.2: a server may send other lines before its version.
_BANNER = b"SSH-"
_MAX_BANNER_BYTES = 8192
# struct tcp_info of linux/tcp.h: tcpi_rtt (microseconds) and tcpi_total_retrans.
_TCP_INFO_BYTES = 104
_RTT_OFFSET, _RETRANSMITS_OFFSET = 68, 100


class LocalError(Exception):
    """This node could not try to connect; the state of the peer is unknown."""


class Peer(msgspec.Struct, frozen=True, order=True, array_like=True):
    """A peer: its name or address, its TCP port, and the protocol to expect there."""

    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class DialResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of one connection. `reason` is '' if the peer is reachable; the round trip is None
    if it was not measured: no connection, or a lost SYN.
    """

    reason: str
    round_trip_seconds: Optional[float] = None


class _Attempt:
    def __init__(self, peer: Peer, sock: socket.socket, deadline: float) -> None:
        self.peer = peer
        self.sock = sock
        self.deadline = deadline
        self.round_trip: float | None = None
        self.connected = False
        self.received = b""


def dial(
    peers: Sequence[tuple[Peer, str]], timeout: float, concurrency: int, start_until: float
) -> Iterator[tuple[Peer, DialResult]]:
    """Connect to each peer at its address, at most `concurrency` at once, each for at most
    `timeout` seconds. After `start_until` (monotonic seconds) no further connection is started.

    Raises LocalError if this node has no free socket or port.
    """
    waiting = deque(peers)
    selector = selectors.DefaultSelector()
    active: dict[int, _Attempt] = {}
    try:
        while waiting or active:
            while waiting and len(active) < concurrency:
                if time.monotonic() >= start_until:
                    waiting.clear()
                    break
                peer, address = waiting.popleft()
                started = _start(peer, address, time.monotonic() + timeout)
                if isinstance(started, DialResult):
                    yield peer, started
                else:
                    active[started.sock.fileno()] = started
                    selector.register(started.sock, selectors.EVENT_WRITE, started)
            if not active:
                continue
            soonest = min(attempt.deadline for attempt in active.values())
            ready = selector.select(max(0.0, soonest - time.monotonic()))
            now = time.monotonic()
            ended = [(key.data, _proceed(key.data, selector)) for key, _ in ready]
            late = [
                (dialing, _expired(dialing))
                for dialing in active.values()
                if dialing.deadline <= now
            ]
            for attempt, result in {id(a): (a, b) for a, b in (*late, *ended) if b}.values():
                selector.unregister(attempt.sock)
                del active[attempt.sock.fileno()]
                attempt.sock.close()
                yield attempt.peer, result
    finally:
        for attempt in active.values():
            attempt.sock.close()
        selector.close()


def _start(peer: Peer, address: str, deadline: float) -> _Attempt | DialResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return DialResult("unreachable")
        raise LocalError(f"no socket: {error.strerror}") from None
    code = sock.connect_ex((address, peer.port))
    if code in (0, errno.EINPROGRESS):
        return _Attempt(peer, sock, deadline)
    sock.close()
    if code in _LOCAL and family == socket.AF_INET:
        raise LocalError(os.strerror(code))
    return DialResult(_reason(code))


def _reason(code: int) -> str:
    return _REASON_OF.get(code, "unreachable")


def _expired(attempt: _Attempt) -> DialResult:
    reason = "protocol" if attempt.received else "silent"
    return DialResult(reason if attempt.connected else "timeout", attempt.round_trip)


def _proceed(attempt: _Attempt, selector: selectors.BaseSelector) -> DialResult | None:
    """Handle an event of the socket. Returns the result, or None if there is none yet."""
    if not attempt.connected:
        code = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return DialResult(_reason(code))
        attempt.connected = True
        attempt.round_trip = _round_trip(attempt.sock)
        if attempt.peer.protocol == "tcp":
            return DialResult("", attempt.round_trip)
        selector.modify(attempt.sock, selectors.EVENT_READ, attempt)
        return None
    try:
        data = attempt.sock.recv(4096)
    except BlockingIOError:
        return None
    except OSError as error:
        return DialResult(_reason(error.errno or 0), attempt.round_trip)
    attempt.received += data
    lines = attempt.received.split(b"\n")
    if any(line.startswith(_BANNER) for line in lines):
        return DialResult("", attempt.round_trip)
    if not data:
        return DialResult("protocol" if attempt.received else "closed", attempt.round_trip)
    too_long = len(attempt.received) > _MAX_BANNER_BYTES
    return DialResult("protocol", attempt.round_trip) if too_long else None


def _round_trip(sock: socket.socket) -> float | None:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return None
    microseconds, retransmits = (
        struct.unpack_from("I", info, offset)[0] for offset in (_RTT_OFFSET, _RETRANSMITS_OFFSET)
    )
    return microseconds / 1e6 if microseconds and not retransmits else None
