"""`nodevitals fabric collective`: launched by mpirun, judged by its bus bandwidth, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from nodevitals.checks.ssh import remote
from testbed import mpi, programs
from testbed.kubernetes_api.jobs import JobApi
from testbed.node import PYTHON, environment, wait_until
from testbed.servers import Pushgateway
from testbed.ssh import Nodes

NAMES = ["127.0.0.2", "127.0.0.3"]
SIZE = 1 << 30
ALGORITHM = SIZE / (mpi.MICROSECONDS / 1e6)
RANKS = 16
EXPECTED = ("--expected", "1Gb/s")


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path / "nodes")
    for name in NAMES:
        made.add(name)
    programs.install(tmp_path / "nodes/bin", "mpi", mpi.PROGRAMS)
    return made


def run(
    nodes: Nodes, *arguments: str, names: list[str] = NAMES, **more: str
) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-m", "nodevitals", "fabric", "collective"]
    path = f"{nodes.folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [*command, "--nodes", ",".join(names), *arguments],
        env=environment(PATH=path, **more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("backend", "operation", "factor"),
    [
        ("nccl", "all_reduce", 2 * 15 / 16),
        ("nccl", "alltoall", 15 / 16),
        ("hccl", "all_reduce", 2 * 15 / 16),  # without a bus bandwidth of its own
    ],
)
def test_bus_bandwidth_is_reported(
    nodes: Nodes, backend: str, operation: str, factor: float
) -> None:
    options = ("--backend", backend, "--operation", operation, "--json", *EXPECTED)
    done = run(nodes, *options)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    (row,), [command] = printed["rows"], printed["commands"]
    assert command.split()[0] == "mpirun"
    assert f" {operation}_" in command
    assert row["operation"] == operation
    assert row["bus_bandwidth_bytes_per_second"] == pytest.approx(ALGORITHM * factor, rel=1e-4)


def test_single_machine_and_all_parameters(nodes: Nodes) -> None:
    """One node with four cards, in two processes."""
    expected = {
        "environment": {"NCCL_DEBUG": "WARN"},
        "mca": {},
        "tool": [
            *("reduce_perf", "-b", "1M", "-e", "4M", "-f", "2", "-g", "2", "-d", "bfloat16"),
            *("-o", "avg", "-n", "50", "-w", "7", "-c", "1"),
        ],
    }
    done = run(
        nodes,
        *("--operation", "reduce", "--devices-per-node", "4", "--devices-per-process", "2"),
        *("--data-type", "bfloat16", "--reduction", "avg", "--iterations", "50"),
        *("--warm-up-iterations", "7", "--sizes", "1MiB..4MiB x2", *EXPECTED),
        names=NAMES[:1],
        FAKE_COLLECTIVE_EXPECT=json.dumps(expected),
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:4]] == [
        ["reduce", "4", str(size << 20)] for size in (1, 2, 4)
    ]


def test_preset_by_hand(nodes: Nodes) -> None:
    """Fields that are given override it; a parameter of MPICH's mpirun is not Open MPI's."""
    tool = ["all_reduce_test", "-p", "8", "-b", "8K", "-e", "64M", "-f", "2", "-d", "fp32"]
    expected = {
        "environment": {},
        "mca": {},
        "tool": [*tool, *["-o", "sum", "-n", "9", "-w", "5", "-c", "1"]],
    }
    options = ("--preset", "hccl-all-reduce-sweep", "--iterations", "9", "--expected", "1Gb/s")
    record = json.dumps(expected)
    done = run(nodes, *options, FAKE_COLLECTIVE_MPI="mpich", FAKE_COLLECTIVE_EXPECT=record)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == 15
    done = run(nodes, "--preset", "nccl-all-reduce-roce", FAKE_COLLECTIVE_MPI="mpich")
    assert done.returncode == 2
    assert "these are Open MPI's: remove it" in done.stdout
    done = run(nodes, "--preset", "links")
    assert (done.returncode, done.stderr[:27]) == (2, "--preset: no 'links': choos")


@pytest.mark.parametrize(("indexes", "index"), [((5, 5), "5"), ((5, 3), None)])
def test_gid_index_is_set_where_all_nodes_have_the_same(
    nodes: Nodes, indexes: tuple[int, int], index: str | None
) -> None:
    for name, own in zip(NAMES, indexes, strict=True):
        port = nodes.folder / name / "sys/class/infiniband/mlx5_0/ports/1"
        for part in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / part).mkdir(parents=True)
        (port / f"gids/{own}").write_text("0000:0000:0000:0000:0000:ffff:c000:0207\n")
        (port / f"gid_attrs/types/{own}").write_text("RoCE v2\n")
        (port / f"gid_attrs/ndevs/{own}").write_text("eth0\n")
    record = nodes.folder / "record"
    options = ("--hca", "mlx5_0,mlx5_1", *EXPECTED)
    done = run(nodes, *options, FAKE_COLLECTIVE_RECORD=str(record))
    assert done.returncode == 0, done.stdout
    environment = json.loads(record.read_text())
    assert environment["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert environment.get("NCCL_IB_GID_INDEX") == index


def test_slow_collective_exits_with_1(nodes: Nodes) -> None:
    done = run(nodes, "--expected", "9000Gb/s")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["all_reduce", "16", str(SIZE), "805.31", "SLOW"]
    assert run(nodes, "--expected", "6000Gb/s").returncode == 0


def test_a_collective_without_an_expected_rate_is_unknown(nodes: Nodes) -> None:
    done = run(nodes)
    assert done.returncode == 2, done.stdout
    assert done.stdout.splitlines()[1].split()[-1] == "unknown"
    assert done.stdout.splitlines()[2] == (
        "unknown: the collective reached 805 GB/s on its bus; no reference: give --expected"
        " (expected_bytes_per_second)"
    )
    done = run(nodes, "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]["outcome"]) == (2, "unknown")


def test_wrong_values_are_reported_as_corruption(nodes: Nodes) -> None:
    done = run(nodes, FAKE_COLLECTIVE_WRONG="3")
    assert done.returncode == 1
    assert done.stdout.startswith("all_reduce over 16 ranks: corruption: ")


def test_a_test_that_cannot_run_exits_with_2(nodes: Nodes) -> None:
    done = run(nodes, FAKE_COLLECTIVE_OUTPUT="/dev/null", FAKE_COLLECTIVE_STATUS="1")
    assert done.returncode == 2, done.stdout
    assert done.stdout.startswith("all_reduce over 16 ranks: harness: ")


def test_unreachable_node_is_reported(nodes: Nodes) -> None:
    done = run(nodes, names=[*NAMES, "127.0.0.9"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("127.0.0.9: ssh: ")


def test_hanging_collective_is_ended_with_all_its_ranks(nodes: Nodes) -> None:
    def left() -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if _is_of(one, str(nodes.folder))]

    folder = str(nodes.folder)
    code = (
        "import asyncio; from nodevitals.checks.launchers import mpirun; "
        "mpirun.GRACE_SECONDS = 0.5; "
        "from nodevitals.checks.requests.collective import Collective; "
        f"wanted = Collective(backend='nccl', operation='all_reduce', nodes={tuple(NAMES)}); "
        "print(asyncio.run(mpirun.MpirunLauncher().run(wanted, 'test', 2)).reports[0].reason)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PATH=f"{folder}/bin:{os.environ['PATH']}", FAKE_COLLECTIVE_SECONDS="60"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == "timeout\n", done.stderr
    wait_until(lambda: not left(), 10, "the end of all ranks")


def _is_of(process: psutil.Process, folder: str) -> bool:
    try:
        return any(folder in word for word in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.parametrize("kind", ["volcano", "mpijob"])
def test_manifest_has_nodes_devices_and_environment(nodes: Nodes, kind: str) -> None:
    """All devices of these nodes, one size, and the environment of the command line."""
    arguments = ("--render", kind, "--image", "tests:1", "--hca", "mlx5_0", "--interface", "eth0")
    done = run(nodes, *arguments)
    assert done.returncode == 0, done.stderr
    document = yaml.safe_load(done.stdout)
    text = json.dumps(document)
    assert "all_reduce_perf" in text
    for word in ("NCCL_IB_HCA=mlx5_0", "NCCL_SOCKET_IFNAME=eth0", "-np", *NAMES, "tests:1"):
        assert word in text
    spec = document["spec"]
    if kind == "mpijob":
        worker = spec["mpiReplicaSpecs"]["Worker"]
        assert (worker["replicas"], spec["slotsPerWorker"]) == (2, 8)
        pod = worker["template"]["spec"]
    else:
        assert (spec["minAvailable"], spec["tasks"][1]["replicas"]) == (3, 2)
        pod = spec["tasks"][1]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}


def test_result_is_pushed(nodes: Nodes, tmp_path: Path) -> None:
    """To a real Pushgateway, which checks it; a later failure removes the bandwidth."""

    def pushed() -> dict[str, float]:
        lines = requests.get(f"{gateway.url}/metrics", timeout=60).text.splitlines()
        own = [line for line in lines if line.startswith("nodevitals_fabric_")]
        group = 'collective="nccl_all_reduce",instance="'
        assert all(group in line and 'job="nodevitals"' in line for line in own), own
        return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in own}

    with Pushgateway(tmp_path) as gateway:
        assert run(nodes, "--push", gateway.url, *EXPECTED).returncode == 0
        assert pushed() == {
            "nodevitals_fabric_bus_bandwidth_bytes_per_second": pytest.approx(805.31e9, 1e-4),
            "nodevitals_fabric_collective_success": 1,
        }
        assert run(nodes, "--push", gateway.url, FAKE_COLLECTIVE_WRONG="1").returncode == 1
        assert pushed() == {"nodevitals_fabric_collective_success": 0}
    done = run(nodes, "--push", gateway.url, *EXPECTED)
    assert done.returncode == 0  # the collective succeeded all the same
    assert done.stderr.startswith(f"--push: {gateway.url}: ")


def test_manifest_needs_an_image(nodes: Nodes) -> None:
    done = run(nodes, "--render", "volcano")
    assert done.returncode == 2
    assert "--image IMAGE" in done.stderr


def test_sweep_prints_a_row_per_size(nodes: Nodes) -> None:
    sizes = ("--sizes", "64KiB..256KiB x2", "--env", "NCCL_ALGO=Ring", "--mca", "pml=ob1")
    record = nodes.folder / "record"
    options = (*sizes, "--queue-pairs", "8", *EXPECTED)
    done = run(nodes, *options, FAKE_COLLECTIVE_RECORD=str(record))
    assert done.returncode == 0, done.stderr
    rows = [line.split()[2] for line in done.stdout.splitlines()[1:]]
    assert rows == ["65536", "131072", "262144"]
    environment = json.loads(record.read_text())
    assert environment["NCCL_IB_QPS_PER_CONNECTION"] == "8"
    assert environment["NCCL_ALGO"] == "Ring"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--env", "LD_PRELOAD=/x.so"),
        ("--mca", "plm_rsh_agent=sh"),
        ("--sizes", "8..4 x2"),
        ("--hca", "mlx5_0;id"),
        ("--program", "$(id)"),
        ("--backend", "hccl", "--operation", "sendrecv"),
        ("--data-type", "fp32"),
        ("--operation", "alltoall", "--reduction", "sum"),
        ("--devices-per-process", "3"),
    ],
)
def test_what_must_not_reach_mpirun_is_refused(nodes: Nodes, arguments: tuple[str, ...]) -> None:
    done = run(nodes, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize(
    ("kind", "created", "plural"),
    [
        ("volcano", "Job", "jobs.batch.volcano.sh"),
        ("mpijob", "MPIJob", "mpijobs.kubeflow.org"),
    ],
)
def test_apply_creates_the_job(
    nodes: Nodes, tmp_path: Path, kind: str, created: str, plural: str
) -> None:
    arguments = ("--render", kind, "--image", "tests:1", "--namespace", "tests", "--apply")
    with JobApi(tmp_path) as server:
        more: dict[str, Any] = {"KUBECONFIG": str(server.kubeconfig)}
        done = run(nodes, *arguments, "--rdma-resource", "rdma/hca", **more)
        assert done.returncode == 0, done.stderr
        assert done.stderr == f"{created} tests/nodevitals-collective created\n"
        assert server.created[0] == yaml.safe_load(done.stdout)
        again = run(nodes, *arguments, **more)
        assert again.returncode == 2
        assert again.stderr.startswith(f"--apply: create {plural} in tests: 409 exists already: ")
        assert len(again.stderr.splitlines()) == 1
    unknown = run(nodes, *arguments, KUBECONFIG=str(tmp_path / "none"))
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("--apply: kubeconfig: ")
    assert len(unknown.stderr.splitlines()) == 1, unknown.stderr


def test_output_of_ssh_is_limited(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose login prints without an end does not fill the memory here."""
    monkeypatch.setenv("PATH", f"{nodes.folder / 'bin'}:{os.environ['PATH']}")
    done = remote.run(NAMES[0], ["sh", "-c", "yes"], 5)
    assert done.status != 0
    assert len(done.text) <= 1 << 20
