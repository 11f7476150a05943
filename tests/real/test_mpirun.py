"""Open MPI and MPICH themselves, started by the product's launcher: they take every
argument, or the message says why not; and the stand-in of other tests refuses what Open MPI
refuses.

The tool and ssh are stand-ins. mpirun starts the ranks of its own node itself, and those of another
one by ssh.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevitals.checks.launchers.launcher import Launched
from nodevitals.checks.launchers.mpi import of_version
from nodevitals.checks.launchers.mpirun import MpirunLauncher, argv
from nodevitals.checks.model import TestRequest
from nodevitals.checks.requests.collective import Sweep, of_request, versions
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.probes.fabric.tools import nccl
from testbed import mpi, mpich, openmpi, programs
from testbed.ssh import Nodes

NODE, OTHER = "localhost", "gpu-2"
REQUEST = TestRequest(
    tool="nccl",
    operation="all_reduce",
    sizes="8B,64KiB,1MiB",
    device="mlx5_3",
    port=2,
    queue_pairs=8,
    gid_index=5,
    traffic_class=106,
    devices_per_node=2,
    environment={"NCCL_ALGO": "^Tree"},
    mca={"btl_tcp_if_include": "lo", "plm_rsh_num_concurrent": "3"},
)
VARIABLES = {
    "NCCL_DEBUG": "WARN",
    "NCCL_NET": "IB",
    "NCCL_IB_DISABLE": "0",
    "NCCL_IB_HCA": "=mlx5_3:2",
    "NCCL_IB_QPS_PER_CONNECTION": "8",
    "NCCL_IB_GID_INDEX": "5",
    "NCCL_IB_TC": "106",
    "NCCL_ALGO": "^Tree",
    "NCCL_SOCKET_IFNAME": "lo",
}
WANTED = replace(of_request(REQUEST, [NODE]), interface="lo")
RECORDING = '#!/bin/sh\nenv >"$0.$OMPI_COMM_WORLD_RANK"\nexec all_reduce_perf "$@"\n'


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes(tmp_path / "nodes")
    made.add(NODE)
    made.add(OTHER)
    own = openmpi.install(made.folder / "bin")
    programs.install(own, "mpi", ["all_reduce_perf"])
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where it has its sockets
    return made


def run(seconds: float = 167.774, user: str = "", **changed: object) -> Launched:
    return asyncio.run(MpirunLauncher(user).run(replace(WANTED, **changed), "run-1", seconds))


def test_collective_with_every_argument_runs(nodes: Nodes) -> None:
    """Two sweeps on two nodes, within the time that is left; each rank has all variables."""
    recording = nodes.folder / "bin/recording"
    recording.write_text(RECORDING)
    recording.chmod(0o755)
    found = run(user="kim", nodes=(NODE, OTHER), program=str(recording))
    assert found.reason is None, found.raw
    assert [report.rows[0].message_bytes for report in found.reports] == [8, 1 << 16, 1 << 20]
    assert found.versions.keys() == {"Open MPI", "nccl-tests", "nccl"}
    for rank in range(4):
        lines = Path(f"{recording}.{rank}").read_text().splitlines()
        assert {f"{name}={value}" for name, value in VARIABLES.items()} <= set(lines)


def test_refusal_of_mpirun_is_shown(nodes: Nodes) -> None:
    found = run(mca={"oob_tcp_if_include": "eth9"})
    assert found.reason == "harness"
    assert found.reports[0].message == (
        "no result in the output; it ends with: None of the TCP networks specified to be included "
        "for out-of-band communications could be found: Value given: eth9 Please revise the "
        "specification and try again."
    )


def test_words_of_the_tool_are_shown(nodes: Nodes) -> None:
    broken = nodes.folder / "bin/broken"
    broken.write_text("#!/bin/sh\necho all_reduce_perf: no such luck\nexit 3\n")
    broken.chmod(0o755)
    report = run(program=str(broken)).reports[0]
    assert report.reason == "harness"
    assert "all_reduce_perf: no such luck" in report.message


def test_run_ends_at_the_deadline(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_COLLECTIVE_SECONDS", "60")
    found = run(seconds=1.5)
    assert (found.reports[0].reason, found.reason) == ("timeout", "harness"), found


BASE = argv(WANTED, Sweep(8, 8, 1), 2.5)
TOOL = BASE.index("timeout")


@pytest.mark.parametrize(
    "words",
    [
        BASE,
        ["mpirun", "--timeout", "167.774", *BASE[1:]],
        ["mpirun", "-np", "x", *BASE[1:]],
        ["mpirun", "--tagoutput", *BASE[1:]],
        [*BASE[:TOOL], "--timeout"],
        [*BASE[:TOOL], "--mca", "pml"],
        BASE[:TOOL],
        [word.replace(":2", ":1") if word == f"{NODE}:2" else word for word in BASE],
        *([[word for word in BASE if "root" not in word]] if os.geteuid() == 0 else []),
    ],
)
def test_stand_in_answers_as_mpirun_does(nodes: Nodes, tmp_path: Path, words: list[str]) -> None:
    """It takes or refuses the same arguments, with the same message in the report."""
    fakes = programs.install(tmp_path / "fakes", "mpi", ["mpirun", "all_reduce_perf"])
    answers = [
        subprocess.run(
            [folder / words[0], *words[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for folder in (nodes.folder / "bin", fakes)
    ]
    real, fake = (nccl.parse(answer.stdout) for answer in answers)
    assert (fake.outcome, fake.reason) == (real.outcome, real.reason), answers
    assert fake.message == real.message
    assert (answers[0].returncode == 0) == (answers[1].returncode == 0) == (words == BASE)


HCCL = TestRequest(
    tool="hccl",
    operation="all_reduce",
    sizes="8KiB..64MiB x2",
    data_type="fp32",
    reduction="sum",
    devices_per_node=2,
    environment={"HCCL_ALGO": "level0:NA;level1:ring"},
)


@pytest.fixture
def mpich_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    made = Nodes(tmp_path / "nodes")
    made.add(NODE)
    made.add(OTHER)
    own = mpich.install(made.folder / "bin")
    programs.install(own, "mpi", ["all_reduce_perf", "all_reduce_test"])
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    return made


@pytest.mark.parametrize("user", ["", "kim"])
def test_mpich_runs_the_preset_of_hccl(mpich_nodes: Nodes, user: str) -> None:
    """On two nodes; each rank has the variable, also one with semicolons."""
    recording = mpich_nodes.folder / "bin/recording"
    recording.write_text(RECORDING.replace("OMPI_COMM_WORLD", "PMI").replace("_perf", "_test"))
    recording.chmod(0o755)
    wanted = replace(of_request(HCCL, [NODE, OTHER]), program=str(recording))
    found = asyncio.run(MpirunLauncher(user).run(wanted, "run-1", 60))
    assert found.reason is None, found.raw
    assert len(found.reports) == 14
    assert found.versions.keys() == {"MPICH"}
    for rank in range(4):
        lines = Path(f"{recording}.{rank}").read_text().splitlines()
        assert {"HCCL_ALGO=level0:NA;level1:ring", "PMI_SIZE=4"} <= set(lines)


def test_mpich_runs_nccl_tests(mpich_nodes: Nodes) -> None:
    test = TestRequest(tool="nccl", sizes="1MiB", devices_per_node=4, devices_per_process=2)
    found = asyncio.run(MpirunLauncher().run(of_request(test, [NODE]), "run-1", 60))
    assert found.reason is None, found.raw


def test_stand_in_has_the_version_of_mpich(mpich_nodes: Nodes) -> None:
    text = subprocess.run(
        [mpich_nodes.folder / "bin/mpirun", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert versions(text) == versions(mpi.MPICH)
    assert of_version(text) == of_version(mpi.MPICH) == "mpich"


def test_open_mpi_runs_the_preset_of_nccl(nodes: Nodes) -> None:
    """One process per node; the preset's interface is the site's, and this machine has another."""
    test = replace(PRESETS["nccl-all-reduce-roce"].test, sizes="32MiB..128MiB x2")
    wanted = of_request(test, [NODE, OTHER])
    wanted = replace(wanted, mca={**wanted.mca, "btl_tcp_if_include": "lo"})
    found = asyncio.run(MpirunLauncher().run(wanted, "run-1", 60))
    assert found.reason is None, found.raw
    assert len(found.reports) == 3


def test_stand_in_has_the_version_text_of_mpirun(nodes: Nodes) -> None:
    text = subprocess.run(
        [nodes.folder / "bin/mpirun", "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert versions(text).keys() == versions(mpi.OPEN_MPI).keys() == {"Open MPI"}
