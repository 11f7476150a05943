"""Collectives by mpirun: every argument of a sweep, what is named before, and that nothing of a run
lives on.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from nodevitals.checks.launchers import mpirun
from nodevitals.checks.launchers.launcher import Launched
from nodevitals.checks.launchers.mpirun import MpirunLauncher
from nodevitals.checks.model import CheckDetail, CheckRequest, Requester, Role, TestRequest
from nodevitals.checks.requests.collective import Collective, of_request
from nodevitals.probes.fabric.settings import StaticSource
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.launch.kind_runner import KindRunner
from nodevitals_hub.settings.hub import CollectivesSettings, HubSettings, NodesSettings
from nodevitals_hub.store.check_store import Store
from testbed import mpi, programs
from testbed.node import PYTHON, environment, wait_until
from testbed.ssh import Nodes

NAMES = ("127.0.0.2", "127.0.0.3")
NAME = "run-1"
WANTED = Collective(backend="nccl", operation="all_reduce", nodes=NAMES)
SWEEP = TestRequest(
    tool="nccl",
    operation="all_reduce",
    device="mlx5_3",
    port=2,
    sizes="8B..8KiB x2",
    iterations=40,
    queue_pairs=8,
    gid_index=5,
    traffic_class=106,
    devices_per_node=8,
    environment={"NCCL_ALGO": "Ring"},
    mca={"pml": "ob1"},
)
TOOL = ("-b", "8", "-e", "8K", "-f", "2", "-g", "1", "-n", "40", "-w", "5", "-c", "1")
EXPECTED: dict[str, object] = {
    "environment": {
        "NCCL_DEBUG": "WARN",
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=mlx5_3:2",
        "NCCL_IB_QPS_PER_CONNECTION": "8",
        "NCCL_IB_GID_INDEX": "5",
        "NCCL_IB_TC": "106",
        "NCCL_ALGO": "Ring",
    },
    "mca": {"pml": "ob1"},
    "tool": ["all_reduce_perf", *TOOL],
}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes(tmp_path / "nodes")
    for name in NAMES:
        made.add(name)
    programs.install(tmp_path / "nodes/bin", "mpi", mpi.PROGRAMS)
    monkeypatch.setenv("PATH", f"{made.folder / 'bin'}:{os.environ['PATH']}")
    return made


def run(wanted: Collective = WANTED, seconds: float = 60.0) -> Launched:
    return asyncio.run(MpirunLauncher().run(wanted, NAME, seconds))


def processes_of(nodes: Nodes) -> Iterator[psutil.Process]:
    """What runs with the folder of the nodes in its command line."""
    for process in psutil.process_iter():
        try:
            if any(str(nodes.folder) in word for word in process.cmdline()):
                yield process
        except psutil.Error:
            continue


def test_every_argument_of_a_sweep_reaches_the_tool(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight queue pairs, a given GID and traffic class; one report per size."""
    monkeypatch.setenv("FAKE_COLLECTIVE_EXPECT", json.dumps(EXPECTED))
    found = run(of_request(SWEEP, NAMES))
    assert found.reason is None, found
    sizes = [report.rows[0].message_bytes for report in found.reports]
    assert sizes == [8 << number for number in range(11)]
    assert found.versions == {"Open MPI": "4.1.4", "nccl-tests": "2.17.1", "nccl": "2.28.7"}


@pytest.mark.parametrize(
    "changed",
    [
        {"queue_pairs": 4},
        {"gid_index": None},
        {"traffic_class": 0},
        {"mca": {}},
        {"environment": {}},
        {"sizes": "8B..4KiB x2"},
        {"iterations": 20},
        {"port": 1},
    ],
)
def test_stand_in_refuses_another_argument(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    """It checks all of them, or the test above would show nothing."""
    monkeypatch.setenv("FAKE_COLLECTIVE_EXPECT", json.dumps(EXPECTED))
    values = {name: getattr(SWEEP, name) for name in SWEEP.__struct_fields__}
    found = run(of_request(TestRequest(**{**values, **changed}), NAMES))
    assert found.reason == "harness"
    assert "mpirun: expected" in found.reports[0].message


@pytest.mark.parametrize("mpi", ["mpich", "open_mpi"])
def test_hccl_is_started_by_the_mpirun_that_is_there(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, mpi: str
) -> None:
    tool = ["all_gather_test", "-p", "8", "-b", "4K", "-e", "16K", "-f", "2", "-d", "fp32"]
    expected = {
        "environment": {"HCCL_RDMA_QPS_PER_CONNECTION": "8", "HCCL_RDMA_TC": "132"},
        "mca": {},
        "tool": [*tool, "-n", "20", "-w", "5", "-c", "1"],
    }
    monkeypatch.setenv("FAKE_COLLECTIVE_MPI", mpi)
    monkeypatch.setenv("FAKE_COLLECTIVE_EXPECT", json.dumps(expected))
    request = TestRequest(
        tool="hccl",
        operation="all_gather",
        sizes="4KiB..16KiB x2",
        queue_pairs=8,
        traffic_class=132,
    )
    found = run(of_request(request, NAMES))
    assert found.reason is None, found
    assert len(found.reports) == 3
    assert ("MPICH" in found.versions) == (mpi == "mpich")


def test_nccl_is_started_by_mpich_as_well(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_COLLECTIVE_MPI", "mpich")
    found = run(of_request(TestRequest(tool="nccl", devices_per_process=4), NAMES))
    assert found.reason is None, found
    words = found.raw.splitlines()[0].split()
    assert words[:6] == ["$", "mpirun", "-hosts", "127.0.0.2:2,127.0.0.3:2", "-n", "4"]


def test_parameters_of_the_other_mpi_are_refused(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    semicolon = {"HCCL_ALGO": "level0:NA;level1:ring"}
    for kind, test, text in (
        ("mpich", TestRequest(mca={"pml": "ob1"}), "these are Open MPI's: remove it"),
        ("open_mpi", TestRequest(tool="hccl", environment=semicolon), "no value with a semicolon"),
    ):
        monkeypatch.setenv("FAKE_COLLECTIVE_MPI", kind)
        found = run(of_request(test, NAMES))
        assert found.reason == "harness"
        assert text in found.reports[0].message
    monkeypatch.setenv("FAKE_COLLECTIVE_MPI", "mpich")
    assert run(of_request(TestRequest(tool="hccl", environment=semicolon), NAMES)).reason is None


def test_sizes_are_reported_while_the_collective_runs(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_COLLECTIVE_PAUSE", "0.5")
    monkeypatch.setattr(mpirun, "PROGRESS_SECONDS", 0.05)
    seen: list[int] = []
    wanted = of_request(TestRequest(tool="nccl", sizes="1KiB,3KiB,6KiB,12KiB"), NAMES)
    found = asyncio.run(
        MpirunLauncher().run(wanted, NAME, 60, lambda reports: seen.append(len(reports)))
    )
    assert [report.outcome for report in found.reports] == ["ok"] * 4
    assert seen == sorted(seen)
    assert {2, 3} <= set(seen), "the rows of a sweep that has not ended, after those of the first"


def test_sizes_without_a_common_factor_take_several_runs(nodes: Nodes) -> None:
    request = TestRequest(tool="nccl", operation="all_reduce", sizes="1KiB,3KiB,4KiB,1MiB")
    found = run(of_request(request, NAMES))
    assert [report.outcome for report in found.reports] == ["ok"] * 4
    assert found.raw.count("# Using devices") == 2


def test_nodes_without_passwordless_ssh_are_named(nodes: Nodes) -> None:
    (nodes.folder / NAMES[1] / "denied").touch()
    found = run()
    assert found.reason == "harness"
    assert found.nodes == {NAMES[1]: f"root@{NAMES[1]}: Permission denied (publickey,password)."}
    assert found.reports[0].message.startswith("password-less ssh fails: 127.0.0.3: root@")


def test_nodes_without_the_tool_are_named(nodes: Nodes) -> None:
    (nodes.folder / "bin/all_reduce_perf").unlink()
    found = run()
    assert (found.reports[0].reason, found.reason) == ("tool_missing", "harness")
    assert found.nodes == dict.fromkeys(NAMES, "no all_reduce_perf on PATH")


def test_missing_mpirun_is_reported(nodes: Nodes) -> None:
    (nodes.folder / "bin/mpirun").unlink()
    found = run()
    assert (found.reports[0].reason, found.reason) == ("tool_missing", "harness")


@pytest.mark.parametrize(
    ("output", "status", "of_report", "reason"),
    [
        (b"gpu-a: Test NCCL failure common.cu:9 'unhandled system error / '\n", 3, "harness", ""),
        (b"x NCCL WARN NET/IB : Got completion with error 12, opcode\n", 3, "", "hardware"),
        (b"gpu-a: Test CUDA failure common.cu:1 'out of memory'\n", 2, "harness", "workload"),
        (bytes(range(256)) * 64, 0, "harness", "harness"),
        (b"", 0, "harness", "harness"),
    ],
)
def test_failure_of_the_tool_has_its_reason(
    nodes: Nodes,
    monkeypatch: pytest.MonkeyPatch,
    output: bytes,
    status: int,
    of_report: str,
    reason: str,
) -> None:
    file = nodes.folder / "output"
    file.write_bytes(output)
    monkeypatch.setenv("FAKE_COLLECTIVE_OUTPUT", str(file))
    monkeypatch.setenv("FAKE_COLLECTIVE_STATUS", str(status))
    found = run()
    assert found.reports[0].reason == (of_report or "unreachable")
    assert found.reason == (reason or "harness")


def test_flood_of_output_is_limited_and_its_results_are_read(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_COLLECTIVE_FLOOD", "40")
    found = run()
    assert found.reason is None, found.reports
    assert len(found.raw) < 2 << 20
    assert "bytes left out" in found.raw


def test_run_that_does_not_end_is_ended(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "GRACE_SECONDS", 0.5)
    monkeypatch.setenv("FAKE_COLLECTIVE_SECONDS", "60")
    found = run(seconds=2)
    assert (found.reports[0].reason, found.reason) == ("timeout", "harness")
    wait_until(lambda: not list(processes_of(nodes)), 20, "the end of all ranks")


def test_canceled_run_ends_everywhere(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpirun, "GRACE_SECONDS", 0.5)
    monkeypatch.setenv("FAKE_COLLECTIVE_SECONDS", "60")

    async def cancel() -> None:
        task = asyncio.ensure_future(MpirunLauncher().run(WANTED, NAME, 60))
        while not any("all_reduce_perf" in one.name() for one in processes_of(nodes)):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    wait_until(lambda: not list(processes_of(nodes)), 20, "the end of all ranks")


def test_hub_without_agents_refuses_nodes_in_use(nodes: Nodes, tmp_path: Path) -> None:
    """A node that ssh cannot log in to is no node in use: the run names it."""
    process = nodes.folder / NAMES[1] / "proc/4242"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("python3\n")
    (process / "fd/7").symlink_to("/dev/nvidia0")
    listed = NodesSettings(static=(StaticSource(targets=NAMES),))
    mpirun_settings = CollectivesSettings(launcher="mpirun")
    state = tmp_path / "hub"
    state.mkdir()
    settings = HubSettings(state_directory=str(state), nodes=listed, collectives=mpirun_settings)
    members = Members()
    members.read(listed)
    wanted = CheckRequest(
        kind="collective", nodes=NAMES, isolate=False, expected_bytes_per_second=1e9
    )

    async def main() -> tuple[str, list[CheckDetail]]:
        store = Store(str(state))
        coordinator = Coordinator(settings, store, members, KindRunner(settings, members))

        async def ended(request: CheckRequest, role: Role) -> CheckDetail:
            changes = coordinator.changes()
            check = await coordinator.submit(request, Requester(trigger="rest", role=role))
            async for change in changes:
                if change.id == check.id and change.ended is not None:
                    break
            return await coordinator.get(check.id)

        with pytest.raises(RefusedError) as refusal:
            await ended(wanted, "run")
        forced = await ended(replace(wanted, force=True), "act")
        (process / "comm").write_text("nv-hostengine\n")  # a monitoring program
        worker = shutil.copytree(process, process.parent / "4243", symlinks=True)
        (worker / "comm").write_text("nodevitals-nvid\n")  # the agent's own worker
        found = [forced, await ended(wanted, "run")]
        (nodes.folder / NAMES[0] / "denied").touch()
        found.append(await ended(wanted, "run"))
        await coordinator.stop()
        await store.close()
        return str(refusal.value), found

    refusal, [*well, denied] = asyncio.run(main())
    assert refusal == f"in use by jobs: {NAMES[1]}; leave them out, or force (role act)"
    for one in well:
        assert one.check.verdict is not None
        assert one.check.verdict.outcome == "ok", one.check.verdict
    assert denied.check.verdict is not None
    assert denied.check.verdict.outcome == "unknown"
    assert f"password-less ssh fails: {NAMES[0]}: " in denied.check.verdict.message


CODE = """
import asyncio
from nodevitals.checks.launchers import mpirun
from nodevitals.checks.requests.collective import Collective
wanted = Collective(backend="nccl", operation="all_reduce", nodes={nodes!r})
asyncio.run(mpirun.MpirunLauncher().run(wanted, "run-1", 300))
"""


@pytest.fixture
def killed(nodes: Nodes) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a collective, at the moment in which ranks run."""
    process = subprocess.Popen(
        [PYTHON, "-c", CODE.format(nodes=NAMES)],
        env=environment(PATH=os.environ["PATH"], FAKE_COLLECTIVE_SECONDS="300"),
    )
    try:
        wait_until(
            lambda: any("all_reduce_perf" in one.name() for one in processes_of(nodes)),
            60,
            "the ranks",
        )
        yield process
    finally:
        process.kill()
        process.wait()


def test_no_rank_lives_on_after_kill_9(nodes: Nodes, killed: subprocess.Popen[bytes]) -> None:
    """The kernel sends a signal to the process that watches over mpirun."""
    killed.send_signal(signal.SIGKILL)
    wait_until(lambda: not list(processes_of(nodes)), 40, "the end of all ranks")


def test_remove_ends_what_runs_under_the_name(
    nodes: Nodes, killed: subprocess.Popen[bytes]
) -> None:
    killed.send_signal(signal.SIGSTOP)  # it cannot end its child itself
    asyncio.run(MpirunLauncher().remove("run-2"))
    assert list(processes_of(nodes))
    asyncio.run(MpirunLauncher().remove("run-1"))
    wait_until(lambda: not list(processes_of(nodes)), 40, "the end of all ranks")
    asyncio.run(MpirunLauncher().remove("run-1"))


@pytest.mark.parametrize("name", ["", "../x", "A", "a b", "-a", "a" * 70])
def test_name_that_is_none_is_refused(nodes: Nodes, name: str) -> None:
    found = asyncio.run(MpirunLauncher().run(WANTED, name, 5))
    assert "is no name of a run" in found.reports[0].message
