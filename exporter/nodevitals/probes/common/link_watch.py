"""Looks at the links of a node between the runs of a probe, to see outages of seconds.

A thread of the probe's worker: it looks when the kernel announces a change of an interface, and
every second while a link is down or cannot be announced (InfiniBand; a network namespace other than
the agent's). While all links are up and announced, it sleeps. A call that hangs in a driver holds
up neither the run nor the scrape.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from nodevitals.linux.link_events import LinkEvents, index_of
from nodevitals.linux.sysfs import read_integer
from nodevitals.probes.common.downtime import Downtime, Downtimes
from nodevitals.probes.common.link_sights import InterfaceFiles, LinkFiles

LOOK_SECONDS = 1.0
# Also where nothing is announced: a lost message costs no more.
_QUIET_LOOK_SECONDS = 60.0
# After an announcement: a node that starts a hundred containers has many.
_PAUSE_SECONDS = 0.1
_HANGING_SECONDS = 1.0
_STACK_BYTES = 256 * 1024
_MAX_OUTAGES = 8


def now_seconds() -> float:
    """Seconds since the boot, those of a suspended node included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LinkWatch:
    """The thread, and what it has seen."""

    def __init__(self, known: Downtimes) -> None:
        """`known` is what an earlier worker has seen since the boot."""
        self._boot_id = known.boot_id
        self._known = known.links
        self._links: dict[str, LinkFiles] = {}
        self._indexes: set[int] = set()
        self._all_announced = False
        self._ended: list[tuple[str, float]] = []
        self._looking = threading.Lock()
        self._events: LinkEvents | None = None
        with contextlib.suppress(OSError):
            self._events = LinkEvents()
        self._waker, self._wakened = socket.socketpair()
        threading.stack_size(_STACK_BYTES)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._started = False

    def update(self, links: Mapping[str, LinkFiles], missing: Iterable[str] = ()) -> None:
        """Watch these links from now on, and those that are missing but known. The thread starts
        with the first.
        """
        if self._started and not self._thread.is_alive():
            raise RuntimeError("the thread that looks at the links has ended")  # a bug
        last = {name: self._links[name] for name in missing if name in self._links}
        links, before = {**last, **links}, self._seconds()
        if links != self._links:
            self._indexes = set(_indexes(links))
            self._all_announced = self._events is not None and len(self._indexes) == len(links)
            self._links = links
        self._look()
        if links and not self._started:
            self._started = True
            self._thread.start()
        elif self._seconds() < before:
            self._wake()

    def seen(self) -> tuple[Downtimes, list[tuple[str, float]]]:
        """What was seen until now, for the state, and the outages that ended since the last call:
        the name and the length of each.
        """
        # Looks replace a Downtime; what is handed out does not change.
        known = {name: one for name, one in list(self._known.items()) if name in self._links}
        ended, self._ended = self._ended, []
        return Downtimes(self._boot_id, known), ended

    def close(self) -> None:
        """End the thread, unless it hangs."""
        self._wake(last=True)
        if self._started:
            self._thread.join(_HANGING_SECONDS)
        if not self._thread.is_alive():
            for one in (self._events, self._waker, self._wakened):
                if one is not None:
                    one.close()

    def _wake(self, last: bool = False) -> None:
        with contextlib.suppress(OSError):
            if last:
                self._waker.shutdown(socket.SHUT_WR)
            else:
                self._waker.send(b"l", socket.MSG_DONTWAIT)

    def _watch(self) -> None:
        while self._wait():
            self._look()

    def _wait(self) -> bool:
        """Wait until the next look is due; False at the end."""
        poll = select.poll()
        poll.register(self._wakened, select.POLLIN)
        if self._events is not None:
            poll.register(self._events, select.POLLIN)
        deadline = time.monotonic() + self._seconds()
        while (left := deadline - time.monotonic()) > 0:
            ready = [one for one, _ in poll.poll(left * 1000)]
            if self._wakened.fileno() in ready:
                if not self._wakened.recv(4096):
                    return False
                # The links may be others, and so may be what is due.
                deadline = min(deadline, time.monotonic() + self._seconds())
            if self._events is not None and self._events.fileno() in ready:
                if self._events.changed(self._indexes):
                    return True
                time.sleep(_PAUSE_SECONDS)
        return True

    def _seconds(self) -> float:
        """How long the thread may sleep."""
        down = any(one.seen == "down" for one in list(self._known.values()))
        return LOOK_SECONDS if down or not self._all_announced else _QUIET_LOOK_SECONDS

    def _look(self) -> None:
        """Look at every link. One look at a time: while one hangs, the others are left out."""
        if not self._looking.acquire(timeout=_HANGING_SECONDS):
            return
        try:
            for name, files in self._links.items():
                self._look_at(name, files)
        finally:
            self._looking.release()

    def _look_at(self, name: str, files: LinkFiles) -> None:
        sight = files.look()
        count = files.down_count() if sight == "down" else None
        one = self._known.get(name, Downtime())
        if sight == one.seen == "up":
            return
        changed = one.copied()
        ended = changed.look(now_seconds(), sight, count)
        self._known = {**self._known, name: changed}
        if ended and len(self._ended) < _MAX_OUTAGES:
            self._ended.append((name, ended))


def _indexes(links: Mapping[str, LinkFiles]) -> Iterator[int]:
    """The indexes of the links that are announced: those that this network namespace has, too."""
    for files in links.values():
        if isinstance(files, InterfaceFiles):
            index = index_of(files.name)
            if index is not None and index == read_integer(f"{files.directory}/ifindex"):
                yield index
