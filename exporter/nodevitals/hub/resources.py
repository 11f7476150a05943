"""Follows the custom resource Check of a cluster: starts, reports and cancels checks.

In: resources of the API server. Out: checks, and the resources' status. A resource is listed every
`list_every` and watched between, as a watch may end without a notice; what is there is compared
with what should be, so that an event that was lost is only late. The uid of a resource is the
idempotency key of its check: a hub that was killed between start and status starts nothing twice,
and a resource that is created anew under its old name is another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Optional, cast

import httpx2
import msgspec
from lightkube import AsyncClient
from lightkube.config import client_adapter
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import Status
from lightkube.types import PatchType

from nodevitals.checks.model import Check, Requester
from nodevitals.hub.checks import RefusedError
from nodevitals.hub.resource_spec import (
    ENDED,
    GROUP,
    KIND,
    PLURAL,
    VERSION,
    request_of,
    status_of,
    status_of_lost,
    status_without_check,
)

if TYPE_CHECKING:
    from nodevitals.hub.context import Hub

CheckResource = create_namespaced_resource(GROUP, VERSION, KIND, PLURAL)
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0
WATCH_GRACE_SECONDS = 5.0
REQUEST_SECONDS = 10.0
PAGE = 500
CONFLICTS = 5
UNREACHABLE = (httpx2.HTTPError, httpx2.StreamError, ConfigError, OSError)
# What lightkube raises for an answer that is not of the API.
GARBAGE = (ValueError, KeyError, TypeError, AttributeError)

log = logging.getLogger(__name__)


class Resource(msgspec.Struct, frozen=True):
    """What the hub reads of a resource."""

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created: str
    spec: Any
    status: dict[str, Any]

    @property
    def settled(self) -> bool:
        """Whether nothing is to be done until its generation changes; a check never runs again."""
        if self.status.get("phase") not in ENDED:
            return False
        return bool(self.status.get("checkId")) or (
            self.status.get("observedGeneration") == self.generation
        )


def resource_of(found: Any) -> Resource:
    """A resource as the API server has it. Raises KeyError, TypeError or ValueError."""
    metadata = found["metadata"]
    status = found.get("status")
    return Resource(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        generation=int(metadata.get("generation") or 1),
        created=str(metadata.get("creationTimestamp") or ""),
        spec=found.get("spec"),
        status=status if isinstance(status, dict) else {},
    )


class Resources:
    """All resources that the hub follows, by uid."""

    def __init__(self, hub: Hub, client: AsyncClient, events: httpx2.AsyncClient) -> None:
        self._hub, self._client, self._events = hub, client, events
        self._known: dict[str, Resource] = {}
        self._checks: dict[str, str] = {}
        """uid of a resource by the identity of its check."""
        self._dirty: dict[str, None] = {}
        self._some = asyncio.Event()
        self._full = False
        self._said = ""
        self._looked_for_orphans = False

    async def run(self) -> None:
        """Follow until cancelled."""
        changes = self._hub.checks.changes()
        tasks = [asyncio.ensure_future(work) for work in (self._listen(changes), self._work())]
        try:
            await asyncio.wait(
                [*tasks, follow := asyncio.ensure_future(self._follow())],
                return_when=asyncio.FIRST_EXCEPTION,
            )
            for task in (*tasks, follow):
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, follow):
                task.cancel()
            await asyncio.gather(*tasks, follow, return_exceptions=True)

    # ---- what the API server has -----------------------------------------------------------------

    async def _follow(self) -> None:
        wait = FIRST_RETRY_SECONDS
        while True:
            try:
                version = await self._list()
                self._say("")
                wait = FIRST_RETRY_SECONDS
                await self._watch(version)
            except ApiError as error:
                if error.status.code == 410:  # the version is too old: list again
                    await asyncio.sleep(0.1)
                    continue
                self._say(f"HTTP {error.status.code}: {error.status.message}")
                await asyncio.sleep(max(wait, _retry_after(error)))
                wait = min(2 * wait, LAST_RETRY_SECONDS)
            except (*UNREACHABLE, *GARBAGE) as error:
                self._say(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
                await asyncio.sleep(wait)
                wait = min(2 * wait, LAST_RETRY_SECONDS)

    def _say(self, problem: str) -> None:
        """Log what changed, not each attempt."""
        if problem and problem != self._said:
            log.warning("resources: %s; tried again every %g s", problem, LAST_RETRY_SECONDS)
        elif self._said and not problem:
            log.info("resources: the API server answers again")
        self._said = problem

    @property
    def _namespace(self) -> str:
        return self._hub.settings.resources.namespace or "*"

    async def _list(self) -> Optional[str]:
        """Read all resources; what is gone was deleted."""
        listed = self._client.list(CheckResource, namespace=self._namespace, chunk_size=PAGE)
        found: dict[str, Resource] = {}
        async for one in listed:
            resource = _read(one)
            if resource is not None:
                found[resource.uid] = resource
        gone = self._known.keys() - found.keys()
        self._known = found
        self._full = False
        for uid in gone:
            self._mark(uid)
        for resource in sorted(found.values(), key=lambda one: (one.created, one.name)):
            if not resource.settled:
                self._mark(resource.uid)
        if not self._looked_for_orphans:
            self._mark("")
        return listed.resourceVersion

    async def _watch(self, version: Optional[str]) -> None:
        """Read changes for `list_every`, or until the server ends the watch. Not lightkube's watch:
        that one asks again at once where a server ends it at once.
        """
        seconds = self._hub.settings.resources.list_every
        within = f"/namespaces/{self._namespace}" if self._namespace != "*" else ""
        path = f"/apis/{GROUP}/{VERSION}{within}/{PLURAL}"
        wanted = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version or "0"}
        wanted["timeoutSeconds"] = str(max(1, int(seconds)))
        started = asyncio.get_running_loop().time()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._read_events(path, wanted), seconds + WATCH_GRACE_SECONDS)
        spent = asyncio.get_running_loop().time() - started
        await asyncio.sleep(max(0.0, min(FIRST_RETRY_SECONDS, seconds) - spent))

    async def _read_events(self, path: str, wanted: dict[str, str]) -> None:
        timeout = httpx2.Timeout(REQUEST_SECONDS, read=None)
        async with self._events.stream("GET", path, params=wanted, timeout=timeout) as response:
            if response.status_code != 200:
                await response.aread()
                raise ApiError(request=response.request, response=response)
            async for line in response.aiter_lines():
                event = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    raise ApiError(status=cast(Status, Status.from_dict(event["object"])))
                resource = _read(CheckResource.from_dict(event["object"]))
                if event["type"] != "BOOKMARK" and resource is not None:
                    self._seen(resource, event["type"] == "DELETED")

    def _seen(self, resource: Resource, deleted: bool) -> None:
        if deleted:
            self._known.pop(resource.uid, None)
        else:
            self._known[resource.uid] = resource
        if deleted or not resource.settled:
            self._mark(resource.uid)

    # ---- what is to be done ----------------------------------------------------------------------

    def _mark(self, uid: str) -> None:
        self._dirty[uid] = None
        self._some.set()

    async def _listen(self, changes: AsyncIterator[Check]) -> None:
        phases: dict[str, str] = {}
        async for check in changes:
            if check.requester.trigger != "resource" or phases.get(check.id) == check.phase:
                continue
            phases[check.id] = check.phase
            uid = self._checks.get(check.id)
            if check.phase in ("done", "canceled"):
                phases.pop(check.id)
                if self._full:
                    self._full = False
                    self._mark_pending()
            if uid is not None:
                self._mark(uid)

    def _mark_pending(self) -> None:
        for resource in self._known.values():
            if not resource.settled and resource.uid not in self._checks.values():
                self._mark(resource.uid)

    async def _work(self) -> None:
        while True:
            while not self._dirty:
                self._some.clear()
                await self._some.wait()
            uid = next(iter(self._dirty))
            del self._dirty[uid]
            try:
                await (self._reconcile(uid) if uid else self._cancel_orphans())
            except ApiError as error:
                log.warning("resources: %s; again at the next list", error.status.message)
                await asyncio.sleep(min(_retry_after(error), LAST_RETRY_SECONDS))
            except RefusedError as error:  # the store
                log.warning("resources: %s; again at the next list", error)
            except (*UNREACHABLE, *GARBAGE) as error:
                log.warning("resources: %s; again at the next list", type(error).__name__)

    async def _reconcile(self, uid: str) -> None:
        resource = self._known.get(uid)
        if resource is None:
            await self._cancel(identity for identity, own in self._checks.items() if own == uid)
        elif not resource.settled:
            await self._write(resource, await self._status(resource))

    async def _status(self, resource: Resource) -> dict[str, Any]:
        """Start the check where there is none yet. Returns the status of the resource."""
        identity = resource.status.get("checkId")
        if isinstance(identity, str) and identity:
            generation = int(resource.status.get("observedGeneration") or resource.generation)
            try:
                check = (await self._hub.checks.get(identity)).check
            except RefusedError as error:
                if error.kind == "not_found":
                    return status_of_lost(generation, identity)
                raise
            return self._of(resource, check, generation)
        try:
            request = request_of(resource.spec)
            check = await self._submit(resource, request)
        except ValueError as error:
            return status_without_check("Refused", resource.generation, str(error))
        except RefusedError as error:
            if error.kind in ("invalid", "forbidden", "not_found"):
                return status_without_check("Refused", resource.generation, str(error))
            if error.kind == "busy":
                self._full = True
            return status_without_check("Pending", resource.generation, str(error))
        return self._of(resource, check, resource.generation)

    async def _submit(self, resource: Resource, request: Any) -> Check:
        if self._full:
            raise RefusedError("busy", "the hub's queue is full (limits.queued): waits for a place")
        name = f"{resource.namespace}/{resource.name}"
        role = self._hub.settings.resources.role
        if request.force and role != "act":
            raise RefusedError("forbidden", "spec.force: resources have the role run on this hub")
        requester = Requester(trigger="resource", name=name, role=role)
        return await self._hub.checks.submit(request, requester, key=f"resource-{resource.uid}")

    def _of(self, resource: Resource, check: Check, generation: int) -> dict[str, Any]:
        self._checks[check.id] = resource.uid
        warning = ""
        if generation != resource.generation:
            warning = "the spec was edited after the start, without effect: create another Check"
        return status_of(check, generation, self._hub.settings.external_url, warning)

    async def _write(self, resource: Resource, status: dict[str, Any]) -> None:
        """Write a status that differs. A conflict is tried again with the newest version."""
        for _ in range(CONFLICTS):
            changed = {
                key: value for key, value in status.items() if resource.status.get(key) != value
            }
            if not changed:
                return
            # The API server refuses a version that is not the newest, and the uid of another.
            metadata = {"resourceVersion": resource.version, "uid": resource.uid}
            where: dict[str, Any] = {"name": resource.name, "namespace": resource.namespace}
            try:
                body = {"metadata": metadata, "status": changed}
                found = await self._client.patch(
                    CheckResource.Status, obj=body, patch_type=PatchType.MERGE, **where
                )
                self._keep(resource_of(found))
                return
            except ApiError as error:
                if error.status.code not in (404, 409):
                    raise
            try:
                newest = resource_of(await self._client.get(CheckResource, **where))
            except ApiError as error:
                if error.status.code == 404:
                    return  # deleted: the watch or the next list will say so
                raise
            if newest.uid != resource.uid:
                return
            self._keep(newest)
            resource = newest
        log.warning("resources: %s/%s: %d conflicts", resource.namespace, resource.name, CONFLICTS)

    def _keep(self, resource: Resource) -> None:
        if resource.uid in self._known:
            self._known[resource.uid] = resource

    async def _cancel_orphans(self) -> None:
        """Cancel checks whose resource was deleted while the hub did not run."""
        prefix = f"{self._namespace}/" if self._namespace != "*" else ""
        before = ""
        while True:
            page = await self._hub.checks.list(limit=1000, before=before)
            await self._cancel(
                check.id
                for check in page
                if check.phase in ("queued", "running")
                and check.requester.trigger == "resource"
                and check.requester.name.startswith(prefix)
                and self._checks.get(check.id) not in self._known
            )
            if len(page) < 1000:
                self._looked_for_orphans = True
                return
            before = page[-1].id

    async def _cancel(self, identities: Iterable[str]) -> None:
        requester = Requester(trigger="resource", name="its resource, which was deleted")
        for identity in list(identities):
            self._checks.pop(identity, None)
            with suppress(RefusedError):
                await self._hub.checks.cancel(identity, requester)


def _read(found: Any) -> Optional[Resource]:
    """A resource, or None for a bookmark and for what is none."""
    try:
        return resource_of(found)
    except GARBAGE:
        return None


def _retry_after(error: ApiError) -> float:
    text = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    return float(text) if text.isascii() and text.isdigit() else 0.0


async def run(hub: Hub) -> None:
    """Follow the resource, where the settings say so."""
    if not hub.settings.resources.enabled:
        return
    client = AsyncClient(timeout=httpx2.Timeout(REQUEST_SECONDS), field_manager="nodevitals-hub")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request
    params = client_adapter.ConnectionParams(timeout=httpx2.Timeout(REQUEST_SECONDS))
    events = client_adapter.AsyncClient(client.config, params)
    try:
        await Resources(hub, client, events).run()
    finally:
        await events.aclose()
        await client.close()
