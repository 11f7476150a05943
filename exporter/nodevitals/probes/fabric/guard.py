"""The conditions of both sides of a test: whether it may start, and when its tool must stop."""

from __future__ import annotations

import threading
import time

from nodevitals.linux.host import Host
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.budget import Meter
from nodevitals.probes.fabric.gate import Gate
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tool_process import ToolProcess

CHECK_SECONDS = 0.1


class Guard:
    """The gate and the budget of this node."""

    def __init__(self, settings: FabricSettings, host: Host, meter: Meter) -> None:
        self._host = host
        self._meter = meter
        self._gate = Gate(settings.gate, host)

    def refusal(self, test: TestSettings) -> str:
        """Why this test may not start now; '' where it may."""
        reason = self._gate.check_before_start(measurement.link_of(test, self._host))
        if reason:
            return reason
        fits = self._meter.allows(time.time(), test.timeout, test.total_bytes)
        return "" if fits else "budget"

    def watch(
        self, process: ToolProcess, seconds: float, closing: threading.Event | None = None
    ) -> str:
        """Wait until the tool ends or `closing` is set: then ''; else why it must stop, `timeout`
        or a reason of the gate.
        """
        deadline = time.monotonic() + seconds
        closing = closing or threading.Event()
        while process.status() is None and not closing.wait(CHECK_SECONDS):
            reason = self._gate.check()
            if reason:
                return reason
            if time.monotonic() > deadline:
                return "timeout"
        return ""

    def charge(self, test: TestSettings, started: float, seconds: float) -> None:
        """Charge a test that ran here from `started` (seconds since the epoch) to the budget."""
        self._meter.charge(started, seconds, test.total_bytes)
