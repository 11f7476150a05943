"""What executes one run of a check, behind one interface."""

from __future__ import annotations

from typing import Protocol

import msgspec

from nodevitals.checks.model import Check, RunResult
from nodevitals.hub.store import Issued


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a check's plan: a pair (source, target), a collective's nodes, or one node."""

    number: int
    nodes: tuple[str, ...]


class Runner(Protocol):
    """Executes runs. `issued` was stored before: its name is unique, and after a restart of the hub
    the same run comes with the same name and time (`again`); it must then not be executed a second
    time. A run that cannot be executed has `skipped` or failed reports; nothing is raised.
    Cancellation ends the run everywhere, in bounded time.
    """

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Execute a run."""
        raise NotImplementedError


def skipped(run: PlannedRun, reason: str) -> RunResult:
    """The result of a run that was not executed."""
    return RunResult(number=run.number, nodes=run.nodes, skipped=reason)


class NoRunner(Runner):
    """For a hub without agents and a launcher: executes nothing."""

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Skip the run."""
        return skipped(run, "no_runner")
