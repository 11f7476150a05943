"""A hub whose tests are simulated: `python -m testbed.hub --config.file FILE`, as `nodevitals hub`.

Each pair has 10 GB/s; a node named in $SLOW (`gpu-3,gpu-7`) has 40 % of that with all partners.
Each run takes $RUN_SECONDS (default 0.2).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from nodevitals.checks.model import Check, RunResult
from nodevitals.commands import hub as command
from nodevitals.commands.cli import main
from nodevitals.hub import service
from nodevitals.hub.runners import PlannedRun, Runner
from nodevitals.hub.store import Issued
from nodevitals.probes.fabric.report import Report, ResultRow

USUAL_BYTES_PER_SECOND = 10e9


class SimulatedRunner(Runner):
    """Reports figures after a while, without any agent."""

    def __init__(self, seconds: float, slow: frozenset[str]) -> None:
        self.seconds = seconds
        self.slow = slow

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Wait, and return one row per run."""
        await asyncio.sleep(self.seconds)
        rate = USUAL_BYTES_PER_SECOND * (0.4 if self.slow & set(run.nodes) else 1.0)
        row = ResultRow(
            operation=check.request.test.operation or None,
            message_bytes=65536,
            bandwidth_bytes_per_second=rate,
            bus_bandwidth_bytes_per_second=rate if check.request.kind == "collective" else None,
        )
        return RunResult(
            number=run.number,
            nodes=run.nodes,
            reports=(Report(outcome="ok", rows=(row,)),),
            started=time.time() - self.seconds,
            seconds=self.seconds,
            raw=f"simulated: {rate:g} bytes per second\n",
            versions={"simulated": "1"},
        )


def simulated_runner() -> SimulatedRunner:
    """The runner that the environment describes."""
    slow = frozenset(filter(None, os.environ.get("SLOW", "").split(",")))
    return SimulatedRunner(float(os.environ.get("RUN_SECONDS", "0.2")), slow)


if __name__ == "__main__":
    assert command
    service.default_runner = lambda *_: simulated_runner()
    sys.exit(main(["hub", *sys.argv[1:]]))
