"""`nodevitals fabric collective`: launched by mpirun, judged by its bus bandwidth, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from testbed import mpi
from testbed.node import environment, wait_until
from testbed.ssh import Nodes

NAMES = ["127.0.0.2", "127.0.0.3"]
SIZE = 1 << 30
ALGORITHM = SIZE / (mpi.MICROSECONDS / 1e6)
RANKS = 16


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path / "nodes")
    for name in NAMES:
        made.add(name)
    mpi.install(tmp_path / "nodes/bin")
    return made


def run(
    nodes: Nodes, *arguments: str, names: list[str] = NAMES, **more: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodevitals", "fabric", "collective"]
    path = f"{nodes.folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [*command, "--nodes", ",".join(names), *arguments],
        env=environment(PATH=path, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("backend", "operation", "factor"),
    [
        ("nccl", "all_reduce", 2 * 15 / 16),
        ("nccl", "alltoall", 15 / 16),
        ("hccl", "all_reduce", 2 * 15 / 16),  # which says no bus bandwidth itself
    ],
)
def test_bus_bandwidth(nodes: Nodes, backend: str, operation: str, factor: float) -> None:
    done = run(nodes, "--backend", backend, "--operation", operation, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["operation"] == operation
    assert row["bus_bandwidth_bytes_per_second"] == pytest.approx(ALGORITHM * factor, rel=1e-4)


def test_slow_is_exit_1(nodes: Nodes) -> None:
    done = run(nodes, "--expected", "9000Gb/s")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["all_reduce", "16", str(SIZE), "805.31", "SLOW"]
    assert run(nodes, "--expected", "6000Gb/s").returncode == 0


def test_wrong_values_are_corruption(nodes: Nodes) -> None:
    done = run(nodes, FAKE_COLLECTIVE_WRONG="3")
    assert done.returncode == 1
    assert done.stdout.startswith("all_reduce over 16 ranks: corruption: ")


def test_a_node_that_ssh_does_not_reach_is_named(nodes: Nodes) -> None:
    done = run(nodes, names=[*NAMES, "127.0.0.9"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("127.0.0.9: ssh: ")


def test_one_that_hangs_is_ended_with_all_it_started(nodes: Nodes) -> None:
    def left() -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if _is_of(one, str(nodes.folder))]

    folder = str(nodes.folder)
    code = (
        "from nodevitals.fabric import collective as c; c.GRACE_SECONDS = 0.5; "
        "print(c.run(c.Collective(backend='nccl', operation='all_reduce', nodes=('a', 'b'), "
        "devices_per_node=8, timeout_seconds=1)).reason)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(PATH=f"{folder}/bin:{os.environ['PATH']}", FAKE_COLLECTIVE_SECONDS="60"),
        capture_output=True,
        text=True,
        timeout=60,
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
def test_manifests(nodes: Nodes, kind: str) -> None:
    """All devices of just these nodes, one size, the environment of the command line."""
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


def test_a_manifest_needs_an_image(nodes: Nodes) -> None:
    done = run(nodes, "--render", "volcano")
    assert done.returncode == 1
    assert "--image IMAGE" in done.stderr
