"""The interface of runners, which execute the runs of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckRequest,
    NodeVerdict,
    RunResult,
    TestRequest,
)
from nodevitals_hub.checks.peer_sights import Sights
from nodevitals_hub.store.check_store import Issued


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a check's plan: a pair (source, target), a collective's nodes, or one node."""

    number: int
    nodes: tuple[str, ...]
    test: TestRequest | None = None
    """The test, where it differs from the request's test."""
    series: tuple[str, ...] = ()
    """Of a repetition, the names of the series that it tests; none for all."""


class Runner:
    """Executes runs, and refuses checks that cannot be run."""

    async def run(self, check: Check, run: PlannedRun, issued: Issued, again: bool) -> RunResult:
        """Execute a run. `issued` was stored before: its name is unique. After a restart the hub
        passes the same run with the same name and time (`again`); it must not be executed a second
        time. A run that cannot be executed returns `skipped` or failed reports; nothing is raised.
        Cancellation ends the run on all nodes, in bounded time.
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

    async def devices(self, request: CheckRequest) -> Sequence[Mapping[str, bool]]:
        """The devices of each node that its test may use, and whether each is up, as far as they
        are known.
        """
        del request
        return ()

    async def sights(self, nodes: Sequence[str]) -> Sights:
        """What these nodes report about their peers; without those that do not answer."""
        del nodes
        return {}

    async def findings(self, check: Check) -> Sequence[NodeVerdict]:
        """Faults of the nodes that are known before the first run, and prevent it."""
        del check
        return ()

    async def bus(self, check: Check) -> BusExpectation | None:
        """The bus bandwidth that a collective should reach; None where that is unknown."""
        del check
        return None

    def partial(self, identity: str) -> tuple[RunResult, ...]:
        """Results so far of the runs that are not done; none where the runner cannot tell."""
        del identity
        return ()

    async def refresh(self) -> None:
        """Read files again that may have changed, such as certificates. Raises ProbeError."""

    async def close(self) -> None:
        """Stop with the hub, without ending the runs."""


def skipped(run: PlannedRun, reason: str) -> RunResult:
    """The result of a run that was not executed."""
    return RunResult(number=run.number, nodes=run.nodes, skipped=reason)
