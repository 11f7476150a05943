"""Collectives as jobs of a cluster: their results, and one line for each way in which they fail."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks import CheckError
from nodevitals.checks.launchers import job_script, kubernetes_api, kubernetes_launcher
from nodevitals.checks.launchers.job_script import MARK, Kind
from nodevitals.checks.launchers.kubernetes_launcher import KubernetesLauncher
from nodevitals.checks.launchers.launcher import Launched
from nodevitals.checks.launchers.manifests import JobOptions
from nodevitals.checks.requests.collective import Collective
from nodevitals.probes.fabric.tools.report import Report
from testbed import mpi, tooloutput
from testbed.kubernetes_api import jobs
from testbed.kubernetes_api.jobs import VOLCANO, JobApi
from testbed.node import wait_until

WANTED = Collective(
    backend="nccl", operation="all_reduce", nodes=("gpu-0", "gpu-1"), sizes=(1 << 20, 1 << 21)
)
NAME = "nodevitals-20260101-000000-abc123-0"
OPTIONS = JobOptions(image="tests:1", namespace="tests", rdma_resource="rdma/hca")
FACTOR = 2 * 15 / 16


def log_of(sizes: tuple[int, ...] = WANTED.sizes, wrong: str = "0") -> bytes:
    rows = [tooloutput.nccl_row(size, 2500.0, FACTOR, wrong) for size in sizes]
    output = tooloutput.nccl("".join(rows), footer="0 OK" if wrong == "0" else "9 FAILED")
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in output.splitlines())
    return f"{mpi.OPEN_MPI}{MARK}0\n{tagged}".encode()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobApi]:
    monkeypatch.setattr(kubernetes_launcher, "POLL_SECONDS", 0.01)
    with JobApi(tmp_path) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig))
        made.log = log_of()
        yield made


def run(kind: Kind = "volcano", seconds: float = 60.0, wanted: Collective = WANTED) -> Launched:
    return asyncio.run(KubernetesLauncher(kind, OPTIONS).run(wanted, NAME, seconds))


@pytest.mark.parametrize("kind", ["volcano", "mpijob"])
def test_results_come_from_the_launchers_log_and_the_job_is_deleted(
    server: JobApi, kind: Kind
) -> None:
    found = run(kind)
    assert found.reason is None, found
    assert [report.rows[0].message_bytes for report in found.reports] == list(WANTED.sizes)
    bus = (1 << 21) / 2.5e-3 * FACTOR
    (row,) = found.reports[1].rows
    assert row.bus_bandwidth_bytes_per_second == pytest.approx(bus, rel=0.02)
    assert found.versions == {"Open MPI": "4.1.4", "nccl-tests": "2.17.1", "nccl": "2.28.7"}
    assert "# Using devices" in found.raw
    assert not server.jobs
    assert server.deleted == [NAME]


def test_sizes_are_reported_while_the_job_runs(
    server: JobApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the launcher's log, which has more each time; one that cannot be read is passed over."""
    monkeypatch.setattr(kubernetes_launcher, "LOG_POLL_SECONDS", 0.0)
    running = {"launcher": jobs.RUNNING, "worker": jobs.RUNNING}
    server.scenario = (*[running] * 4, {"launcher": jobs.SUCCEEDED, "worker": jobs.RUNNING})
    whole = log_of()
    server.log = b"no mark yet\n"
    seen: list[int] = []

    def progress(reports: Sequence[Report]) -> None:
        seen.append(len(reports))
        # Next time it ends within the row of the second size.
        server.log = whole[: whole.index(b" 2097152 ") + 20] if len(seen) == 1 else whole

    launcher = KubernetesLauncher("volcano", OPTIONS)
    found = asyncio.run(launcher.run(WANTED, NAME, 60, progress))
    assert found.reason is None, found
    assert seen[:3] == [0, 1, 2]


def test_job_of_an_earlier_process_is_removed_first(server: JobApi) -> None:
    run()
    server.linger = 3
    server.put(VOLCANO, server.created[0])
    assert run().reason is None
    assert server.deleted == [NAME, NAME, NAME]  # of the first run, the old one, the second run
    assert len(server.created) == 2
    assert not server.jobs


def test_remove_is_idempotent(server: JobApi) -> None:
    launcher = KubernetesLauncher("volcano", OPTIONS)
    asyncio.run(launcher.remove(NAME))
    assert not server.deleted
    run()
    server.linger = 2
    server.put(VOLCANO, server.created[0])
    asyncio.run(launcher.remove(NAME))
    asyncio.run(launcher.remove(NAME))
    assert not server.jobs


TAKEN = "0/9 nodes are available: 2 Insufficient nvidia.com/gpu, 7 node(s) didn't match."
SLOW_START = {"launcher": jobs.PENDING, "worker": jobs.PENDING}


@pytest.mark.parametrize(
    ("step", "job_status", "reason", "of_report", "text"),
    [
        (
            {"launcher": jobs.PENDING, "worker": jobs.unschedulable(TAKEN)},
            {"state": {"phase": "Pending"}},
            "workload",
            "peer_busy",
            "Insufficient nvidia.com/gpu",
        ),
        (
            {"worker": jobs.unschedulable("0/9 nodes are available: 9 had untolerated taint")},
            {"state": {"phase": "Pending"}},
            "harness",
            "harness",
            "untolerated taint",
        ),
        ({}, {"state": {"phase": "Pending"}}, "workload", "peer_busy", "0 of 3 pods"),
        ({}, {}, "harness", "harness", "is Volcano or the MPI operator installed?"),
        (SLOW_START, {"state": {"phase": "Pending"}}, "harness", "harness", "does not start"),
        (
            {
                "launcher": jobs.RUNNING,
                "worker": jobs.waiting("ImagePullBackOff", 'Back-off pulling "tests:1"'),
            },
            {"state": {"phase": "Running"}},
            "harness",
            "harness",
            "ImagePullBackOff",
        ),
        (
            {"launcher": jobs.RUNNING, "worker": jobs.ended(137)},
            {"state": {"phase": "Running"}},
            "harness",
            "harness",
            "worker",
        ),
        (
            {
                "launcher": jobs.PENDING,
                "worker": {
                    "phase": "Failed",
                    "reason": "UnexpectedAdmissionError",
                    "message": "Allocate failed due to requested number of devices unavailable",
                },
            },
            {"state": {"phase": "Running"}},
            "workload",
            "peer_busy",
            "devices unavailable",
        ),
        (
            {},
            {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
            "harness",
            "harness",
            "DeadlineExceeded",
        ),
        ({}, {"state": {"phase": "Aborted"}}, "harness", "harness", "Aborted"),
    ],
)
def test_job_that_does_not_run_has_a_reason(
    server: JobApi,
    monkeypatch: pytest.MonkeyPatch,
    step: dict[str, Any],
    job_status: dict[str, Any],
    reason: str,
    of_report: str,
    text: str,
) -> None:
    monkeypatch.setattr(kubernetes_launcher, "PENDING_SECONDS", 0.2)
    server.scenario, server.job_status = (step,), job_status
    found = run()
    assert (found.reason, found.reports[0].reason) == (reason, of_report), found
    assert text in found.reports[0].message
    assert "\n" not in found.reports[0].message
    assert not server.jobs


@pytest.mark.parametrize(
    ("log", "status", "of_report", "reason"),
    [
        (b"", 1, "harness", "harness"),
        (b"no ssh to worker gpu-1: Connection refused\n", 75, "harness", "harness"),
        (bytes(range(256)) * 40, 1, "harness", "harness"),
        (log_of(wrong="9"), 1, "corruption", "hardware"),
        (log_of(()), 0, "harness", "harness"),
        (log_of(), 3, "harness", "harness"),
        (
            f"{MARK}0\nsh: 1: all_reduce_perf: command not found\n".encode(),
            127,
            "tool_missing",
            "harness",
        ),
    ],
)
def test_bad_log_is_never_a_result(
    server: JobApi, log: bytes, status: int, of_report: str, reason: str
) -> None:
    last = jobs.SUCCEEDED if status == 0 else jobs.ended(status)
    server.scenario = ({"launcher": last, "worker": jobs.RUNNING},)
    server.log = log
    found = run()
    assert (found.reports[-1].reason, found.reason) == (of_report, reason), found
    assert not server.jobs


def test_stopped_sweep_keeps_the_sizes_before(server: JobApi) -> None:
    server.log = log_of((1 << 20,))
    server.scenario = ({"launcher": jobs.ended(124), "worker": jobs.RUNNING},)
    first, second = run().reports
    assert (first.outcome, second.outcome) == ("ok", "failed")


def test_log_of_100_megabytes_takes_little_memory(server: JobApi) -> None:
    """Also where it has no line ends: a limited part of its beginning and its end is kept."""
    server.log, server.log_times = b"x" * (1 << 20), 100
    tracemalloc.start()
    found = run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.reason == "harness"
    assert len(found.raw) < 2 << 20
    assert peak < 40 << 20


JOBS = VOLCANO.resource
EACH = (("create", JOBS), ("get", JOBS), ("list", "pods"), ("get", "pods/log"))


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        *((one, code) for one in EACH for code in (401, 403)),
        *((EACH[0], code) for code in (400, 422)),
    ],
)
def test_refused_request_is_reported_in_one_line(
    server: JobApi, request_: tuple[str, str], fault: int
) -> None:
    server.fail(fault, request_[0], resource=request_[1])
    found = run()
    assert found.reason == "harness"
    message = found.reports[0].message
    assert str(fault) in message
    assert "\n" not in message
    assert f" in {OPTIONS.namespace}" in message


def test_missing_kind_is_reported(server: JobApi) -> None:
    server.fail(404, "create", times=1)
    found = run()
    assert "jobs.batch.volcano.sh in tests: 404 not found" in found.reports[0].message


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        *((one, fault) for one in EACH for fault in (503, "cut")),
        *((EACH[0], 429), (EACH[2], "garbage"), (EACH[0], "garbage")),
    ],
)
def test_fault_that_passes_is_survived(
    server: JobApi, request_: tuple[str, str], fault: int | str
) -> None:
    server.fail(fault, request_[0], resource=request_[1], times=2)
    found = run()
    assert found.reason is None, found
    assert not server.jobs


def test_hanging_server_is_given_up(server: JobApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "REQUEST_SECONDS", 0.3)
    server.fail("hang", "list")
    found = run()
    assert "no answer" in found.reports[0].message
    assert not server.jobs


def test_job_that_was_stored_without_an_answer_is_adopted(server: JobApi) -> None:
    server.fail("after 504", "create", times=1)
    found = run()
    assert found.reason is None, found
    assert len(server.created) == 1


def test_job_that_another_client_deletes_is_reported(server: JobApi) -> None:
    async def lose() -> Launched:
        task = asyncio.ensure_future(KubernetesLauncher("volcano", OPTIONS).run(WANTED, NAME, 60))
        while not server.jobs:
            await asyncio.sleep(0.01)
        server.clear()
        return await task

    server.scenario = (SLOW_START,)
    found = asyncio.run(lose())
    assert "was deleted while it ran" in found.reports[0].message


def test_deletion_that_fails_keeps_the_result(server: JobApi) -> None:
    server.fail(403, "delete", times=1)
    found = run()
    assert found.reason is None
    assert "left to its time limit" in found.raw
    assert "403" in found.raw
    with pytest.raises(CheckError, match="403"):
        server.fail(403, "delete", times=1)
        asyncio.run(KubernetesLauncher("volcano", OPTIONS).remove(NAME))


def test_canceled_run_deletes_the_job(server: JobApi) -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(KubernetesLauncher("volcano", OPTIONS).run(WANTED, NAME, 60))
        while not server.jobs:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    server.scenario = (SLOW_START,)
    asyncio.run(cancel())
    wait_until(lambda: not server.jobs, 20, "the deletion of the job")


def test_run_that_does_not_end_is_ended(server: JobApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_script, "START_SECONDS", 1)
    server.scenario = ({"launcher": jobs.RUNNING, "worker": jobs.RUNNING},)
    found = run(seconds=0.5)
    assert (found.reports[0].reason, found.reason) == ("timeout", "harness")
    assert not server.jobs


def test_name_that_is_none_is_refused(server: JobApi) -> None:
    found = asyncio.run(KubernetesLauncher("volcano", OPTIONS).run(WANTED, "../x", 5))
    assert "is no name of a run" in found.reports[0].message
    assert not server.requests
