"""Manifests of collectives: valid, one worker per node, and with all that RDMA in a pod needs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from nodevitals.checks.launchers.job_script import Kind, script
from nodevitals.checks.launchers.manifests import JobOptions, document, manifest
from nodevitals.checks.model import TestRequest
from nodevitals.checks.requests.collective import Collective, of_request, sweeps
from testbed import mpi

NODES = ("gpu-1", "gpu-2", "gpu-3")
NAME = "nodevitals-run-1"
OPTIONS = JobOptions(
    image="registry.example.org/tests:1",
    namespace="checks",
    rdma_resource="rdma/hca",
    rdma_count=8,
    networks="rdma/rail-1,rdma/rail-2",
    host_network=True,
    shared_memory="32Gi",
    queue="checks",
)
REQUEST = TestRequest(sizes="8B..1GiB x2", queue_pairs=8, gid_index=3, traffic_class=106)
WANTED = of_request(REQUEST, NODES)
KINDS: tuple[Kind, ...] = ("volcano", "mpijob")


def templates(kind: Kind, options: JobOptions = OPTIONS, wanted: Collective = WANTED) -> Any:
    """The object, and the templates of the launcher and the worker."""
    made = document(wanted, kind, options, NAME, 300)
    if kind == "volcano":
        launcher, worker = made["spec"]["tasks"]
    else:
        launcher, worker = made["spec"]["mpiReplicaSpecs"].values()
    assert (launcher["replicas"], worker["replicas"]) == (1, 3)
    return made, launcher["template"], worker["template"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [OPTIONS, JobOptions(image="tests:1")])
def test_pods_are_valid(kind: Kind, options: JobOptions) -> None:
    for template in templates(kind, options)[1:]:
        metadata = {**template["metadata"], "name": "x"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        for version in ("1.27", "1.37"):
            kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("kind", KINDS)
def test_worker_has_what_rdma_needs(kind: Kind) -> None:
    made, _, worker = templates(kind)
    spec = worker["spec"]
    [container] = spec["containers"]
    limits = {"nvidia.com/gpu": 8, "rdma/hca": 8}
    assert container["resources"] == {"limits": limits, "requests": limits}
    assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert container["volumeMounts"] == [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    networks = worker["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
    assert networks == OPTIONS.networks
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "-p 22622" in container["command"][2]  # the node's own sshd has port 22
    assert spec["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] == 420
    assert made["metadata"]["namespace"] == "checks"


@pytest.mark.parametrize("kind", KINDS)
def test_each_node_runs_one_worker(kind: Kind) -> None:
    worker = templates(kind)[2]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = worker["spec"]["affinity"]
    [term] = affinity["nodeAffinity"][required]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == list(NODES)
    [same] = affinity["podAntiAffinity"][required]
    assert same["topologyKey"] == "kubernetes.io/hostname"
    assert same["labelSelector"]["matchLabels"].items() <= worker["metadata"]["labels"].items()


def test_job_ends_by_itself() -> None:
    spec = templates("mpijob")[0]["spec"]["runPolicy"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 420)
    assert spec["ttlSecondsAfterFinished"] > 0
    assert spec["schedulingPolicy"] == {"queue": "checks"}
    spec = templates("volcano")[0]["spec"]
    assert (spec["queue"], spec["minAvailable"], spec["maxRetry"]) == ("checks", 4, 1)
    assert spec["ttlSecondsAfterFinished"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_launcher_fails_rather_than_use_tcp(kind: Kind) -> None:
    plain = Collective(backend="nccl", operation="all_reduce", nodes=NODES)
    command = templates(kind, wanted=plain)[1]["spec"]["containers"][0]["command"][2]
    assert "-x NCCL_NET=IB -x NCCL_IB_DISABLE=0" in command
    command = templates(kind, JobOptions(image="x"), plain)[1]["spec"]["containers"][0]["command"]
    assert "NCCL_NET" not in command[2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tool", ["nccl", "hccl"])
def test_script_is_one_that_a_shell_reads(kind: Kind, tool: Any) -> None:
    text = script(of_request(TestRequest(tool=tool), NODES), kind, 300)
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def run_script(
    folder: Path, wanted: Collective, ssh: str = "exit 0", version: str = mpi.OPEN_MPI
) -> list[str]:
    """Run the launcher's script; the words of the last mpirun, or its output without one."""
    (folder / "version").write_text(version)
    asked = f'[ "$1" = --version ] && exec cat {folder}/version'
    for name, text in (("ssh", ssh), ("mpirun", f'{asked}\nprintf "%s\\n" "$@" >{folder}/words')):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    text = script(wanted, "volcano", 300).replace("/tmp/", f"{folder}/")
    text = text.replace("cat /etc/volcano/worker.host", "printf 'w-0\\nw-1\\n'")
    text = text.replace("sleep 2", "true")
    path = f"{folder}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    (folder / "output").write_text(done.stdout)
    if done.returncode:
        return [str(done.returncode), done.stdout]
    assert done.stdout.count("# nodevitals sweep ") == len(sweeps(wanted.sizes))
    return (folder / "words").read_text().splitlines()


def test_script_starts_the_ranks_of_all_workers(tmp_path: Path) -> None:
    words = run_script(tmp_path, WANTED)
    place = words.index("--host")
    assert words[place + 1] == "w-0:8,w-1:8"
    assert words[words.index("-np") + 1] == "24"
    assert "NCCL_IB_QPS_PER_CONNECTION=8" in words
    login = words[words.index("plm_rsh_args") + 1]
    assert login.endswith("-p 22622")
    tool = ["all_reduce_perf", "-b", "8", "-e", "1G", "-f", "2", "-g", "1"]
    assert words[-15:] == [*tool, "-n", "20", "-w", "5", "-c", "1"]


def test_script_of_hccl_writes_a_hostfile(tmp_path: Path) -> None:
    """Each line `node:ranks`, as the documentation of the HCCL test has it."""
    wanted = of_request(TestRequest(tool="hccl", queue_pairs=8), NODES)
    words = run_script(tmp_path, wanted, version=mpi.MPICH)
    assert words[:4] == ["-f", f"{tmp_path}/hostfile", "-n", "24"]
    assert (tmp_path / "hostfile").read_text() == "w-0:8\nw-1:8\n"
    assert words[4:7] == ["-genv", "HCCL_RDMA_QPS_PER_CONNECTION", "8"]
    own = (tmp_path / "ssh").read_text()  # what MPICH logs in with
    assert own.startswith("#!/bin/sh\nexec ssh -o BatchMode=yes")
    assert own.endswith('-p 22622 "$@"\n')


def test_script_prints_the_command_line_of_the_mpirun_in_the_image(tmp_path: Path) -> None:
    """Also a process with all devices of a node: it has one slot."""
    wanted = of_request(TestRequest(tool="nccl", devices_per_process=8), NODES)
    assert run_script(tmp_path, wanted)[2] == "w-0:1,w-1:1"
    assert (tmp_path / "hostfile").read_text() == "w-0:1\nw-1:1\n"
    line = next(line for line in (tmp_path / "output").read_text().splitlines() if "$ " in line)
    assert line.startswith("$ timeout --kill-after=15 301 mpirun --allow-run-as-root --host w-0:1")
    assert line.endswith("all_reduce_perf -b 1G -e 1G -g 8 -n 20 -w 5 -c 1")


def test_script_refuses_what_the_mpirun_in_the_image_does_not_have(tmp_path: Path) -> None:
    wanted = of_request(TestRequest(mca={"pml": "ob1"}), NODES)
    status, output = run_script(tmp_path, wanted, version=mpi.MPICH)
    assert status == "64"
    assert "mca: mpirun here is MPICH's, and these are Open MPI's: remove it" in output


def test_script_names_the_worker_that_it_cannot_log_in_to(tmp_path: Path) -> None:
    status, output = run_script(tmp_path, WANTED, "echo Connection refused >&2; exit 255")
    assert status == "75"
    assert output == "no ssh to worker w-0: Connection refused\n"


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_that_of_the_object_and_readable(kind: Kind) -> None:
    text = manifest(WANTED, kind, OPTIONS, NAME, 300)
    assert yaml.safe_load(text) == document(WANTED, kind, OPTIONS, NAME, 300)
    assert "&id" not in text
    lines = [line.strip() for line in text.splitlines()]
    assert lines[lines.index("- |") + 1] == "set -eu"
