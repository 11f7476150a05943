"""Resolves many names at once: the C library's resolver blocks, so each name has a thread.

A thread that hangs in the name service is left behind; it ends with the worker.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterable

MAX_THREADS = 32
# The usual stack of 8 MiB, 32 times, would use all the memory that a worker may have.
STACK_BYTES = 512 * 1024


def resolve(hosts: Iterable[str], deadline: float) -> dict[str, tuple[str, ...]]:
    """Every address of each host, best first; () for an unknown name, and for a name that was
    looked up without an answer by `deadline` (monotonic seconds). Names whose look-up did not
    start by then are left out.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]] = queue.SimpleQueue()
    wanted = set(hosts)
    for host in sorted(wanted):
        waiting.put(host)
    started: list[str] = []
    threading.stack_size(STACK_BYTES)
    for _ in range(min(MAX_THREADS, len(wanted))):
        threading.Thread(target=_resolve_all, args=(waiting, started, answers), daemon=True).start()
    found: dict[str, tuple[str, ...]] = {}
    while len(found) < len(wanted):
        try:
            host, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[host] = addresses
    return dict.fromkeys(started, ()) | found


def _resolve_all(
    waiting: queue.SimpleQueue[str],
    started: list[str],
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]],
) -> None:
    while True:
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        started.append(host)
        try:
            # AI_ADDRCONFIG omits the family to which this node has no route.
            rows = socket.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, ValueError):  # ValueError: no possible name, such as `a..b`
            rows = []
        answers.put((host, tuple(dict.fromkeys(str(row[4][0]) for row in rows))))
