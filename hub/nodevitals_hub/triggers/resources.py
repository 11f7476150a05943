"""Follows the custom resource Check of a cluster: starts, reports and cancels checks.

In: resources of the API server (resource_follower.py). Out: checks, and the resources' status
(resource_reconciler.py).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx2
from lightkube import AsyncClient
from lightkube.config import client_adapter

from nodevitals_hub.triggers.resource_follower import Follower
from nodevitals_hub.triggers.resource_objects import Waits
from nodevitals_hub.triggers.resource_reconciler import Reconciler

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

default_waits = Waits()


async def run(hub: Hub) -> None:
    """Follow the resource, where the settings say so."""
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
