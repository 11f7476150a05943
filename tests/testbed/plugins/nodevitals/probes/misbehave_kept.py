"""The same, kept open between its runs."""

from __future__ import annotations

import os
import threading

from nodevitals.probes.misbehave import (  # type: ignore[import-untyped]
    VALUE,
    MisbehaveProbe,
    write_raw,
)

from nodevitals.probe import Readings
from nodevitals.wire import Wanted, frame


class KeptMisbehaveProbe(MisbehaveProbe):  # type: ignore[misc]
    """One behaviour. `counts` exposes its process id and the number of runs since it was opened;
    `counts-wanted` asks for another run after each, whatever there is to read, and
    `counts-messages` sends itself a message that differs from its last one.
    """

    name = "misbehave_kept"
    resident = True
    prompt = True
    _runs = 0

    def run(self, readings: Readings) -> None:
        """Count, or misbehave."""
        self._runs += 1
        if not self.target.startswith("counts"):
            super().run(readings)
            return
        if self.target == "counts-wanted":
            asked = frame(Wanted(self.name, self.target))
            threading.Timer(0.1, write_raw, [asked]).start()
        if self.target == "counts-messages":
            readings.send(self.name, Wanted(self.name, str(self._runs)))
        readings.add(VALUE, os.getpid(), f"{self.target} process")
        readings.add(VALUE, self._runs, f"{self.target} runs")
        readings.add(VALUE, self.settings.series, f"{self.target} series")
