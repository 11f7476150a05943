"""Nodes, their pods, evictions and Events, and what repairs create.

A merge patch of a node without a resourceVersion is refused, which a real API server accepts:
it would lose the change of another client. An eviction that a PodDisruptionBudget forbids gets 429.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.kubernetes_api.answers import SUCCESS, Object, RefusedError
from testbed.kubernetes_api.api import Call
from testbed.kubernetes_api.server import KubernetesApi
from testbed.kubernetes_api.store import Kind

# Verb and resource; what the chart gives the hub where it takes nodes out of service.
ROLE = {
    ("get", "nodes"),
    ("list", "nodes"),
    ("patch", "nodes"),
    ("patch", "nodes/status"),
    ("list", "pods"),
    ("create", "pods/eviction"),
    ("create", "events"),
}
NAMESPACE = "repairs"
JOBS = "jobs.batch"
REMEDIATIONS = "selfnoderemediations.self-node-remediation.medik8s.io"
REPAIR_ROLE = {("create", JOBS), ("get", JOBS)}
REMEDIATION_ROLE = {(verb, REMEDIATIONS) for verb in ("create", "get", "delete")}
NODE = Kind("v1", "Node", "nodes", False, needs=("resourceVersion",), is_selected=True)
POD = Kind("v1", "Pod", "pods", is_selected=True)
REMEDIATION = Kind(
    "self-node-remediation.medik8s.io/v1alpha1", "SelfNodeRemediation", "selfnoderemediations"
)
KINDS = (NODE, POD, Kind("v1", "Event", "events"), Kind("batch/v1", "Job", "jobs"), REMEDIATION)
MARK = "nodevitals.io/isolation"


class NodeApi(KubernetesApi):
    """The server; tests change its fields."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        super().__init__(folder, KINDS, ROLE)
        self.namespaces = {NAMESPACE, "default", "train"}
        self.retry_after = "3600"
        self.nodes = self.objects["nodes"]
        self.protected: set[str] = set()
        """Pods that a PodDisruptionBudget keeps."""
        self.cordons: list[tuple[str, bool]] = []
        """Each change of a node's spec.unschedulable by a request."""
        self.handlers["create", "pods/eviction"] = self._evict
        self.handlers["patch", "nodes"] = self._patch_node
        for name in nodes:
            self.add(name)

    # ---- what kubectl does -----------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Add a node."""
        metadata = {"name": name, "uid": f"uid-{name}", "annotations": {"site/own": "x"}}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {"taints": [{"key": "site/own", "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.put(NODE, node)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """As a person with kubectl."""
        with self.lock:
            spec = self.nodes[name]["spec"]
            spec.pop("unschedulable", None)
            if cordoned:
                spec["unschedulable"] = True
            self.put(NODE, self.nodes[name], "MODIFIED")

    def mark(self, name: str, identity: str) -> None:
        """A cordon with a mark of ours, as another hub or an old manifest makes it."""
        with self.lock:
            metadata = self.nodes[name]["metadata"]
            metadata["annotations"][MARK] = identity
            metadata.setdefault("labels", {})[MARK] = identity
            self.cordon(name)

    def unmark(self, name: str) -> None:
        """A person removes our mark; the cordon stays."""
        with self.lock:
            self.nodes[name]["metadata"]["annotations"].pop(MARK, None)
            self.put(NODE, self.nodes[name], "MODIFIED")

    def pod(self, name: str, node: str, owner: str = "Job", **more: Any) -> None:
        """Add a pod of a controller of this kind; of none with ''."""
        owners = [{"kind": owner, "name": "x", "controller": True}] if owner else []
        metadata = {"name": name, "namespace": "train", "ownerReferences": owners, **more}
        status = {"phase": "Running"}
        self.put(POD, {"metadata": metadata, "spec": {"nodeName": node}, "status": status})

    def say(self, resource: str, **status: Any) -> None:
        """Write the status of all objects of a resource, as their controller does."""
        with self.lock:
            for one in self.of_kind(resource):
                one["status"] = status

    # ---- what it has -----------------------------------------------------------------------------

    def of_kind(self, resource: str) -> list[Object]:
        """The objects of a resource."""
        with self.lock:
            return list(self.objects[resource].values())

    @property
    def pods(self) -> list[str]:
        """The names of the pods."""
        return [one["metadata"]["name"] for one in self.of_kind("pods")]

    @property
    def created(self) -> list[str]:
        """The names of all that was created for repairs, also of what is gone."""
        return [one["metadata"]["name"] for of in (JOBS, REMEDIATIONS) for one in self.made[of]]

    def cordoned(self) -> list[str]:
        """The nodes that take no new pods."""
        with self.lock:
            return sorted(n for n, one in self.nodes.items() if one["spec"].get("unschedulable"))

    def annotations(self, name: str) -> dict[str, str]:
        """The annotations of a node."""
        with self.lock:
            return dict(self.nodes[name]["metadata"]["annotations"])

    def taints(self, name: str) -> list[str]:
        """The keys of a node's taints."""
        with self.lock:
            return [one["key"] for one in self.nodes[name]["spec"].get("taints") or []]

    def condition(self, name: str, kind: str) -> str:
        """The status of a condition; '' where there is none."""
        with self.lock:
            conditions = self.nodes[name]["status"]["conditions"]
            return next((one["status"] for one in conditions if one["type"] == kind), "")

    # ---- handlers --------------------------------------------------------------------------------

    def _patch_node(self, call: Call) -> Object:
        node = self.get(NODE, "", call.name)
        was = bool(node["spec"].get("unschedulable"))
        self.patch(NODE, node, call.media, call.document())
        if bool(node["spec"].get("unschedulable")) != was:
            self.cordons.append((call.name, not was))
        return node

    def _evict(self, call: Call) -> Object:
        body = call.document()
        if body.get("kind") not in ("Eviction", None) or body["metadata"]["name"] != call.name:
            raise RefusedError(400, "no eviction")
        self.get(POD, call.namespace, call.name)
        if call.name in self.protected:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise RefusedError(429, text)
        self.remove(POD, call.namespace, call.name)
        return SUCCESS
