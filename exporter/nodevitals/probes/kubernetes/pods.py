"""Pods and nodes as the API server and the kubelet return them: JSON in, what the probe keeps out.

Pure. Only the fields below are read. https://kubernetes.io/docs/reference/kubernetes-api/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import msgspec

from nodevitals.probes.kubernetes.devices import chosen_npus

MAX_VALUE_CHARACTERS = 128
MAX_NAME_CHARACTERS = 253  # Kubernetes' own limit
MAX_CONTAINERS = 64
MAX_CONDITIONS = 32
# The uid that a static pod has at the kubelet, and so in the names of cgroups.
_STATIC_UID = "kubernetes.io/config.hash"


class ListMetadata(msgspec.Struct, rename={"continue_": "continue"}):
    """Where the next page of a list begins; '' on the last one."""

    continue_: str = ""


class Metadata(msgspec.Struct):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Optional[dict[str, str]] = None
    annotations: Optional[dict[str, str]] = None


class Terminated(msgspec.Struct, rename="camel"):
    """A container that has ended."""

    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(msgspec.Struct):
    """The state of a container before the present one."""

    terminated: Optional[Terminated] = None


class ContainerStatus(msgspec.Struct, rename="camel"):
    """A container of a pod: its present id and that of its last run."""

    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    last_state: Optional[ContainerState] = None


class PodStatus(msgspec.Struct, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    container_statuses: Optional[list[ContainerStatus]] = None
    init_container_statuses: Optional[list[ContainerStatus]] = None


class Pod(msgspec.Struct):
    """A pod."""

    metadata: Metadata
    status: Optional[PodStatus] = None


class PodList(msgspec.Struct):
    """A page of pods."""

    items: Optional[list[Pod]] = None
    metadata: Optional[ListMetadata] = None


class Condition(msgspec.Struct):
    """A condition of a node."""

    type: str = ""
    status: str = ""


class NodeSpec(msgspec.Struct):
    """The desired state of a node."""

    unschedulable: bool = False


class NodeStatus(msgspec.Struct):
    """The status of a node."""

    conditions: Optional[list[Condition]] = None


class NodeObject(msgspec.Struct):
    """A node."""

    spec: NodeSpec
    status: Optional[NodeStatus] = None


class KnownPod(msgspec.Struct, array_like=True):
    """The data that is kept of a pod. `labels` are its configured labels; `npus` are the NPUs that
    Volcano chose, None if the kubelet chose; `gone_at` is the Unix time at which the pod was first
    missing, 0 while it exists.
    """

    namespace: str
    name: str
    uid: str
    static_uid: str
    labels: dict[str, str]
    containers: dict[str, str]
    """Name of each container, by its id without the runtime's prefix."""
    npus: Optional[tuple[str, ...]] = None
    ended: bool = False
    gone_at: float = 0.0

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class KnownNode(msgspec.Struct, array_like=True):
    """The data that is kept of the node."""

    schedulable: bool
    conditions: dict[str, bool]
    read_at: float = 0.0


def parse_pods(data: bytes) -> PodList:
    """A list of pods. Raises ValueError for anything else."""
    try:
        pods = msgspec.json.decode(data, type=PodList)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a list of pods: {error}") from None
    if pods.items is None and pods.metadata is None:
        raise ValueError("not a list of pods")
    return pods


def parse_node(data: bytes) -> KnownNode:
    """A node. Raises ValueError for anything else."""
    try:
        node = msgspec.json.decode(data, type=NodeObject)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a node: {error}") from None
    conditions = (node.status and node.status.conditions) or []
    known = {
        condition.type[:MAX_VALUE_CHARACTERS]: condition.status == "True"
        for condition in conditions[:MAX_CONDITIONS]
        if condition.type and condition.status in ("True", "False")
    }
    return KnownNode(not node.spec.unschedulable, known)


def known_pod(pod: Pod, names: Mapping[str, tuple[str, ...]]) -> KnownPod:
    """The data to keep of a pod; `names` has the configured names of labels and annotations."""
    metadata, status = pod.metadata, pod.status or PodStatus()
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    return KnownPod(
        namespace=metadata.namespace[:MAX_NAME_CHARACTERS],
        name=metadata.name[:MAX_NAME_CHARACTERS],
        uid=metadata.uid[:MAX_VALUE_CHARACTERS],
        static_uid=annotations.get(_STATIC_UID, "")[:MAX_VALUE_CHARACTERS],
        labels=choose(labels, annotations, names),
        containers=_containers(statuses[:MAX_CONTAINERS]),
        npus=chosen_npus(annotations),
        ended=status.phase in ("Succeeded", "Failed"),
    )


def choose(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    names: Mapping[str, tuple[str, ...]],
) -> dict[str, str]:
    """The value of each label: the value of the first name that the pod has as a label or else as
    an annotation; labels without a value are left out.
    """
    chosen = {}
    for label, candidates in names.items():
        values = (labels.get(name) or annotations.get(name) for name in candidates)
        value = next((value for value in values if value), "")
        if value:
            chosen[label] = " ".join(value[:MAX_VALUE_CHARACTERS].split())
    return chosen


def _containers(statuses: list[ContainerStatus]) -> dict[str, str]:
    containers = {}
    for status in statuses:
        ended = status.last_state.terminated if status.last_state else None
        for text in (ended.container_id if ended else "", status.container_id):
            bare = text.rpartition("://")[2][:MAX_VALUE_CHARACTERS]
            if bare:
                containers[bare] = status.name[:MAX_NAME_CHARACTERS]
    return containers
