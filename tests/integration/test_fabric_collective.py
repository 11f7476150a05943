"""`nodevitals fabric collective`: launched by mpirun, judged by its bus bandwidth, and ended."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from testbed import mpi, programs
from testbed.node import PYTHON, environment, wait_until
from testbed.servers import Pushgateway
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
        timeout=120,
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
    done = run(nodes, "--backend", backend, "--operation", operation, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["operation"] == operation
    assert row["bus_bandwidth_bytes_per_second"] == pytest.approx(ALGORITHM * factor, rel=1e-4)


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
    done = run(nodes, "--hca", "mlx5_0,mlx5_1", FAKE_COLLECTIVE_RECORD=str(record))
    assert done.returncode == 0, done.stdout
    environment = json.loads(record.read_text())
    assert environment["NCCL_IB_HCA"] == "mlx5_0,mlx5_1"
    assert environment.get("NCCL_IB_GID_INDEX") == index


def test_slow_collective_exits_with_1(nodes: Nodes) -> None:
    done = run(nodes, "--expected", "9000Gb/s")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["all_reduce", "16", str(SIZE), "805.31", "SLOW"]
    assert run(nodes, "--expected", "6000Gb/s").returncode == 0


def test_wrong_values_are_reported_as_corruption(nodes: Nodes) -> None:
    done = run(nodes, FAKE_COLLECTIVE_WRONG="3")
    assert done.returncode == 1
    assert done.stdout.startswith("all_reduce over 16 ranks: corruption: ")


def test_unreachable_node_is_reported(nodes: Nodes) -> None:
    done = run(nodes, names=[*NAMES, "127.0.0.9"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("127.0.0.9: ssh: ")


def test_hanging_collective_is_ended_with_all_its_ranks(nodes: Nodes) -> None:
    def left() -> list[psutil.Process]:
        return [one for one in psutil.process_iter() if _is_of(one, str(nodes.folder))]

    folder = str(nodes.folder)
    code = (
        "import asyncio; from nodevitals.checks import mpirun as m; m.GRACE_SECONDS = 0.5; "
        "from nodevitals.checks.collective import Collective; "
        f"wanted = Collective(backend='nccl', operation='all_reduce', nodes={tuple(NAMES)}); "
        "print(asyncio.run(m.MpirunLauncher().run(wanted, 'test', 2)).reports[0].reason)"
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
        lines = requests.get(f"{gateway.url}/metrics", timeout=5).text.splitlines()
        own = [line for line in lines if line.startswith("nodevitals_fabric_")]
        group = 'collective="nccl_all_reduce",instance="'
        assert all(group in line and 'job="nodevitals"' in line for line in own), own
        return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in own}

    with Pushgateway(tmp_path) as gateway:
        assert run(nodes, "--push", gateway.url).returncode == 0
        assert pushed() == {
            "nodevitals_fabric_bus_bandwidth_bytes_per_second": pytest.approx(805.31e9, 1e-4),
            "nodevitals_fabric_collective_success": 1,
        }
        assert run(nodes, "--push", gateway.url, FAKE_COLLECTIVE_WRONG="1").returncode == 1
        assert pushed() == {"nodevitals_fabric_collective_success": 0}
    done = run(nodes, "--push", gateway.url)
    assert done.returncode == 0  # the collective succeeded all the same
    assert done.stderr.startswith(f"--push: {gateway.url}: ")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """A server for the one call of Kubernetes' API, and a kubeconfig in tmp_path for it."""
    created: list[tuple[str, dict[str, Any]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = body["metadata"]["name"] in [one["metadata"]["name"] for _, one in created]
            if not known:
                created.append((self.path, body))
            answer = json.dumps(body).encode()
            self.send_response(409 if known else 201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    yield created
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("volcano", "/apis/batch.volcano.sh/v1alpha1/namespaces/checks/jobs"),
        ("mpijob", "/apis/kubeflow.org/v2beta1/namespaces/checks/mpijobs"),
    ],
)
def test_manifest_is_created(
    nodes: Nodes, tmp_path: Path, api: list[tuple[str, dict[str, Any]]], kind: str, path: str
) -> None:
    arguments = ("--render", kind, "--image", "tests:1", "--namespace", "checks", "--apply")
    kubeconfig = str(tmp_path / "kubeconfig")
    done = run(nodes, *arguments, KUBECONFIG=kubeconfig)
    assert done.returncode == 0, done.stderr
    assert api == [(path, yaml.safe_load(done.stdout))]
    again = run(nodes, *arguments, KUBECONFIG=kubeconfig)
    assert again.returncode == 2
    assert again.stderr == "--apply: checks/nodevitals-collective: 409 Conflict\n"
    unknown = run(nodes, *arguments, KUBECONFIG=str(tmp_path / "none"))
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("--apply: ")


def test_manifest_needs_an_image(nodes: Nodes) -> None:
    done = run(nodes, "--render", "volcano")
    assert done.returncode == 2
    assert "--image IMAGE" in done.stderr
