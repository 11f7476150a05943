"""Looks at the links of a node between the runs of a probe, to see and report outages of
seconds.

A thread of the probe's worker: it looks when the kernel announces a change of an interface, and
every second while a link is down or its changes are not announced (InfiniBand; a network namespace
other than the agent's). While all links are up and announced, it sleeps. A call that hangs in a
driver delays neither the run nor the scrape. A look reads few files of sysfs. A RoCE port is looked
at through its network interface: the kernel announces its changes, while a look at the port itself
is a request to the firmware.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Union

from nodevitals.linux import netdev
from nodevitals.linux.netlink import LinkEvents, index_of
from nodevitals.linux.sysfs import exists, read_integer, read_text
from nodevitals.probe import Family, Readings
from nodevitals.probes.common.downtime import Downtime, Downtimes, Sight
from nodevitals.probes.common.rdma import ACTIVE, ACTIVE_DEFER, parse_id

LOOK_SECONDS = 1.0
# Longest sleep also without an announcement: it limits the effect of a lost message.
_QUIET_LOOK_SECONDS = 60.0
# Pause after an announcement: a node that starts a hundred containers gets many.
_PAUSE_SECONDS = 0.1
_HANGING_SECONDS = 1.0
_STACK_BYTES = 256 * 1024
_MAX_OUTAGES = 8
_DOWN_STATES = (1, 2, 3)  # down, initializing, armed
_DISABLED = 3


class InterfaceFiles(NamedTuple):
    """A network interface, by its name and its directory in /sys/class/net."""

    name: str
    directory: str

    def look(self) -> Sight:
        """Whether it is up. An interface that is switched off or gone is away."""
        switched_on = netdev.is_switched_on(self.directory)
        if switched_on is None:
            return "away" if exists(self.directory) is False else "unknown"
        up = netdev.is_up(self.directory) if switched_on else None
        if not switched_on:
            return "away"
        return "unknown" if up is None else "up" if up else "down"

    def down_count(self) -> int | None:
        """Number of times that it lost its carrier."""
        counted = netdev.carrier_down_count(self.directory)
        return counted[0] if counted else None


class PortFiles(NamedTuple):
    """An RDMA port, by its directory in /sys/class/infiniband; `saturated` is the largest value of
    its `link_downed`.
    """

    directory: str
    saturated: int

    def look(self) -> Sight:
        """Whether it is active. A port that is disabled or gone is away."""
        state = parse_id(read_text(f"{self.directory}/state") or "")
        if state in (ACTIVE, ACTIVE_DEFER):
            return "up"
        if state is None and exists(self.directory) is False:
            return "away"
        physical = parse_id(read_text(f"{self.directory}/phys_state") or "")
        if state not in _DOWN_STATES or physical is None:
            return "unknown"
        return "away" if physical == _DISABLED else "down"

    def down_count(self) -> int | None:
        """Number of times that its link went down."""
        count = read_integer(f"{self.directory}/counters/link_downed")
        return None if count == self.saturated else count


LinkFiles = Union[InterfaceFiles, PortFiles]


def now_seconds() -> float:
    """Seconds since the boot, including the time when the node was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LinkWatch:
    """The thread, and the downtimes that it has observed."""

    def __init__(self, known: Downtimes) -> None:
        """`known` is what an earlier worker has observed since the boot."""
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
        """Watch these links from now on, and the known links that are missing. The first link
        starts the thread.
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
        """The downtimes until now, for the state, and the outages that ended since the last call:
        the name and the length of each.
        """
        # A look replaces a Downtime, so returned ones do not change.
        known = {
            name: downtime for name, downtime in list(self._known.items()) if name in self._links
        }
        ended, self._ended = self._ended, []
        return Downtimes(self._boot_id, known), ended

    def close(self) -> None:
        """End the thread, unless it hangs."""
        self._wake(last=True)
        if self._started:
            self._thread.join(_HANGING_SECONDS)
        if not self._thread.is_alive():
            for source in (self._events, self._waker, self._wakened):
                if source is not None:
                    source.close()

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
            ready = [descriptor for descriptor, _ in poll.poll(left * 1000)]
            if self._wakened.fileno() in ready:
                if not self._wakened.recv(4096):
                    return False
                # The links may have changed, and with them what is due.
                deadline = min(deadline, time.monotonic() + self._seconds())
            if self._events is not None and self._events.fileno() in ready:
                if self._events.changed(self._indexes):
                    return True
                time.sleep(_PAUSE_SECONDS)
        return True

    def _seconds(self) -> float:
        """How long the thread may sleep."""
        down = any(downtime.seen == "down" for downtime in list(self._known.values()))
        return LOOK_SECONDS if down or not self._all_announced else _QUIET_LOOK_SECONDS

    def _look(self) -> None:
        """Look at every link. One look at a time: while one hangs, there is no other."""
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
        before = self._known.get(name, Downtime())
        if sight == before.seen == "up":
            return
        changed = before.copied()
        ended = changed.look(now_seconds(), sight, count)
        self._known = {**self._known, name: changed}
        if ended and len(self._ended) < _MAX_OUTAGES:
            self._ended.append((name, ended))


def _indexes(links: Mapping[str, LinkFiles]) -> Iterator[int]:
    """The indexes of the links whose changes are announced: those in this network namespace."""
    for files in links.values():
        if isinstance(files, InterfaceFiles):
            index = index_of(files.name)
            if index is not None and index == read_integer(f"{files.directory}/ifindex"):
                yield index


def report_downtimes(
    watch: LinkWatch,
    before: Downtimes,
    labels: Mapping[str, tuple[str, ...]],
    families: tuple[Family, Family],
    readings: Readings,
) -> Downtimes:
    """Report the total downtime and the longest outage of each link whose `labels` are known.
    `before` is the state at the last run that was counted; returns the next one.
    """
    total, longest = families
    seen, ended = watch.seen()
    counted = before.links if before.boot_id == seen.boot_id else {}
    now = now_seconds()
    for name, own in labels.items():
        downtime = seen.links.get(name, Downtime())
        more = downtime.seconds - counted.get(name, Downtime()).seconds
        readings.increment(total, max(0.0, more), *own)
        readings.add(longest, downtime.longest_seconds(now), *own)
    for name, seconds in ended:
        readings.event(name, "outage", f"down for {seconds:.1f} s")
    return seen
