"""Tests that the hub orders, in any slot: the messages between the hub and an agent.

The hub opens an order on the target, then the same order on the source (`PUT
/fabric/v1/orders/ID`), and asks both for its state (`GET …/ID?wait=SECONDS`) until it is done; that
also keeps it alive: an order that the hub does not ask for in LEASE_SECONDS ends. `DELETE …/ID`
ends it at once. An order is executed once: a repeated PUT returns its state, and one that was
issued before the agent started, or long ago, is refused.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Optional, get_args

import msgspec
from msgspec.structs import replace

from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric.settings import DEVICE_NAME, TestSettings
from nodevitals.probes.fabric.tools.report import Report

ORDERS_PATH = "/fabric/v1/orders"
MAX_ORDER_BYTES = 32 * 1024
MAX_STATUS_BYTES = 512 * 1024
"""No state of an order is longer."""
MAX_TESTS = 64
MAX_OUTPUT_BYTES = 64 * 1024
"""Of the output of all tests together; each has an equal share."""
LEASE_SECONDS = 15.0
"""An order ends if the hub has not asked for it for so long."""
MAX_WAIT_SECONDS = 10.0
"""A longer `wait` is cut to this: the next request must come before the lease ends."""
MAX_AGE_SECONDS = 120.0
"""An order that was issued longer ago is refused: it is a replay."""
CLOCK_SECONDS = 2.0
"""How far the hub's clock may be ahead of the agent's; an order issued later is refused."""
ORDER_ENDS = ("canceled", "lease")
"""Why an order ended: by the hub, or without the hub."""
OrderOutcome = Literal["ok", "failed", "skipped", "canceled", "lease", "refused"]
ORDER_OUTCOMES: tuple[OrderOutcome, ...] = get_args(OrderOutcome)
OrderState = Literal["waiting", "running", "done"]
OrderRefusal = Literal[
    "not_this_node", "not_listed", "stale", "busy", "forbidden", "invalid", "unknown"
]
OrderId = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9-]{8,64}\Z")]

MAX_ROWS = 8
MAX_COMMAND = 512
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_OMITTED = "\n[…]\n"


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pair test that the hub orders; the source and the target get the same one."""

    id: OrderId
    issued: float
    """Seconds since the epoch."""
    node: str
    """Name of the node that this message is for."""
    source: str
    target: str
    tests: Annotated[tuple[TestSettings, ...], msgspec.Meta(min_length=1, max_length=MAX_TESTS)]
    """Run one after the other. After a failed one, those with larger messages that are otherwise
    the same are not run."""
    force: bool = False
    """Whether to test even if an accelerator is in use; needs `hub.force` in the agent's file."""


class TestRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test on one node."""

    __test__ = False  # not for pytest

    command: str = ""
    """Command line that ran, quoted for a shell; '' where none did."""
    output: str = ""
    """What it printed: the beginning and the end where it is long."""
    port_bytes_per_second: Optional[float] = None
    """Rate of the physical port that the test used; None where it is unknown."""
    port_limit: str = ""
    """What kept the port from that rate: `PCIe 8.0 GT/s x8 of 32.0 GT/s x16`; '' for nothing."""


class OrderStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an order on one node. Reports are those of the source, one per test that has
    ended, in the order of the tests.
    """

    id: str
    state: OrderState
    reports: tuple[Report, ...] = ()
    skipped: str = ""
    """Why it ended without a report for each test: a reason of the gate, `budget`, `peer_busy`,
    `lease` (the hub did not ask), `canceled`. If the target's gate closed, the target's state has
    the reason of the gate, and the source's state has `peer_busy`."""
    runs: tuple[TestRun, ...] = ()
    """What ran on this node, in the order of the tests, up to the last one that started here."""
    seconds: float = 0.0
    """Time from the acceptance of the order to its end, or until now."""
    versions: dict[str, str] = {}
    """Versions of nodevitals and of the tool."""
    governor: str = ""
    """Frequency governor of this node's processors while its last test ran, or several; '' where it
    is unknown."""


class OrderRefused(msgspec.Struct, frozen=True, kw_only=True):
    """The order is not accepted (HTTP 409, or 403 for `forbidden`)."""

    refusal: OrderRefusal
    reason: Optional[str] = None
    message: str = ""


def problem_of(order: Order) -> str:
    """The problem of an order in one line, regardless of this node; '' for none."""
    if order.source == order.target:
        return "source and target are the same node"
    if len({test.key for test in order.tests}) < len(order.tests):
        return "two tests are the same"
    for number, test in enumerate(order.tests):
        if not DEVICE_NAME.fullmatch(test.device):
            return f"tests[{number}].device: {test.device[:64]!r} is no name of a device"
        for problem in test.problems():
            return f"tests[{number}].{problem.path}: {problem.message}"
    return ""


class FinishedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order that has ended here, or was refused; `text` is its line in the log."""

    outcome: OrderOutcome
    text: str


class AcceptedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order that was accepted here; `text` is its line in the log."""

    text: str


def outcome_of(status: OrderStatus) -> OrderOutcome:
    """The outcome of an order that is done."""
    if status.skipped in ("canceled", "lease"):
        return "canceled" if status.skipped == "canceled" else "lease"
    if status.skipped:
        return "skipped"
    return "failed" if any(report.outcome != "ok" for report in status.reports) else "ok"


class OrderEntry:
    """An accepted order. On the source, `peer` is the address of the target; on the target,
    None.
    """

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
        """Renew the lease, because the hub has asked for the order."""
        self._asked = time.monotonic()

    def end(self, reason: str = "") -> None:
        """Let the order end, for this reason or because all tests have run; the first call
        counts.
        """
        with self._changed:
            if not self._closing:
                self._closing, self.reason = True, reason

    def must_end(self) -> bool:
        """Whether the order must end now: `end` was called, or the lease has ended."""
        if time.monotonic() - self._asked > LEASE_SECONDS:
            self.end("lease")
        return self._closing

    def start(
        self, key: str, port_bytes_per_second: float | None = None, port_limit: str = ""
    ) -> None:
        """Record the start of the test with this key, on a port with this rate and limit."""
        self._record(key, port_bytes_per_second=port_bytes_per_second, port_limit=port_limit)

    def govern(self, governor: str) -> None:
        """Record the governor of the processors."""
        with self._changed:
            self._status = replace(self._status, governor=governor)

    def open_once(self, key: str) -> bool:
        """Whether the peer opens this test for the first time."""
        if key in self._opened:
            return False
        self._opened.add(key)
        return True

    def test(self, key: str) -> TestSettings | None:
        """The test with this key."""
        return next((test for test in self.order.tests if test.key == key), None)

    def add(self, report: Report) -> None:
        """Keep the report of a test, with a limited number of rows: a failed one may have any."""
        report = replace(report, rows=report.rows[:MAX_ROWS])
        with self._changed:
            self._status = replace(self._status, reports=(*self._status.reports, report))

    def keep(self, key: str, argv: Sequence[str], output: str) -> None:
        """Keep what ran for the test with this key, and its output within the test's share."""
        share = MAX_OUTPUT_BYTES // len(self.order.tests)
        output = limited(_CONTROL.sub("\ufffd", output), share)
        self._record(key, command=shlex.join(argv)[:MAX_COMMAND], output=output)

    def _record(self, key: str, **changes: object) -> None:
        place = next(place for place, test in enumerate(self.order.tests) if test.key == key)
        with self._changed:
            runs = [*self._status.runs]
            runs += [TestRun()] * (place + 1 - len(runs))
            runs[place] = replace(runs[place], **changes)
            self._status = replace(self._status, state="running", runs=tuple(runs))

    def finish(self, versions: Mapping[str, str]) -> None:
        """Record the end of the order: no tool runs. `versions` are the versions of its tools."""
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
        """The state of the order, when it is done or after so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._status.state == "done", wait_seconds)
            status = self._status
        if status.state == "done":
            return status
        return replace(status, seconds=time.monotonic() - self._accepted)


def limited(text: str, size: int) -> str:
    """The text, or its beginning and its end if it has more than so many bytes in UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= size:
        return text
    half = (size - len(_OMITTED.encode())) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return head + _OMITTED + tail
