"""The conditions of both sides of a test: whether it may start, and when its tool must stop."""

from __future__ import annotations

import threading
import time

from nodevitals.linux.host import Host
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.budget import Meter
from nodevitals.probes.fabric.gate import Gate
from nodevitals.probes.fabric.order_entry import OrderEntry
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tool_process import ToolProcess

CHECK_SECONDS = 0.1


class Guard:
    """The gate and the budget of this node."""

    def __init__(self, settings: FabricSettings, host: Host, meter: Meter) -> None:
        self._host = host
        self._meter = meter
        self._gate = Gate(settings.gate, host)

    def refusal(self, test: TestSettings, order: OrderEntry | None = None) -> str:
        """Why this test, planned or of an order, may not start now; '' where it may."""
        forced = order is not None and order.order.force
        reason = self._gate.check_before_start(measurement.link_of(test, self._host), forced)
        if reason:
            return reason
        size = measurement.bytes_of(test, self._host)
        return "" if self._meter.allows(time.time(), test.timeout, size) else "budget"

    def watch(
        self,
        process: ToolProcess,
        seconds: float,
        closing: threading.Event | None = None,
        order: OrderEntry | None = None,
    ) -> str:
        """Wait until the tool ends or `closing` is set: then ''; else why it must stop, `timeout`,
        a reason of the gate, or of the end of its order.
        """
        deadline = time.monotonic() + seconds
        closing = closing or threading.Event()
        forced = order is not None and order.order.force
        while process.status() is None and not closing.wait(CHECK_SECONDS):
            reason = self._gate.check(forced)
            if reason:
                return reason
            if order is not None and order.must_end():
                return order.reason
            if time.monotonic() > deadline:
                return "timeout"
        return ""

    def charge(self, test: TestSettings, started: float, seconds: float) -> float:
        """Charge a test that ran here from `started` (seconds since the epoch) to the budget.
        Returns its bytes.
        """
        size = measurement.bytes_of(test, self._host, seconds)
        self._meter.charge(started, seconds, size)
        return size
