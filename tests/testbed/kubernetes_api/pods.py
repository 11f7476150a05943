"""What the probe `kubernetes` asks, over HTTPS: the pods of a node, the node, and `/pods` of a
kubelet. In: pods of `testbed.kubelet`. Out: documents with what a real server has beside what the
probe reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.kubelet import Pod
from testbed.kubernetes_api.answers import Object
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.nodes import NODE, POD
from testbed.kubernetes_api.server import KubernetesApi

# The rules of the chart's ClusterRole.
ROLE = {("list", "pods"), ("get", "nodes")}
KUBELET_ROLE = {("get", "nodes/proxy")}


def pod_object(pod: Pod) -> Object:
    """A pod as the API server returns it."""
    last = {"terminated": {"containerID": f"containerd://{pod.last_container_id}", "exitCode": 137}}
    container = {
        "name": pod.container,
        "containerID": f"containerd://{pod.container_id}",
        "ready": True,
        "restartCount": 0,
        "lastState": last if pod.last_container_id else {},
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": pod.labels or None,
        "annotations": pod.annotations or None,
        "ownerReferences": [{"kind": "Job", "name": "a-job"}],
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": pod.node, "containers": [{"name": pod.container}]},
        "status": {"phase": pod.phase, "containerStatuses": [container], "podIP": "10.1.1.1"},
    }


class PodApi(KubernetesApi):
    """The server; tests change its fields, and the pods."""

    def __init__(self, folder: Path, pods: list[Pod], host: str = "127.0.0.1") -> None:
        super().__init__(folder, [NODE, POD], ROLE, tls_name=host)
        self.pods = pods
        self.conditions = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "Unknown"}
        self.unschedulable = False
        self.token_file = folder / "token"
        self.rotate("first-token")
        self.paths["/pods"] = "nodes/proxy"
        self.handlers["get", "nodes/proxy"] = self._kubelet_pods
        self.handlers["list", "pods"] = self._pods
        self.handlers["get", "nodes"] = self._node

    @property
    def settings(self) -> dict[str, Any]:
        """For the probe."""
        files = {"ca_file": str(self.ca_file), "token_file": str(self.token_file)}
        return {"api_url": self.url, "source": "api", **files}

    def rotate(self, token: str) -> None:
        """Accept another token from now on, and only that; write it for the probe."""
        self.token = token
        self.token_file.write_text(token + "\n")

    def _kubelet_pods(self, _: Call) -> Object:
        items = [pod_object(pod) for pod in self.pods]
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _pods(self, call: Call) -> Object:
        objects = [pod_object(pod) for pod in self.pods]
        self.objects["pods"] = {str(number): one for number, one in enumerate(objects)}
        return self.page(POD, call)

    def _node(self, call: Call) -> Object:
        conditions = [{"type": kind, "status": one} for kind, one in self.conditions.items()]
        spec = {"unschedulable": True} if self.unschedulable else {}
        status = {"conditions": conditions}
        self.objects["nodes"]["node-7"] = {
            "metadata": {"name": "node-7"},
            "spec": spec,
            "status": status,
        }
        return self.get(NODE, "", call.name)
