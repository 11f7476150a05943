"""The same, kept open in the process that other targets share."""

from __future__ import annotations

import os

from nodevitals.probes.misbehave import VALUE, MisbehaveProbe  # type: ignore[import-untyped]

from nodevitals.probe import Readings


class KeptMisbehaveProbe(MisbehaveProbe):  # type: ignore[misc]
    """One behaviour; `counts` tells its process, and its number of runs since it was opened."""

    name = "misbehave_kept"
    resident = True
    shared = True
    _runs = 0

    def run(self, readings: Readings) -> None:
        """Count, or misbehave."""
        self._runs += 1
        if not self.target.startswith("counts"):
            super().run(readings)
            return
        readings.add(VALUE, os.getpid(), f"{self.target} process")
        readings.add(VALUE, self._runs, f"{self.target} runs")
        readings.add(VALUE, self.settings.series, f"{self.target} series")
