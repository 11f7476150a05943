"""Kubernetes: cordon, taint, condition, annotation and Event of a node; eviction of its pods.

In: isolations. Out: writes to the API server, each with the version that was read, so that no
change of another client is lost. The credentials are those of this pod, or of KUBECONFIG.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import httpx2
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import PodEviction
from lightkube.types import PatchType

from nodevitals.checks.deadlines import within
from nodevitals.checks.launchers.kubernetes_api import PodResource
from nodevitals_hub.isolation.schedulers import kubernetes_objects as objects
from nodevitals_hub.isolation.schedulers.schedulers import (
    DrainProgress,
    FailureKind,
    NodeState,
    Scheduler,
    SchedulerError,
    reason_of,
)
from nodevitals_hub.records import Isolation
from nodevitals_hub.settings.response import OutOfServiceSettings
from nodevitals_hub.triggers.resource_objects import GARBAGE, UNREACHABLE

REQUEST_SECONDS = 15.0
AT_A_TIME = 8
EVICTIONS_SECONDS = 20.0
MAX_PODS = 2000
CHUNK = 200
Node = create_global_resource("", "v1", "Node", "nodes")
Event = create_namespaced_resource("", "v1", "Event", "events")
_KINDS: dict[int, FailureKind] = {
    **dict.fromkeys((400, 401, 403, 405, 415, 422), "refused"),
    404: "unknown_node",
    409: "conflict",
}
Value = TypeVar("Value")

log = logging.getLogger(__name__)


class KubernetesScheduler(Scheduler):
    """One cluster."""

    def __init__(self, settings: OutOfServiceSettings) -> None:
        """Raises SchedulerError for an unusable configuration."""
        self._taint = settings.taint
        try:
            self._client = AsyncClient(
                timeout=httpx2.Timeout(REQUEST_SECONDS), field_manager="nodevitals-hub"
            )
        except (ConfigError, OSError, *GARBAGE) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise SchedulerError("unreachable", f"kubeconfig: {text}") from None
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request
        self._slots = asyncio.Semaphore(AT_A_TIME)

    async def states(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:
        """The nodes that it has, of these. Raises SchedulerError."""

        async def named_state(name: str) -> tuple[str, NodeState | None]:
            async with self._slots:
                try:
                    return name, objects.state_of(await self._node(name))
                except SchedulerError as error:
                    if error.kind == "unknown_node":
                        return name, None
                    raise

        states = await asyncio.gather(*map(named_state, dict.fromkeys(nodes)))
        return {name: state for name, state in states if state is not None}

    async def marked(self, nodes: Sequence[str]) -> Mapping[str, NodeState]:  # noqa: ARG002
        """All nodes with a mark. Raises SchedulerError."""
        states = await self._ask(self._marked(), "list nodes with a mark")
        return {name: state for name, state in states.items() if state.mark}

    async def isolate(self, isolation: Isolation) -> None:
        """Cordon the node, with our mark. Raises SchedulerError."""
        node = await self._node(isolation.node)
        state = objects.state_of(node)
        if state.mark == isolation.id and state.in_service:
            raise SchedulerError("taken", f"{isolation.node}: a person has returned it to service")
        if not state.in_service and state.mark != isolation.id:
            whose = f"isolation {state.mark} of another hub" if state.mark else "another"
            raise SchedulerError("taken", f"{isolation.node}: cordoned by {whose}")
        if state.mark != isolation.id:
            patch = objects.isolating_patch(node, isolation, self._taint)
            await self._patch_node(isolation.node, patch)
        await self.describe(isolation)
        text = f"taken out of service: {reason_of(isolation)}"
        await self._note(isolation, "OutOfService", text)

    async def describe(self, isolation: Isolation) -> None:
        """Bring annotations and condition up to date. Raises SchedulerError."""
        node = await self._own(isolation)
        wanted = objects.describing(isolation)
        has = node["metadata"].get("annotations") or {}
        if any(has.get(name) != value for name, value in wanted.items()):
            version = node["metadata"]["resourceVersion"]
            metadata = {"resourceVersion": version, "annotations": wanted}
            await self._patch_node(isolation.node, {"metadata": metadata})
        await self._set_condition(isolation, True)

    async def drain(self, isolation: Isolation) -> DrainProgress:
        """Ask for the eviction of what may move. Raises SchedulerError."""
        if objects.state_of(await self._own(isolation)).in_service:
            raise SchedulerError("taken", f"{isolation.node}: a person has returned it to service")
        listed = await self._ask(self._pods(isolation.node), "list pods")
        pods = objects.evictions(listed)
        blocked: list[str] = []
        until = time.monotonic() + EVICTIONS_SECONDS
        # In random order: slow pods at the start of the list must not delay the others every time.
        for namespace, name in random.sample(pods.evict, len(pods.evict)):
            eviction = PodEviction(metadata=ObjectMeta(name=name, namespace=namespace))
            asked = self._client.create(eviction, name, namespace=namespace)
            try:
                await self._ask(asked, f"evict {namespace}/{name}")
            except SchedulerError as error:
                if error.kind == "unknown_node":  # it has ended meanwhile
                    continue
                blocked.append(str(error))
            if time.monotonic() > until:
                break  # the rest in the next round: other nodes wait
        kept = [f"{name} has no controller: end it by hand" for name in pods.kept[:3]]
        return DrainProgress(pods.left, "; ".join([*blocked, *kept])[:500])

    async def running(self, isolation: Isolation) -> DrainProgress:
        """The pods that a drain concerns. Raises SchedulerError."""
        listed = await self._ask(self._pods(isolation.node), "list pods")
        return DrainProgress(objects.evictions(listed).left)

    async def restore(self, isolation: Isolation) -> None:
        """Uncordon the node, and remove our mark. Raises SchedulerError."""
        await self._own(isolation)
        # The condition first: without the mark, no later attempt would find the node.
        await self._set_condition(isolation, False)
        node = await self._own(isolation)  # its version has changed
        if objects.state_of(node).in_service:  # a person has uncordoned it: only the mark is left
            patch = objects.forgetting_patch(node, self._taint)
        else:
            patch = objects.restoring_patch(node, self._taint)
        await self._patch_node(isolation.node, patch)
        await self._note(isolation, "BackInService", "returned to service")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _node(self, name: str) -> Mapping[str, Any]:
        return await self._asked(self._client.get(Node, name), name, f"get node {name}")

    async def _own(self, isolation: Isolation) -> Mapping[str, Any]:
        """The node, with the mark of the isolation."""
        node = await self._node(isolation.node)
        if objects.state_of(node).mark != isolation.id:
            raise SchedulerError("taken", f"{isolation.node}: it does not carry our mark")
        return node

    async def _asked(
        self, asked: Awaitable[Mapping[str, Any]], name: str, what: str
    ) -> Mapping[str, Any]:
        """An answer that has to be this node."""

        async def checked() -> Mapping[str, Any]:
            node = await asked
            objects.check_node(node, name)
            return node

        return await self._ask(checked(), what)

    async def _marked(self) -> dict[str, NodeState]:
        listed = self._client.list(Node, labels={objects.MARK: None}, chunk_size=CHUNK)
        return {str(node["metadata"]["name"]): objects.state_of(node) async for node in listed}

    async def _pods(self, node: str) -> list[Any]:
        pods = []
        async for pod in self._client.list(
            PodResource, namespace="*", fields={"spec.nodeName": node}
        ):
            pods.append(pod)
            if len(pods) > MAX_PODS:
                raise ValueError(f"more than {MAX_PODS} pods")
        return pods

    async def _patch_node(self, name: str, patch: dict[str, Any]) -> None:
        asked = self._client.patch(Node, name, patch, patch_type=PatchType.MERGE)
        await self._asked(asked, name, f"patch node {name}")

    async def _set_condition(self, isolation: Isolation, out: bool) -> None:
        """Set the condition. A failure is only logged: the cordon is what takes the node out."""
        patch = objects.condition_patch(isolation, out, time.time())
        asked = self._client.patch(
            Node.Status, isolation.node, patch, patch_type=PatchType.STRATEGIC
        )
        try:
            await self._ask(asked, f"patch status of node {isolation.node}")
        except SchedulerError as error:
            log.warning("isolation %s: no condition: %s", isolation.id, error)

    async def _note(self, isolation: Isolation, what: str, text: str) -> None:
        """Create an Event, once. A failure is only logged."""
        event = Event.from_dict(objects.event_of(isolation, what, text, time.time()))
        try:
            await self._ask(self._client.create(event), "create event")
        except SchedulerError as error:
            if error.kind != "conflict":  # it is there already
                log.warning("isolation %s: no event: %s", isolation.id, error)

    async def _ask(self, asked: Awaitable[Value], what: str) -> Value:
        try:
            return await within(asked, REQUEST_SECONDS)
        except TimeoutError:
            raise SchedulerError("unreachable", f"{what}: no answer in time") from None
        except ApiError as error:
            code = error.response.status_code
            text = " ".join(str(error.status.message or "failed").split())[:300]
            kind = _KINDS.get(code, "unreachable")
            details = error.status.details
            if kind == "unknown_node" and not (details and details.name):
                kind = "unreachable"  # no object is missing: the path is, as behind a wrong proxy
            raise SchedulerError(kind, f"{what}: {code} {text}") from None
        except UNREACHABLE as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise SchedulerError("unreachable", f"{what}: {text}") from None
        except GARBAGE as error:
            text = " ".join(str(error).split())[:200]
            raise SchedulerError("refused", f"{what}: not understood: {text}") from None
