"""Connects to peers, many at once, from one thread; nothing is said to them.

In: peers with their addresses. Out: an `Answer` each. TCP's own measure of the round trip is the
kernel's, from SYN to SYN-ACK: how busy this process is does not enter.
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

import msgspec

from nodevitals.probes.common.targets import Peer

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
    # A rule of this node's own firewall.
    errno.EPERM: "blocked",
    errno.EACCES: "blocked",
}
# Ours, not the peer's: no port, memory or descriptor to spare.
_LOCAL = (errno.EADDRNOTAVAIL, errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)
# RFC 4253, 4.2: a server may send other lines before its version.
_BANNER = b"SSH-"
_MAX_BANNER_BYTES = 8192
# struct tcp_info of linux/tcp.h: tcpi_rtt (microseconds) and tcpi_total_retrans.
_TCP_INFO_BYTES = 104
_RTT_OFFSET, _RETRANSMITS_OFFSET = 68, 100


class LocalError(Exception):
    """This node could not even try; nothing is known of the peer."""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What came of a connection. `reason` is '' where the peer is as it should be; the round trip
    is None where it was not measured: no connection, or a lost SYN.
    """

    reason: str
    round_trip_seconds: float | None = None


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
) -> Iterator[tuple[Peer, Answer]]:
    """Connect to each peer at its address, so many at once; each gets `timeout` seconds. After
    `start_until` (monotonic seconds) no other is begun.

    Raises LocalError where this node has no socket or port to spare.
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
                begun = _begin(peer, address, time.monotonic() + timeout)
                if isinstance(begun, Answer):
                    yield peer, begun
                else:
                    active[begun.sock.fileno()] = begun
                    selector.register(begun.sock, selectors.EVENT_WRITE, begun)
            if not active:
                continue
            soonest = min(attempt.deadline for attempt in active.values())
            ready = selector.select(max(0.0, soonest - time.monotonic()))
            now = time.monotonic()
            ended = [(key.data, _go_on(key.data, selector)) for key, _ in ready]
            late = [(one, _late(one)) for one in active.values() if one.deadline <= now]
            for attempt, answer in {id(a): (a, b) for a, b in (*late, *ended) if b}.values():
                selector.unregister(attempt.sock)
                del active[attempt.sock.fileno()]
                attempt.sock.close()
                yield attempt.peer, answer
    finally:
        for attempt in active.values():
            attempt.sock.close()
        selector.close()


def _begin(peer: Peer, address: str, deadline: float) -> _Attempt | Answer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT:
            return Answer("unreachable")
        raise LocalError(f"no socket: {error.strerror}") from None
    code = sock.connect_ex((address, peer.port))
    if code in (0, errno.EINPROGRESS):
        return _Attempt(peer, sock, deadline)
    sock.close()
    if code in _LOCAL and family == socket.AF_INET:
        raise LocalError(os.strerror(code))
    return Answer(_reason(code))


def _reason(code: int) -> str:
    return _REASON_OF.get(code, "unreachable")


def _late(attempt: _Attempt) -> Answer:
    said = "protocol" if attempt.received else "silent"
    return Answer(said if attempt.connected else "timeout", attempt.round_trip)


def _go_on(attempt: _Attempt, selector: selectors.BaseSelector) -> Answer | None:
    """The answer once it is there; None while more is to come."""
    if not attempt.connected:
        code = attempt.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return Answer(_reason(code))
        attempt.connected = True
        attempt.round_trip = _round_trip(attempt.sock)
        if attempt.peer.protocol == "tcp":
            return Answer("", attempt.round_trip)
        selector.modify(attempt.sock, selectors.EVENT_READ, attempt)
        return None
    try:
        data = attempt.sock.recv(4096)
    except BlockingIOError:
        return None
    except OSError as error:
        return Answer(_reason(error.errno or 0), attempt.round_trip)
    attempt.received += data
    lines = attempt.received.split(b"\n")
    if any(line.startswith(_BANNER) for line in lines):
        return Answer("", attempt.round_trip)
    if not data:
        return Answer("protocol" if attempt.received else "closed", attempt.round_trip)
    too_long = len(attempt.received) > _MAX_BANNER_BYTES
    return Answer("protocol", attempt.round_trip) if too_long else None


def _round_trip(sock: socket.socket) -> float | None:
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return None
    microseconds, retransmits = (
        struct.unpack_from("I", info, offset)[0] for offset in (_RTT_OFFSET, _RETRANSMITS_OFFSET)
    )
    return microseconds / 1e6 if microseconds and not retransmits else None
