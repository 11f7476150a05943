"""The page and the REST API of notifications: waiting, dropped, sent, superseded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, Response, get
from msgspec.structs import replace

from nodevitals_hub.records import Delivery
from nodevitals_hub.store import delivery_tables
from nodevitals_hub.web.errors import page

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

PATH = "/api/v1/deliveries"
SHOWN = 100


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """The newest notifications by state."""

    waiting: tuple[Delivery, ...] = ()
    dropped: tuple[Delivery, ...] = ()
    sent: tuple[Delivery, ...] = ()
    superseded: tuple[Delivery, ...] = ()


async def listed(hub: Hub) -> Deliveries:
    """The newest notifications. Raises StoreError."""
    if not hub.settings.notify.channels:
        return Deliveries()

    def read(connection: sqlite3.Connection) -> Deliveries:
        def newest(state: str) -> tuple[Delivery, ...]:
            deliveries = delivery_tables.newest(connection, state, SHOWN)
            return tuple(replace(delivery, alerts=()) for delivery in deliveries)

        return Deliveries(
            waiting=newest("waiting"),
            dropped=newest("dropped"),
            sent=newest("sent"),
            superseded=newest("superseded"),
        )

    return await hub.database.do(read)


def handlers(hub: Hub) -> list[Any]:
    """The REST API and the page."""

    @get(PATH)
    async def deliveries() -> Deliveries:
        """Notifications that wait, were dropped, were sent, or whose place a newer one took: the
        newest 100 of each.
        """
        return await listed(hub)

    @get("/notifications", include_in_schema=False)
    async def show(request: Request[Any, Any, Any]) -> Response[str]:
        """The same as a page."""
        return page(
            request,
            "notifications.html",
            found=await listed(hub),
            channels=hub.settings.notify.channels,
            cluster=hub.settings.cluster,
        )

    return [deliveries, show]
