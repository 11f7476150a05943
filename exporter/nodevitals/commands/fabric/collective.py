"""`nodevitals fabric collective`: nccl-tests or the HCCL test over some nodes.

Launched by whoever launches jobs there: mpirun over ssh, or a manifest for Volcano or the MPI
operator; never by a launcher of our own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
import yaml

from nodevitals.probes.fabric.report import Report, Row, failed
from nodevitals.probes.fabric.tools import PARSERS, hccl, nccl

Backend = Literal["nccl", "hccl"]
RESOURCES: dict[Backend, str] = {"nccl": "nvidia.com/gpu", "hccl": "huawei.com/Ascend910"}
# Beyond the launcher's own limit: it has to end its ranks first.
GRACE_SECONDS = 15.0
REAP_SECONDS = 5.0


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run: `devices_per_node` ranks on each node, one size of messages (bytes)."""

    backend: Backend
    operation: str
    nodes: tuple[str, ...]
    devices_per_node: int
    message_bytes: int = 1 << 30
    iterations: int = 20
    timeout_seconds: float = 300.0
    program: str = ""
    """Where the tool is on the nodes; '' for its name, on PATH."""
    hca: str = ""
    interface: str = ""
    gid_index: int | None = None
    """Where all nodes have the same; else NCCL chooses for itself."""

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return len(self.nodes) * self.devices_per_node


def tool_argv(wanted: Collective) -> list[str]:
    """Return a rank's command line."""
    if wanted.backend == "nccl":
        argv = nccl.argv(wanted.operation, wanted.message_bytes, wanted.iterations)
    else:
        devices = wanted.devices_per_node
        argv = hccl.argv(wanted.operation, wanted.message_bytes, wanted.iterations, devices)
    return [wanted.program or argv[0], *argv[1:]]


def environment(wanted: Collective) -> dict[str, str]:
    """What ranks are told of the network: which HCA carries data, which interface the rest."""
    found = {"NCCL_DEBUG": "WARN"} if wanted.backend == "nccl" else {}
    if wanted.hca and wanted.backend == "nccl":
        found["NCCL_IB_HCA"] = wanted.hca
    if wanted.gid_index is not None and wanted.backend == "nccl":
        found["NCCL_IB_GID_INDEX"] = str(wanted.gid_index)
    if wanted.interface:
        prefix = "NCCL" if wanted.backend == "nccl" else "HCCL"
        found[f"{prefix}_SOCKET_IFNAME"] = wanted.interface
    return found


def mpirun_argv(wanted: Collective) -> list[str]:
    """Return the launcher's command line: Open MPI for NCCL; MPICH, as the HCCL test has it."""
    hosts = ",".join(f"{node}:{wanted.devices_per_node}" for node in wanted.nodes)
    ranks = str(wanted.ranks)
    if wanted.backend == "hccl":
        pairs = [
            word for key, value in environment(wanted).items() for word in ("-genv", key, value)
        ]
        return ["mpirun", "-hosts", hosts, "-n", ranks, *pairs, *tool_argv(wanted)]
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    interface = wanted.interface
    where = ["--mca", "btl_tcp_if_include", interface] if interface else []
    told = [word for key, value in environment(wanted).items() for word in ("-x", f"{key}={value}")]
    return [
        *("mpirun", *root, "--host", hosts, "-np", ranks, "--bind-to", "none", "--tag-output"),
        *("--timeout", f"{wanted.timeout_seconds:g}"),
        *("--mca", "plm_rsh_args", "-o BatchMode=yes"),
        *where,
        *told,
        *tool_argv(wanted),
    ]


def run(wanted: Collective) -> Report:
    """Launch it and wait for its end; whatever happens, nothing of it is left here."""
    try:
        process = subprocess.Popen(
            mpirun_argv(wanted),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return failed("tool_missing", f"mpirun: {error.strerror}")
    try:
        output = process.communicate(timeout=wanted.timeout_seconds + GRACE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        return failed("timeout", f"no end within {wanted.timeout_seconds:g} s")
    finally:
        if process.returncode is None:
            _end(process)
    return judge(wanted, output.decode(errors="replace"), process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let mpirun end its ranks on the other nodes, then end what is left of it here. It is not
    reaped before: until then its group can be nobody else's.
    """
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    look = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, process.pid, look) is None and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=REAP_SECONDS)


def judge(wanted: Collective, text: str, status: int) -> Report:
    """One row with its bus bandwidth, or why there is none."""
    report = PARSERS[wanted.backend](text)
    if report.outcome != "ok":
        return report
    rows = [row for row in report.rows if _is_of(wanted, row)]
    if not rows:
        return failed("harness", "no row of the size that was asked for", report.rows)
    if status != 0:
        return failed("harness", f"the launcher ended with status {status}", rows)
    row = rows[0]
    if row.bus_bandwidth_bytes_per_second is None and row.bandwidth_bytes_per_second is not None:
        factor = nccl.bus_factor(wanted.operation, wanted.ranks)
        bus = row.bandwidth_bytes_per_second * factor
        row = msgspec.structs.replace(row, bus_bandwidth_bytes_per_second=bus)
    return Report(outcome="ok", rows=(msgspec.structs.replace(row, operation=wanted.operation),))


def _is_of(wanted: Collective, row: Row) -> bool:
    # Operations in which each rank has its part round the size down to a multiple of the ranks.
    return 0 <= wanted.message_bytes - row.message_bytes < 64 * wanted.ranks and not row.in_place


# Manifests.


def manifest(
    wanted: Collective, kind: Literal["volcano", "mpijob"], image: str, name: str, namespace: str
) -> str:
    """Return a Volcano Job or an MPIJob (kubeflow.org/v2beta1) as YAML."""
    document = _volcano(wanted, image) if kind == "volcano" else _mpijob(wanted, image)
    document["metadata"] = {"name": name, "namespace": namespace}
    order = ("apiVersion", "kind", "metadata", "spec")
    return yaml.safe_dump({key: document[key] for key in order}, sort_keys=False, width=100)


def _mpijob(wanted: Collective, image: str) -> dict[str, Any]:
    launcher = {"name": "launcher", "image": image, "command": _in_cluster(wanted, "")}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "spec": {
            "slotsPerWorker": wanted.devices_per_node,
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": 0,
                "activeDeadlineSeconds": int(wanted.timeout_seconds),
            },
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": {"spec": {"containers": [launcher]}}},
                "Worker": {
                    "replicas": len(wanted.nodes),
                    "template": {"spec": _worker(wanted, image, [])},
                },
            },
        },
    }


def _volcano(wanted: Collective, image: str) -> dict[str, Any]:
    # The plugin svc writes the workers' names into this file.
    hosts = f"--host $(sed 's/$/:{wanted.devices_per_node}/' /etc/volcano/worker.host | paste -sd,)"
    script = f"mkdir -p /run/sshd; /usr/sbin/sshd; {' '.join(_in_cluster(wanted, hosts))}"
    launcher = {"name": "launcher", "image": image, "command": ["sh", "-c", script]}
    serve = ["sh", "-c", "mkdir -p /run/sshd; exec /usr/sbin/sshd -D"]
    never = {"restartPolicy": "Never"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": len(wanted.nodes) + 1,
            "plugins": {"ssh": [], "svc": []},
            "maxRetry": 1,
            "tasks": [
                {
                    "name": "launcher",
                    "replicas": 1,
                    "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
                    "template": {"spec": {"containers": [launcher], **never}},
                },
                {
                    "name": "worker",
                    "replicas": len(wanted.nodes),
                    "template": {"spec": {**_worker(wanted, image, serve), **never}},
                },
            ],
        },
    }


def _in_cluster(wanted: Collective, hosts: str) -> list[str]:
    told = [word for key, value in environment(wanted).items() for word in ("-x", f"{key}={value}")]
    where = [hosts] if hosts else []
    ranks = ["-np", str(wanted.ranks)]
    return ["mpirun", "--allow-run-as-root", *where, *ranks, *told, *tool_argv(wanted)]


def _worker(wanted: Collective, image: str, command: Sequence[str]) -> Mapping[str, Any]:
    """One worker on each of the nodes, with all of its devices."""
    resource = {RESOURCES[wanted.backend]: wanted.devices_per_node}
    container: dict[str, Any] = {"name": "worker", "image": image}
    if command:
        container["command"] = list(command)
    container["resources"] = {"limits": resource}
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(wanted.nodes)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [named]}]}
    return {
        "containers": [container],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }
