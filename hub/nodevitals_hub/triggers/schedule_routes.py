"""The REST API and the page of schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from litestar import Request, Response, get

from nodevitals_hub.web.errors import page

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

SCHEDULES_PATH = "/api/v1/schedules"


def made(hub: Hub, schedules: Callable[[], Any], listed: Any) -> list[Any]:
    """The handlers; `schedules` are those of schedules.py, which imports this module, and `listed`
    is the type of what it returns.
    """

    async def list_schedules() -> Any:
        """The schedules of the configuration, by name, with their last and next checks."""
        return schedules()

    # The schema of the answer is in the description of the API.
    list_schedules.__annotations__["return"] = listed

    @get("/schedules", include_in_schema=False)
    async def show(request: Request[Any, Any, Any]) -> Response[str]:
        """The same as a page."""
        cluster = hub.settings.cluster
        return page(request, "schedules.html", schedules=schedules(), cluster=cluster)

    return [get(SCHEDULES_PATH)(list_schedules), show]
