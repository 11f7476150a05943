"""Follows the custom resource Check of a cluster: starts, reports and cancels checks.

In: resources of the API server and their changes. Out: checks, and the resources' status
(resource_reconciler.py).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

import httpx2
import msgspec
from lightkube import AsyncClient
from lightkube.config import client_adapter
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import Status

from nodevitals.checks.deadlines import within
from nodevitals_hub.triggers.resource_objects import (
    GARBAGE,
    UNREACHABLE,
    CheckResource,
    Resource,
    Waits,
    resource_of,
    retry_after,
)
from nodevitals_hub.triggers.resource_reconciler import Reconciler
from nodevitals_hub.triggers.resource_spec import GROUP, PLURAL, VERSION

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

PAGE = 500

log = logging.getLogger(__name__)


class Sink(Protocol):
    """The receiver of the resources."""

    def listed(self, resources: dict[str, Resource]) -> None:
        """Receive all resources, by uid."""

    def seen(self, resource: Resource, deleted: bool) -> None:
        """Receive a resource that was created, changed or deleted."""


class Follower:
    """Reads the resources of one namespace, or of all."""

    def __init__(
        self, hub: Hub, client: AsyncClient, events: httpx2.AsyncClient, sink: Sink, waits: Waits
    ) -> None:
        self._hub, self._client, self._events = hub, client, events
        self._sink, self._waits = sink, waits
        self._said = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        first, last = self._waits.first_retry, self._waits.last_retry
        wait = first
        while True:
            try:
                version = await self._list()
                self._say("")
                wait = first
                await self._watch(version)
            except ApiError as error:
                if error.status.code == 410:  # the version is too old: list again
                    await asyncio.sleep(min(0.1, first))
                    continue
                self._say(f"HTTP {error.status.code}: {error.status.message}")
                await asyncio.sleep(max(wait, retry_after(error)))
                wait = min(2 * wait, last)
            except (*UNREACHABLE, *GARBAGE) as error:
                self._say(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
                await asyncio.sleep(wait)
                wait = min(2 * wait, last)

    def _say(self, problem: str) -> None:
        """Log a problem when it changes, not at each attempt."""
        if problem and problem != self._said:
            log.warning("resources: %s; tried again every %g s", problem, self._waits.last_retry)
        elif self._said and not problem:
            log.info("resources: the API server answers again")
        self._said = problem

    async def _list(self) -> str | None:
        namespace = self._hub.settings.resources.namespace or "*"
        listed = self._client.list(CheckResource, namespace=namespace, chunk_size=PAGE)
        resources: dict[str, Resource] = {}
        async for document in listed:
            resource = _read(document)
            if resource is not None:
                resources[resource.uid] = resource
        self._sink.listed(resources)
        return listed.resourceVersion

    async def _watch(self, version: str | None) -> None:
        """Read changes for `list_every`, or until the server ends the watch. lightkube's own watch
        is not used: it reconnects at once, also where a server always ends it at once.
        """
        settings = self._hub.settings.resources
        seconds = settings.list_every
        namespace = f"/namespaces/{settings.namespace}" if settings.namespace else ""
        path = f"/apis/{GROUP}/{VERSION}{namespace}/{PLURAL}"
        wanted = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version or "0"}
        wanted["timeoutSeconds"] = str(max(1, int(seconds)))
        started = asyncio.get_running_loop().time()
        with suppress(asyncio.TimeoutError):
            limit = seconds + self._waits.watch_grace
            await within(self._read_events(path, wanted), limit)
        spent = asyncio.get_running_loop().time() - started
        await asyncio.sleep(max(0.0, min(self._waits.first_retry, seconds) - spent))

    async def _read_events(self, path: str, wanted: dict[str, str]) -> None:
        timeout = httpx2.Timeout(self._waits.request, read=None)
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
                    self._sink.seen(resource, event["type"] == "DELETED")


def _read(document: Any) -> Resource | None:
    """A resource; None for a bookmark or an invalid object."""
    try:
        return resource_of(document)
    except GARBAGE:
        return None


default_waits = Waits()


async def run(hub: Hub) -> None:
    """Follow the custom resource, where the settings enable it."""
    if not hub.settings.resources.enabled:
        return
    waits = default_waits
    client = AsyncClient(timeout=httpx2.Timeout(waits.request), field_manager="nodevitals-hub")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request
    events = client_adapter.AsyncClient(client.config, waits.connection())
    reconciler = Reconciler(hub, client, waits)
    follower = Follower(hub, client, events, reconciler, waits)
    changes = hub.checks.changes()
    works = (reconciler.listen(changes), reconciler.run(), follower.run())
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await events.aclose()
        await client.close()
