"""Starts collectives as Volcano Jobs or MPIJobs, and reads the results from the launcher's log.

In: a Collective. Out: its reports. The job has the name of the run, and its state is requested
every POLL seconds (a watch may end without a notice). The job is deleted in any case; where this
process dies, the job's own time limit ends it, and `remove` deletes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Optional, TypeVar

from nodevitals.checks import CheckError
from nodevitals.checks.launchers import job_script, manifests
from nodevitals.checks.launchers.job_script import Kind
from nodevitals.checks.launchers.kubernetes_api import TRANSIENT, ApiFaultError, Jobs
from nodevitals.checks.launchers.launcher import (
    Launched,
    Progress,
    ignore,
    launched,
    refused,
    verify_name,
)
from nodevitals.checks.launchers.manifests import JobOptions
from nodevitals.checks.launchers.pod_state import Problem, State
from nodevitals.checks.launchers.pod_state import of as state_of
from nodevitals.checks.requests import collective
from nodevitals.checks.requests.collective import Collective
from nodevitals.probes.fabric.tools.report import Report, failed

POLL_SECONDS = 2.0
LOG_POLL_SECONDS = 10.0
"""Time between two readings of the log of a job that runs."""
PENDING_SECONDS = 120.0
"""Time that the pods may wait for their nodes, and then for their images."""
DELETE_SECONDS = 60.0
RETRIES = 5
KINDS: dict[Kind, tuple[str, str]] = {
    "volcano": ("batch.volcano.sh/v1alpha1", "Job"),
    "mpijob": ("kubeflow.org/v2beta1", "MPIJob"),
}
Value = TypeVar("Value")


class KubernetesLauncher:
    """Jobs of one kind in one namespace."""

    def __init__(self, kind: Kind, options: JobOptions) -> None:
        self._kind = kind
        self._options = options

    async def run(
        self, wanted: Collective, name: str, seconds: float, progress: Progress = ignore
    ) -> Launched:
        """As in Launcher."""
        try:
            verify_name(name)
            collective.verify(wanted)
            jobs = self._jobs()
        except CheckError as error:
            return refused("harness", str(error))
        try:
            return await self._run(jobs, wanted, name, seconds, progress)
        finally:
            await jobs.close()

    async def remove(self, name: str) -> None:
        """As in Launcher."""
        verify_name(name)
        jobs = self._jobs()
        try:
            await _gone(jobs, name)
        finally:
            await jobs.close()

    def _jobs(self) -> Jobs:
        return Jobs(*KINDS[self._kind], self._options.namespace)

    async def _run(
        self, jobs: Jobs, wanted: Collective, name: str, seconds: float, progress: Progress
    ) -> Launched:
        document = manifests.document(wanted, self._kind, self._options, name, seconds)
        try:
            await _gone(jobs, name)
            await _create(jobs, document, name)
        except CheckError as error:
            return refused("harness", str(error))
        except asyncio.CancelledError:  # the job may have been created
            await _shielded(_gone(jobs, name))
            raise
        try:
            result = await self._follow(jobs, wanted, name, seconds, progress)
        except CheckError as error:
            result = refused("harness", str(error))
        finally:
            trouble = await _shielded(_gone(jobs, name))
        if trouble:
            note = f"\n[the job is left to its time limit: {trouble}]\n"
            result = launched(
                result.reports, result.raw + note, result.versions, result.nodes, result.reason
            )
        return result

    async def _follow(
        self, jobs: Jobs, wanted: Collective, name: str, seconds: float, progress: Progress
    ) -> Launched:
        """Wait until the launcher's pod has ended, or until it cannot end any more."""
        clock = asyncio.get_running_loop().time
        pending = clock() + PENDING_SECONDS
        deadline: Optional[float] = None
        read_at = clock()
        while True:
            job = await _retried(lambda: jobs.get(name))
            if job is None:
                return refused("harness", f"job {name} was deleted while it ran")
            pods = await _retried(lambda: jobs.pods(manifests.RUN_LABEL, name))
            state = state_of(job, pods, len(wanted.nodes) + 1)
            if state.launcher_ended:
                return await self._ended(jobs, wanted, state)
            if state.problem is not None:
                return await self._problem(jobs, state, state.problem)
            if state.started and deadline is None:
                deadline = clock() + seconds + job_script.START_SECONDS
            if deadline is None and clock() >= pending:
                return await self._problem(jobs, state, state.waiting)
            if deadline is not None and clock() >= deadline:
                late = Problem("timeout", f"no end within {seconds:g} s")
                return await self._problem(jobs, state, late)
            if state.started and clock() >= read_at + LOG_POLL_SECONDS:
                read_at = clock()
                with suppress(ApiFaultError):
                    progress(finished(wanted, await jobs.log(state.launcher)))
            await asyncio.sleep(POLL_SECONDS)

    async def _ended(self, jobs: Jobs, wanted: Collective, state: State) -> Launched:
        log = await _retried(lambda: jobs.log(state.launcher))
        reports = judged(wanted, log, state.status)
        return launched(reports, log, collective.versions(log))

    async def _problem(self, jobs: Jobs, state: State, problem: Problem) -> Launched:
        log = ""
        if state.launcher:
            with suppress(ApiFaultError):
                log = await jobs.log(state.launcher)
        return refused(problem.reason, problem.message, problem.nodes, log)


def judged(wanted: Collective, log: str, status: int) -> list[Report]:
    """One report per size, from a launcher's log; only its last sweep can have failed."""
    parts = job_script.parts_of(log)
    if parts is None:
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "nothing")
        return [failed("harness", f"the launcher ended with status {status}: {last}")]
    reports: list[Report] = []
    for number, swept in enumerate(collective.sweeps(wanted.sizes)):
        text = parts[number] if number < len(parts) else ""
        own = status if number >= len(parts) - 1 else 0
        reports += collective.judge(wanted, collective.sizes_of(swept), text, own)
        if reports[-1].outcome != "ok":
            break
    return reports


def finished(wanted: Collective, log: str) -> list[Report]:
    """The reports of the sizes whose rows are in the log of a launcher that still runs."""
    parts = zip(collective.sweeps(wanted.sizes), job_script.parts_of(log) or [])
    return [
        report
        for swept, text in parts
        for report in collective.finished(wanted, collective.sizes_of(swept), text)
    ]


async def _create(jobs: Jobs, document: dict[str, Any], name: str) -> None:
    """Create the job. A request that failed may have created it all the same: no job had the name
    before, so one with this name is ours.
    """
    repeated = False
    for attempt in range(RETRIES):
        try:
            await jobs.create(document)
        except ApiFaultError as fault:
            if fault.code == 409 and repeated:
                return
            if fault.code == 409:
                await _gone(jobs, name)
            elif fault.code not in TRANSIENT or attempt == RETRIES - 1:
                raise
            else:
                repeated = True
                await asyncio.sleep(POLL_SECONDS)
        else:
            return
    raise CheckError(f"job {name} exists, and comes again after it is deleted")


async def _gone(jobs: Jobs, name: str) -> None:
    """Delete the job and wait until it and its pods are gone. Raises CheckError."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + DELETE_SECONDS
    while (job := await _retried(lambda: jobs.get(name))) is not None:
        if clock() >= deadline:
            raise CheckError(f"job {name} is not deleted after {DELETE_SECONDS:g} s: see its pods")
        if not (job.get("metadata") or {}).get("deletionTimestamp"):
            await _retried(lambda: jobs.delete(name))
        await asyncio.sleep(min(POLL_SECONDS, 0.5))


async def _retried(ask: Callable[[], Awaitable[Value]]) -> Value:
    """Repeat a request after a temporary fault."""
    for _ in range(RETRIES - 1):
        try:
            return await ask()
        except ApiFaultError as fault:
            if fault.code not in TRANSIENT:
                raise
        await asyncio.sleep(POLL_SECONDS)
    return await ask()


async def _shielded(work: Awaitable[None]) -> str:
    """Finish some work even if this task is canceled. Returns why it failed, or ''."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    error = task.exception()
    if error is not None and not isinstance(error, CheckError):
        raise error
    return str(error) if error else ""
