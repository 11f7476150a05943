"""The counts of driver events of one run, and which NICs have failed.

In: the driver events of the log, in its order. Out: increments, times, and whether each NIC that
has failed in this boot has recovered.
"""

from __future__ import annotations

from collections import Counter

from nodevitals.probe import Readings
from nodevitals.probes.kernel_log.drivers import FAILURES, RECOVERIES, STARTED, DriverEvent
from nodevitals.probes.kernel_log.families import DEVICE_EVENT_LAST, DEVICE_EVENTS, NIC_FAILED
from nodevitals.probes.kernel_log.state import KernelLogState, LastDeviceEvent, NicState

# Virtual functions of one NIC can be hundreds.
MAX_SERIES = 500


class DeviceTally:
    """Counts for one run."""

    def __init__(self, state: KernelLogState) -> None:
        self._state = state
        self._counts: Counter[DriverEvent] = Counter()
        self._last = {
            DriverEvent(one.driver, one.pci_bus_id, one.event): one for one in state.device_events
        }

    def add(self, event: DriverEvent, time: float) -> bool:
        """Count an event; whether it is one, and not only the end of a failure."""
        self._set_failed(event)
        if event.event == STARTED or (event not in self._last and len(self._last) >= MAX_SERIES):
            return False
        self._counts[event] += 1
        self._last[event] = LastDeviceEvent(*event, time)
        return True

    def _set_failed(self, event: DriverEvent) -> None:
        if not event.pci_bus_id or event.driver == "nvidia":
            return
        known = [one for one in self._state.nics if one.pci_bus_id == event.pci_bus_id]
        if event.event in RECOVERIES:
            for one in known:
                one.failed = False
        elif event.event in FAILURES and known:
            known[0].failed = True
        elif event.event in FAILURES and len(self._state.nics) < MAX_SERIES:
            self._state.nics.append(NicState(event.driver, event.pci_bus_id, failed=True))

    def report(self, readings: Readings) -> None:
        """Report everything, and keep what the next run needs."""
        self._state.device_events = list(self._last.values())
        for event, count in self._counts.items():
            readings.increment(DEVICE_EVENTS, count, event.pci_bus_id, event.driver, event.event)
        for last in self._state.device_events:
            labels = (last.pci_bus_id, last.driver, last.event)
            readings.add(DEVICE_EVENT_LAST, last.time, *labels)
        for nic in self._state.nics:
            readings.add(NIC_FAILED, nic.failed, nic.pci_bus_id, nic.driver)
