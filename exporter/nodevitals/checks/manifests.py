"""Manifests of collectives for Kubernetes: a Volcano Job, or an MPIJob of the MPI operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml

from nodevitals.checks import CheckError
from nodevitals.checks.collective import Backend, Collective, sweeps, tool_argv
from nodevitals.checks.mpirun import exported

RESOURCES: dict[Backend, str] = {"nccl": "nvidia.com/gpu", "hccl": "huawei.com/Ascend910"}
REQUEST_SECONDS = 30


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
                "activeDeadlineSeconds": 300,
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
    where = [hosts] if hosts else []
    ranks = ["-np", str(wanted.ranks)]
    return [
        "mpirun",
        "--allow-run-as-root",
        *where,
        *ranks,
        *exported(wanted),
        *tool_argv(wanted, sweeps(wanted.sizes)[0]),
    ]


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


def create(text: str) -> str:
    """Create the object of a manifest, in the cluster of the kubeconfig or of this pod. Returns its
    kind, namespace and name. Raises CheckError.
    """
    try:
        from kubernetes import client, config
        from urllib3.exceptions import HTTPError
    except ImportError:
        raise CheckError("install nodevitals with the extra kubernetes") from None
    document = yaml.safe_load(text)
    group, _, version = document["apiVersion"].partition("/")
    kind, metadata = document["kind"], document["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    plural = f"{kind.lower()}s"
    try:
        config.load_config()  # type: ignore[no-untyped-call]
        client.CustomObjectsApi().create_namespaced_custom_object(
            group, version, namespace, plural, document, _request_timeout=REQUEST_SECONDS
        )
    except client.ApiException as error:
        raise CheckError(f"{namespace}/{name}: {error.status} {error.reason}") from None
    except (config.ConfigException, OSError, HTTPError) as error:
        raise CheckError(f"{' '.join(str(error).split())}") from None
    return f"{kind} {namespace}/{name}"
