"""One order on this node: its state, and what ends it. Threads of connections and the runner's
thread use it together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace

from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric.orders import (
    LEASE_SECONDS,
    MAX_RAW_BYTES,
    Order,
    OrderStatus,
)
from nodevitals.probes.fabric.report import Report
from nodevitals.probes.fabric.settings import TestSettings

MAX_ROWS = 8
_OMITTED = "\n[…]\n"


class OrderEntry:
    """An accepted order. `peer` is where the target is, on the source; None on the target."""

    def __init__(self, order: Order, peer: ListedTarget | None, versions: dict[str, str]) -> None:
        self.order = order
        self.peer = peer
        self.reason = ""
        """Why it must end, or ended, before its tests were through."""
        self._status = OrderStatus(id=order.id, state="waiting", versions=versions)
        self._changed = threading.Condition()
        self._closing = False
        self._opened: set[str] = set()
        self._accepted = self._asked = time.monotonic()

    def renew(self) -> None:
        """The hub has asked for it."""
        self._asked = time.monotonic()

    def end(self, reason: str = "") -> None:
        """Let it end, for this reason, or as its tests are through; the first call counts."""
        with self._changed:
            if not self._closing:
                self._closing, self.reason = True, reason

    def must_end(self) -> bool:
        """Whether it must end now: `end` was called, or the hub has not asked for it."""
        if time.monotonic() - self._asked > LEASE_SECONDS:
            self.end("lease")
        return self._closing

    def start(self, port_bytes_per_second: float | None = None) -> None:
        """A test starts, on a port of this rate."""
        with self._changed:
            if self._status.state == "waiting":
                self._status = replace(
                    self._status, state="running", port_bytes_per_second=port_bytes_per_second
                )

    def open_once(self, key: str) -> bool:
        """Whether this test is opened for the first time (the runner's peer, under a lock)."""
        if key in self._opened:
            return False
        self._opened.add(key)
        return True

    def test(self, key: str) -> TestSettings | None:
        """The test with this key."""
        return next((test for test in self.order.tests if test.key == key), None)

    def add(self, report: Report) -> None:
        """Keep the report of a test: a failed one may have any number of rows."""
        report = replace(report, rows=report.rows[:MAX_ROWS])
        with self._changed:
            self._status = replace(self._status, reports=(*self._status.reports, report))

    def keep(self, text: str) -> None:
        """Keep the output of a tool: each test has its share of the limit."""
        text = limited(text, MAX_RAW_BYTES // len(self.order.tests))
        with self._changed:
            self._status = replace(self._status, raw=self._status.raw + text)

    def finish(self, versions: Mapping[str, str]) -> None:
        """It has ended: no tool runs. `versions` are those of its tools."""
        with self._changed:
            self._status = replace(
                self._status,
                state="done",
                skipped=self.reason,
                seconds=time.monotonic() - self._accepted,
                versions={**self._status.versions, **versions},
            )
            self._changed.notify_all()

    def status(self, wait_seconds: float = 0.0) -> OrderStatus:
        """Its state, when it is done or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._status.state == "done", wait_seconds)
            status = self._status
        if status.state == "done":
            return status
        return replace(status, seconds=time.monotonic() - self._accepted)


def limited(text: str, size: int) -> str:
    """The text, or its beginning and its end where it has more than so many bytes in UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text
    half = (size - len(_OMITTED.encode())) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return head + _OMITTED + tail
