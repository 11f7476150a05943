"""Jobs of Volcano and the MPI operator, with their controllers, a kubelet and logs of pods.

Each list of the pods is one step of a scenario, so that nothing depends on time. A job has only
fields that its kind has, and is deleted in the foreground: it is there until its pods are gone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.kubernetes_api.answers import SUCCESS, Answer, Object, RefusedError
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.nodes import POD
from testbed.kubernetes_api.server import KubernetesApi
from testbed.kubernetes_api.store import Kind

NAMESPACE = "tests"
VOLCANO = Kind("batch.volcano.sh/v1alpha1", "Job", "jobs")
MPI = Kind("kubeflow.org/v2beta1", "MPIJob", "mpijobs")
FIELDS = {
    VOLCANO.name: {
        *("schedulerName", "minAvailable", "tasks", "plugins", "queue", "maxRetry"),
        "ttlSecondsAfterFinished",
    },
    MPI.name: {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"},
}
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}],
}
PENDING = {"phase": "Pending"}
GOOD = (
    {"launcher": PENDING, "worker": PENDING},
    {"launcher": RUNNING, "worker": RUNNING},
    {"launcher": SUCCEEDED, "worker": RUNNING},
)


def role(kind: Kind) -> set[tuple[str, str]]:
    """What a hub may do whose jobs are of this kind; the role of the chart is the same."""
    jobs = {(verb, kind.resource) for verb in ("create", "get", "delete")}
    return {*jobs, ("list", "pods"), ("get", "pods/log")}


def ended(status: int) -> Object:
    """The status of a failed pod."""
    terminated = {"terminated": {"exitCode": status, "reason": "Error"}}
    return {"phase": "Failed", "containerStatuses": [{"state": terminated}]}


def waiting(reason: str, message: str = "") -> Object:
    """The status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"state": state}]}


def unschedulable(message: str) -> Object:
    """The status of a pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [{**condition, "message": message}]}


class JobApi(KubernetesApi):
    """The server; tests change its fields."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [VOLCANO, MPI, POD], role(VOLCANO) | role(MPI))
        self.deleted: list[str] = []
        self.scenario: tuple[Object, ...] = GOOD
        """The status of the pods of each role, by step; the last one lasts."""
        self.job_status: Object = {"state": {"phase": "Running"}}
        self.log: bytes = b""
        self.log_times = 1
        """How often the log is sent."""
        self.linger = 1
        """Requests for which a deleted job is still there."""
        self._step = 0
        for kind in (VOLCANO, MPI):
            self.handlers["create", kind.resource] = self._create
            self.handlers["delete", kind.resource] = self._delete
            self.handlers["get", kind.resource] = self._get
        self.handlers["list", "pods"] = self._pods
        self.handlers["get", "pods/log"] = self._log

    @property
    def created(self) -> list[Object]:
        """All jobs that clients created."""
        return [one for kind in (VOLCANO, MPI) for one in self.made[kind.resource]]

    @property
    def jobs(self) -> list[Object]:
        """Those that are there."""
        with self.lock:
            return [one for kind in (VOLCANO, MPI) for one in self.objects[kind.resource].values()]

    def clear(self) -> None:
        """Another client deletes all jobs."""
        with self.lock:
            self.objects.clear()

    # ---- handlers --------------------------------------------------------------------------------

    def _create(self, call: Call) -> Object:
        kind, job = self.kind_of(call), call.document()
        unknown = set(job["spec"]) - FIELDS[kind.name]
        if unknown:
            raise RefusedError(400, f"{kind.name}.spec: unknown field {sorted(unknown)}")
        self._step = 0
        return self.accept(kind, call.namespace, job)

    def _delete(self, call: Call) -> Object:
        policies = (call.query, call.document())
        assert "Foreground" in [one.get("propagationPolicy") for one in policies]
        job = self.get(self.kind_of(call), call.namespace, call.name)
        job["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        job["lingers"] = self.linger
        self.deleted.append(call.name)
        return SUCCESS

    def _get(self, call: Call) -> Object:
        kind = self.kind_of(call)
        job = self.get(kind, call.namespace, call.name)
        if "lingers" in job:
            job["lingers"] -= 1
            if job["lingers"] < 0:
                self.remove(kind, call.namespace, call.name)
                return self.get(kind, call.namespace, call.name)
        return {**job, "status": self.job_status}

    def _pods(self, call: Call) -> Object:
        label, _, name = call.query["labelSelector"].partition("=")
        assert label == "nodevitals.io/run"
        jobs = [one for one in self.jobs if one["metadata"]["name"] == name]
        self.objects["pods"].clear()
        for job in jobs:
            step = self.scenario[min(self._step, len(self.scenario) - 1)]
            self._step += 1
            for pod in _pods_of(job, step):
                self.put(POD, pod)
        return self.page(POD, call)

    def _log(self, _: Call) -> Answer:
        parts = (self.log for _ in range(self.log_times))
        return Answer(200, media="text/plain", stream=parts)


def _pods_of(job: Object, step: Object) -> Iterator[Object]:
    for of, template, count in _templates(job):
        for number in range(count if of in step else 0):
            metadata = copy.deepcopy(template["metadata"])
            metadata |= {"name": f"{job['metadata']['name']}-{of}-{number}", "namespace": NAMESPACE}
            status = step.get(f"{of}-{number}", step[of])
            yield {"metadata": metadata, "spec": {"nodeName": f"gpu-{number}"}, "status": status}


def _templates(job: Object) -> Iterator[tuple[str, Any, int]]:
    if job["kind"] == VOLCANO.name:
        for task in job["spec"]["tasks"]:
            yield task["name"], task["template"], task["replicas"]
    else:
        for of, replica in job["spec"]["mpiReplicaSpecs"].items():
            yield of.lower(), replica["template"], replica["replicas"]
