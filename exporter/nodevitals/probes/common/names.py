"""Names into addresses, many at once: the C library's resolver blocks, so each in a thread.

A thread that hangs in the name service is left behind; it goes with the worker.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterable

MOST_THREADS = 32
# Of the 8 MiB that a thread gets otherwise, 32 would take all that a worker may have.
STACK_BYTES = 512 * 1024


def resolve(hosts: Iterable[str], deadline: float) -> dict[str, tuple[str, ...]]:
    """Every address of each host, best first; () for a name that is not known, or that the name
    service was asked for and has not answered by `deadline` (monotonic seconds). Names that it
    could not be asked for by then are left out.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]] = queue.SimpleQueue()
    wanted = set(hosts)
    for host in sorted(wanted):
        waiting.put(host)
    asked: list[str] = []
    threading.stack_size(STACK_BYTES)
    for _ in range(min(MOST_THREADS, len(wanted))):
        threading.Thread(target=_work, args=(waiting, asked, answers), daemon=True).start()
    found: dict[str, tuple[str, ...]] = {}
    while len(found) < len(wanted):
        try:
            host, addresses = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[host] = addresses
    return dict.fromkeys(asked, ()) | found


def _work(
    waiting: queue.SimpleQueue[str],
    asked: list[str],
    answers: queue.SimpleQueue[tuple[str, tuple[str, ...]]],
) -> None:
    while True:
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        asked.append(host)
        try:
            # What one node has no route to is left out (AI_ADDRCONFIG).
            rows = socket.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except (OSError, UnicodeError):
            rows = []
        answers.put((host, tuple(dict.fromkeys(str(row[4][0]) for row in rows))))
