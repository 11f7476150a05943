"""A probe that runs soon after a message, in a process of its own."""

from __future__ import annotations

import time
from pathlib import Path

from nodevitals.probes.misbehave import (  # type: ignore[import-untyped]
    VALUE,
    MisbehaveProbe,
)

from nodevitals.probe import Readings


class PromptMisbehaveProbe(MisbehaveProbe):  # type: ignore[misc]
    """Exposes the number of its runs; the first one waits until a message for the next is there."""

    name = "misbehave_prompt"
    resident = True
    prompt = True
    _runs = 0

    def run(self, readings: Readings) -> None:
        """Count."""
        self._runs += 1
        folder = Path(self.settings.folder)
        (folder / "running").touch()
        while not (folder / "delivered").exists():
            time.sleep(0.05)
        readings.add(VALUE, self._runs, f"{self.target} runs")
