"""What executes one run of a check, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from nodevitals.checks.model import Check, CheckRequest, NodeVerdict, RunResult, TestRequest
from nodevitals_hub.store.check_store import Issued


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a check's plan: a pair (source, target), a collective's nodes, or one node."""

    number: int
    nodes: tuple[str, ...]
    test: TestRequest | None = None
    """Where it differs from the request's."""


class Runner:
    """Executes runs, and knows what stands against a check."""

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Execute a run. `issued` was stored before: its name is unique, and after a restart of the
        hub the same run comes with the same name and time (`again`); it must then not be executed a
        second time. A run that cannot be executed has `skipped` or failed reports; nothing is
        raised. Cancellation ends the run everywhere, in bounded time.
        """
        raise NotImplementedError

    def refusal(self, request: CheckRequest) -> str:
        """Why checks of this kind cannot be run here at all; '' where they can."""
        del request
        return ""

    async def in_use(self, request: CheckRequest) -> Sequence[str]:
        """The nodes of a request that jobs are known to use."""
        del request
        return ()

    async def findings(self, check: Check) -> Sequence[NodeVerdict]:
        """What is known to be wrong with the nodes before the first run, and prevents it."""
        del check
        return ()

    async def refresh(self) -> None:
        """Read again what may have changed, such as certificates. Raises ProbeError."""

    async def close(self) -> None:
        """The hub ends: let go of what runs, without ending it."""


def skipped(run: PlannedRun, reason: str) -> RunResult:
    """The result of a run that was not executed."""
    return RunResult(number=run.number, nodes=run.nodes, skipped=reason)
