"""Starts, reports and cancels the checks of custom resources.

In: the resources that a follower reads, and changes of checks. Out: checks, and the resources'
status. The actual state is compared with the desired one. The uid of a resource is the idempotency
key of its check: a hub that was killed between start and status starts nothing twice, and a
resource that is created again under its old name gets a new check.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.types import PatchType

from nodevitals.checks.deadlines import within
from nodevitals.checks.model import Check, Requester
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.triggers.resource_objects import (
    GARBAGE,
    UNREACHABLE,
    CheckResource,
    Resource,
    Waits,
    resource_of,
    retry_after,
)
from nodevitals_hub.triggers.resource_spec import (
    request_of,
    status_of,
    status_of_lost,
    status_without_check,
)

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

AT_A_TIME = 16


class Queue:
    """A queue of resources, by uid; one that is marked while it is handled is handled again."""

    def __init__(self) -> None:
        self._marked: dict[str, None] = {}
        self._busy: dict[str, asyncio.Event] = {}
        self._some = asyncio.Event()

    def mark(self, uid: str) -> None:
        """Queue a resource."""
        self._marked[uid] = None
        self._some.set()

    async def run(self, work: Callable[[str], Awaitable[None]]) -> None:
        """Call `work` for each queued resource, until cancelled, or until `work` raises."""
        workers = [asyncio.ensure_future(self._worker(work)) for _ in range(AT_A_TIME)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def others(self, uid: str) -> None:
        """Wait until the other resources that are handled now are finished."""
        for ended in [ended for other, ended in self._busy.items() if other != uid]:
            await ended.wait()

    async def _worker(self, work: Callable[[str], Awaitable[None]]) -> None:
        while True:
            uid = await self._next()
            ended = self._busy[uid] = asyncio.Event()
            try:
                await work(uid)
            finally:
                del self._busy[uid]
                ended.set()
                self._some.set()

    async def _next(self) -> str:
        while True:
            for uid in self._marked:
                if uid not in self._busy:
                    del self._marked[uid]
                    return uid
            self._some.clear()
            await self._some.wait()


CONFLICTS = 5
FULL = "the hub's queue is full (limits.queued): waits for a place"

log = logging.getLogger(__name__)


class Reconciler:
    """All resources that the hub follows, by uid, and their checks."""

    def __init__(self, hub: Hub, client: AsyncClient, waits: Waits) -> None:
        self._hub, self._client, self._waits = hub, client, waits
        self._known: dict[str, Resource] = {}
        self._checks: dict[str, str] = {}
        """uid of a resource by the identity of its check."""
        self._queue = Queue()
        self._full = False
        self._looked_for_orphans = False

    def listed(self, resources: dict[str, Resource]) -> None:
        """Use a list of all resources; a known one that is missing was deleted."""
        gone = self._known.keys() - resources.keys()
        self._known = resources
        self._full = False
        for uid in gone:
            self._queue.mark(uid)
        for resource in sorted(
            resources.values(), key=lambda resource: (resource.created, resource.name)
        ):
            if not resource.settled:
                self._queue.mark(resource.uid)
        if not self._looked_for_orphans:
            self._queue.mark("")

    def seen(self, resource: Resource, deleted: bool) -> None:
        """Handle a resource that was created, changed or deleted."""
        if deleted:
            self._known.pop(resource.uid, None)
        else:
            self._known[resource.uid] = resource
        if deleted or not resource.settled:
            self._queue.mark(resource.uid)

    async def listen(self, changes: AsyncIterator[Check]) -> None:
        """Report the changes of checks, until cancelled."""
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
                self._queue.mark(uid)

    def _mark_pending(self) -> None:
        started = set(self._checks.values())
        for resource in self._known.values():
            if not resource.settled and resource.uid not in started:
                self._queue.mark(resource.uid)

    async def run(self) -> None:
        """Handle queued resources, until cancelled."""
        await self._queue.run(self._do)

    async def _do(self, uid: str) -> None:
        try:
            await (self._reconcile(uid) if uid else self._cancel_orphans())
        except ApiError as error:
            log.warning("resources: %s; again at the next list", error.status.message)
            await asyncio.sleep(min(retry_after(error), self._waits.last_retry))
        except RefusedError as error:  # the store
            log.warning("resources: %s; again at the next list", error)
        except TimeoutError:
            text = f"a status was not written within {self._waits.request:g} s"
            log.warning("resources: %s; again at the next list", text)
        except (*UNREACHABLE, *GARBAGE) as error:
            log.warning("resources: %s; again at the next list", type(error).__name__)

    async def _reconcile(self, uid: str) -> None:
        resource = self._known.get(uid)
        if resource is None:
            await self._cancel(identity for identity, own in self._checks.items() if own == uid)
        elif not resource.settled:
            status = await self._status(resource)
            # The client's own time limit is between two bytes.
            await within(self._write(resource, status), self._waits.request)

    async def _status(self, resource: Resource) -> dict[str, Any]:
        """Start the check where there is none yet. Returns the status of the resource."""
        identity = resource.status.get("checkId")
        if isinstance(identity, str) and identity:
            generation = int(resource.status.get("observedGeneration") or resource.generation)
            try:
                check = await self._hub.checks.check(identity)
            except RefusedError as error:
                if error.kind == "not_found":
                    return status_of_lost(generation, identity)
                raise
            if _is_of(resource, check):
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
                # The text stays the same: a new one would cost one more write per resource.
                self._full = True
                return status_without_check("Pending", resource.generation, FULL)
            return status_without_check("Pending", resource.generation, str(error))
        return self._of(resource, check, resource.generation)

    async def _submit(self, resource: Resource, request: Any) -> Check:
        if self._full:
            raise RefusedError("busy", FULL)
        role = self._hub.settings.resources.role
        if request.force and role != "act":
            raise RefusedError("forbidden", "spec.force: resources have the role run on this hub")
        requester = Requester(trigger="resource", name=_name_of(resource), role=role)
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
            # The API server refuses an old version, and another resource's uid.
            metadata = {"resourceVersion": resource.version, "uid": resource.uid}
            where: dict[str, Any] = {"name": resource.name, "namespace": resource.namespace}
            try:
                body = {"metadata": metadata, "status": changed}
                patched = await self._client.patch(
                    CheckResource.Status, obj=body, patch_type=PatchType.MERGE, **where
                )
                self._keep(resource_of(patched))
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
        """Cancel checks whose resource was deleted while the hub did not run, once the checks of
        the first list are known.
        """
        await self._queue.others("")
        namespace = self._hub.settings.resources.namespace
        prefix = f"{namespace}/" if namespace else ""
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


def _name_of(resource: Resource) -> str:
    return f"{resource.namespace}/{resource.name}"


def _is_of(resource: Resource, check: Check) -> bool:
    """Whether a check belongs to this resource. A forged status could name another check, to have
    it canceled with the resource.
    """
    return (check.requester.trigger, check.requester.name) == ("resource", _name_of(resource))
