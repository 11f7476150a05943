"""The form of an isolation on a Kubernetes node. Pure.

In: nodes and pods from the API server. Out: patches, and the pods that a drain may evict. A node
that the hub has taken out of service is cordoned, has the annotation `nodevitals.io/isolation` with
the isolation's id, a label of the same name, and a taint where one is set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nodevitals_hub.isolation.schedulers.schedulers import NodeState, reason_of
from nodevitals_hub.records import Isolation

MARK = "nodevitals.io/isolation"
REASON, SINCE, ACTION = "nodevitals.io/reason", "nodevitals.io/since", "nodevitals.io/action"
CONDITION = "NodevitalsOutOfService"
MIRROR = "kubernetes.io/config.mirror"
REPAIR = "nodevitals.io/repair"
"""Label on objects that a repair has created: the id of the repair."""
ENDED = ("Succeeded", "Failed")


class Eviction(NamedTuple):
    """The pods of a node that a drain concerns."""

    evict: tuple[tuple[str, str], ...]
    """Namespace and name."""
    ending: int
    """Number of pods that are terminating."""
    kept: tuple[str, ...]
    """Pods without a controller, which would not be started again elsewhere."""

    @property
    def left(self) -> int:
        """The number of all of them."""
        return len(self.evict) + self.ending + len(self.kept)


def check_node(node: Mapping[str, Any], name: str) -> None:
    """Check that an answer is this node: a proxy may return another object. Raises ValueError."""
    metadata, spec = node.get("metadata"), node.get("spec")
    if node.get("kind") != "Node" or not isinstance(metadata, dict):
        raise ValueError("the answer is no node")
    if metadata.get("name") != name:
        raise ValueError("the answer is another node")
    annotations, taints = metadata.get("annotations"), (spec or {}).get("taints")
    if not (
        isinstance(metadata.get("resourceVersion"), str)
        and isinstance(annotations or {}, dict)
        and all(isinstance(taint, dict) for taint in taints or ())
    ):
        raise ValueError("the answer is a node of another form")


def state_of(node: Mapping[str, Any]) -> NodeState:
    """A node, as the scheduler has it."""
    spec, annotations = node.get("spec") or {}, _annotations(node)
    return NodeState(not spec.get("unschedulable"), str(annotations.get(MARK) or ""))


def isolating_patch(node: Mapping[str, Any], isolation: Isolation, taint: str) -> dict[str, Any]:
    """The merge patch that takes a node out of service, if it is still in this version."""
    spec: dict[str, Any] = {"unschedulable": True}
    if taint:
        mark = {"key": taint, "effect": "NoSchedule", "value": isolation.id}
        spec["taints"] = [*_other_taints(node, taint), mark]
    return _patch(node, spec, describing(isolation), isolation.id)


def describing(isolation: Isolation) -> dict[str, Any]:
    """The annotations of an isolation."""
    since = isolation.acted if isolation.acted is not None else isolation.created
    return {
        MARK: isolation.id,
        REASON: reason_of(isolation),
        SINCE: rfc3339(since),
        ACTION: ", ".join(sorted({fault.action for fault in isolation.faults if fault.action})),
    }


def restoring_patch(node: Mapping[str, Any], taint: str) -> dict[str, Any]:
    """The merge patch that returns a node to service, if it is still in this version."""
    spec: dict[str, Any] = {"unschedulable": None}
    if taint:
        spec["taints"] = _other_taints(node, taint) or None
    return _patch(node, spec, dict.fromkeys((MARK, REASON, SINCE, ACTION)))


def forgetting_patch(node: Mapping[str, Any], taint: str) -> dict[str, Any]:
    """The merge patch that removes our mark from a node that a person has returned."""
    patch = restoring_patch(node, taint)
    del patch["spec"]["unschedulable"]
    return patch


def _patch(
    node: Mapping[str, Any],
    spec: dict[str, Any],
    annotations: Mapping[str, str | None],
    label: str | None = None,
) -> dict[str, Any]:
    """The annotation is the mark; the label lets the API server list nodes with a mark."""
    version = node["metadata"]["resourceVersion"]
    labels = {MARK: label}
    metadata = {"resourceVersion": version, "annotations": dict(annotations), "labels": labels}
    return {"metadata": metadata, "spec": spec}


def _other_taints(node: Mapping[str, Any], taint: str) -> list[Any]:
    """The other taints, which the patch must repeat: a merge patch replaces the list."""
    taints = (node.get("spec") or {}).get("taints") or []
    return [other for other in taints if other.get("key") != taint]


def _annotations(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return node["metadata"].get("annotations") or {}


def condition_patch(isolation: Isolation, out: bool, now: float) -> dict[str, Any]:
    """The strategic merge patch that sets the hub's condition in the node's status."""
    moment = rfc3339(now)
    condition = {
        "type": CONDITION,
        "status": "True" if out else "False",
        "reason": "ConfirmedFault" if out else "InService",
        "message": reason_of(isolation) if out else "returned to service",
        "lastHeartbeatTime": moment,
        "lastTransitionTime": rfc3339(isolation.acted if out and isolation.acted else now),
    }
    return {"status": {"conditions": [condition]}}


def event_of(isolation: Isolation, what: str, text: str, now: float) -> dict[str, Any]:
    """An Event of the node; its name is the same for the same isolation and act."""
    moment = rfc3339(now)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{isolation.node}.{isolation.id}.{what.lower()}"[:253],
            "namespace": "default",
        },
        "involvedObject": {"kind": "Node", "name": isolation.node, "uid": isolation.node},
        "reason": what,
        "message": text[:1000],
        "type": "Warning" if what == "OutOfService" else "Normal",
        "source": {"component": "nodevitals-hub"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def evictions(pods: Sequence[Mapping[str, Any]]) -> Eviction:
    """The pods of a node by what a drain does, as `kubectl drain --ignore-daemonsets`."""
    evict, kept, ending = [], [], 0
    for pod in pods:
        metadata = pod["metadata"]
        owners = metadata.get("ownerReferences") or []
        name = metadata.get("namespace", "default"), metadata["name"]
        if (pod.get("status") or {}).get("phase") in ENDED or MIRROR in _annotations(pod):
            continue
        if any(owner.get("kind") == "DaemonSet" for owner in owners):
            continue
        if REPAIR in (metadata.get("labels") or {}):
            continue  # it repairs the node
        if metadata.get("deletionTimestamp"):
            ending += 1
        elif any(owner.get("controller") for owner in owners):
            evict.append(name)
        else:
            kept.append("/".join(name))
    return Eviction(tuple(evict), ending, tuple(kept))


def rfc3339(moment: float) -> str:
    """A time as the API server writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
