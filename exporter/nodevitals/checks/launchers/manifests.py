"""Manifests of collectives for Kubernetes: a Volcano Job, or an MPIJob of the MPI operator.

In: a Collective, and the cluster's options. Out: the object. Each node runs one worker with its
devices; the launcher waits until it can log in to all of them. Every word in a script is quoted.

https://github.com/volcano-sh/apis (batch/v1alpha1),
https://github.com/kubeflow/mpi-operator (kubeflow.org/v2beta1),
https://github.com/k8snetworkplumbingwg/multi-net-spec (the annotation networks)
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from nodevitals.checks.launchers import job_script
from nodevitals.checks.launchers.job_script import SSH_PORT, Kind
from nodevitals.checks.requests.collective import Backend, Collective

RESOURCES: dict[Backend, str] = {"nccl": "nvidia.com/gpu", "hccl": "huawei.com/Ascend910"}
RUN_LABEL, ROLE_LABEL = "nodevitals.io/run", "nodevitals.io/role"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
# Time after which Kubernetes removes a finished object that no hub removed.
KEEP_SECONDS = 3600


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a cluster need."""

    image: str
    namespace: str = "default"
    rdma_resource: str = ""
    rdma_count: int = 1
    networks: str = ""
    host_network: bool = False
    shared_memory: str = "16Gi"
    queue: str = ""
    device_resource: str = ""
    """Resource of the devices; by default that of NVIDIA's or Ascend's device plugin."""


def document(
    wanted: Collective, kind: Kind, options: JobOptions, name: str, seconds: float
) -> dict[str, Any]:
    """Return a Volcano Job (batch.volcano.sh/v1alpha1) or an MPIJob (kubeflow.org/v2beta1)."""
    if options.rdma_resource:
        wanted = msgspec.structs.replace(wanted, rdma=True)
    limit = int(seconds) + job_script.START_SECONDS
    launcher = _launcher(wanted, kind, options, name, seconds)
    worker = _worker(wanted, options, name)
    for template in (launcher, worker):
        template["spec"]["activeDeadlineSeconds"] = limit
    made = (_volcano if kind == "volcano" else _mpijob)(wanted, options, launcher, worker, limit)
    labels = {RUN_LABEL: name, "app.kubernetes.io/managed-by": "nodevitals"}
    metadata = {"name": name, "namespace": options.namespace, "labels": labels}
    return {key: made.get(key, metadata) for key in _ORDER}


_ORDER = ("apiVersion", "kind", "metadata", "spec")


def manifest(wanted: Collective, kind: Kind, options: JobOptions, name: str, seconds: float) -> str:
    """Return the object of `document` as YAML."""
    made = document(wanted, kind, options, name, seconds)
    return yaml.dump(made, Dumper=_Readable, sort_keys=False, width=100)


class _Readable(yaml.SafeDumper):
    """Writes no references, and scripts as blocks of lines."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def _volcano(
    wanted: Collective,
    options: JobOptions,
    launcher: dict[str, Any],
    worker: dict[str, Any],
    _: int,
) -> dict[str, Any]:
    ended = [{"events": ["PodFailed", "PodEvicted"], "action": "TerminateJob"}]
    tasks = [
        {
            "name": "launcher",
            "replicas": 1,
            "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}, *ended],
            "template": launcher,
        },
        {
            "name": "worker",
            "replicas": len(wanted.nodes),
            "policies": ended,
            "template": worker,
        },
    ]
    spec = {
        "schedulerName": "volcano",
        **({"queue": options.queue} if options.queue else {}),
        "minAvailable": len(wanted.nodes) + 1,
        "maxRetry": 1,
        "ttlSecondsAfterFinished": KEEP_SECONDS,
        # svc writes the names of the workers to a file, ssh gives one key to all pods.
        "plugins": {"ssh": [], "svc": []},
        "tasks": tasks,
    }
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": spec}


def _mpijob(
    wanted: Collective,
    options: JobOptions,
    launcher: dict[str, Any],
    worker: dict[str, Any],
    limit: int,
) -> dict[str, Any]:
    policy: dict[str, Any] = {
        "cleanPodPolicy": "Running",
        "backoffLimit": 0,
        "activeDeadlineSeconds": limit,
        "ttlSecondsAfterFinished": KEEP_SECONDS,
    }
    if options.queue:
        policy["schedulingPolicy"] = {"queue": options.queue}
    never = {"restartPolicy": "Never"}
    spec = {
        "slotsPerWorker": wanted.processes_per_node,
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, **never, "template": launcher},
            "Worker": {"replicas": len(wanted.nodes), **never, "template": worker},
        },
    }
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}


def _launcher(
    wanted: Collective, kind: Kind, options: JobOptions, name: str, seconds: float
) -> dict[str, Any]:
    container = {
        "name": "launcher",
        "image": options.image,
        "command": ["sh", "-c", job_script.script(wanted, kind, seconds)],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
    }
    return _template(name, "launcher", container)


def _worker(wanted: Collective, options: JobOptions, name: str) -> dict[str, Any]:
    """One worker per node, with all devices of the node."""
    device = options.device_resource or RESOURCES[wanted.backend]
    limits: dict[str, Any] = {device: wanted.devices_per_node}
    if options.rdma_resource:
        limits[options.rdma_resource] = options.rdma_count
    serve = (
        "ulimit -l unlimited 2>/dev/null; mkdir -p /run/sshd; ssh-keygen -A >/dev/null; "
        f"exec /usr/sbin/sshd -D -e -p {SSH_PORT}"
    )
    container = {
        "name": "worker",
        "image": options.image,
        "command": ["sh", "-c", serve],
        "resources": {"limits": limits, "requests": limits},
        # RDMA locks the memory that it registers.
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],  # noqa: S108
    }
    made = _template(name, "worker", container)
    if options.networks:
        made["metadata"]["annotations"] = {NETWORKS: options.networks}
    memory = {"medium": "Memory", "sizeLimit": options.shared_memory}
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(wanted.nodes)}
    same = {
        "labelSelector": {"matchLabels": {RUN_LABEL: name, ROLE_LABEL: "worker"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    made["spec"] |= {
        "volumes": [{"name": "shared-memory", "emptyDir": memory}],
        "affinity": {
            "nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": [named]}]}},
            "podAntiAffinity": {required: [same]},
        },
        "tolerations": [{"key": device, "operator": "Exists", "effect": "NoSchedule"}],
    }
    if options.host_network:
        made["spec"] |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    return made


def _template(name: str, role: str, container: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"labels": {RUN_LABEL: name, ROLE_LABEL: role}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }
