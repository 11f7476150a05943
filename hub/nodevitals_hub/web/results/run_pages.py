"""The pages of a check's tests: a list of all, and each with its command lines and raw output.

In: requests that passed the gate. Out: HTML, and the raw output as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from nodevitals.checks.model import CheckDetail, RunResult
from nodevitals.checks.verdicts import figures
from nodevitals.errors import Wording
from nodevitals.probes.fabric.tools.report import LATENCY
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web.errors import AnyRequest, page
from nodevitals_hub.web.results.runs import lines_of, parts_of, run_row, text_of

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PAGE_RUNS = 100


def _listed(detail: CheckDetail, node: str) -> list[RunResult]:
    runs = figures.in_order(detail.results)
    return [run for run in runs if node in run.nodes] if node else runs


def _run_of(detail: CheckDetail, number: int) -> RunResult:
    for run in figures.in_order(detail.results):
        if run.number == number:
            return run
    text = Wording("{name} has no result of test {number}", name=detail.check.id, number=number)
    raise RefusedError("not_found", text)


def _neighbours(runs: Sequence[RunResult], run: RunResult) -> tuple[int | None, int | None]:
    """The numbers of the tests before and after one."""
    numbers = [one.number for one in runs]
    place = numbers.index(run.number)
    before = numbers[place - 1] if place else None
    return before, numbers[place + 1] if place + 1 < len(numbers) else None


def handlers(hub: Hub) -> list[Any]:
    """The handlers of Litestar."""

    @get("/checks/{identity:str}/runs", include_in_schema=False)
    async def show_runs(
        identity: FromPath[str],
        request: AnyRequest,
        node: FromQuery[str] = "",
        start: Annotated[int, QueryParameter(ge=0, le=10_000_000)] = 0,
    ) -> Response[str]:
        """The tests of a check in the order of its plan."""
        detail = await hub.checks.get(identity)
        runs = await asyncio.to_thread(_listed, detail, node)
        return page(
            request,
            "runs.html",
            check=detail.check,
            runs=[run_row(run, detail) for run in runs[start : start + PAGE_RUNS]],
            all_runs=len(runs),
            node=node,
            start=start,
            page_runs=PAGE_RUNS,
            cluster=hub.settings.cluster,
        )

    @get("/checks/{identity:str}/runs/{number:int}", include_in_schema=False)
    async def show_run(
        identity: FromPath[str], number: FromPath[int], request: AnyRequest
    ) -> Response[str]:
        """One test: its results, its command lines, its raw output."""
        detail = await hub.checks.get(identity)
        run = _run_of(detail, number)
        before, after = _neighbours(figures.in_order(detail.results), run)
        return page(
            request,
            "run.html",
            check=detail.check,
            run=run,
            row=run_row(run, detail),
            lines=list(lines_of(run, detail.check.request)),
            latencies=LATENCY,
            parts=parts_of(run),
            before=before,
            after=after,
            cluster=hub.settings.cluster,
        )

    @get("/checks/{identity:str}/runs/{number:int}/output.txt", include_in_schema=False)
    async def download(identity: FromPath[str], number: FromPath[int]) -> Response[str]:
        """The command lines and the raw output of one test."""
        detail = await hub.checks.get(identity)
        run = _run_of(detail, number)
        name = f'attachment; filename="{detail.check.id}-{number}.txt"'
        headers = {"content-disposition": name}
        return Response(text_of(run), media_type="text/plain", headers=headers)

    return [show_runs, show_run, download]
