"""The Litestar application: REST, pages, and the routes that other modules of the hub add.

In: the hub's parts. Out: an application that expects to be behind Gate (gate.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Response, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from nodevitals import __version__
from nodevitals_hub.web import api, pages
from nodevitals_hub.web.access import Access
from nodevitals_hub.web.errors import handle
from nodevitals_hub.web.limits import MAX_BODY_BYTES

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

# A separate path: for unknown paths below it, Litestar would return its own page.
OPENAPI_PATH = "/api/v1/openapi.json"


class _Description(JsonRenderPlugin):
    """The description, with regular expressions of ECMA: it has no end of text as Python."""

    def render(self, request: Any, openapi_schema: dict[str, Any]) -> bytes:
        """The description as JSON."""
        return super().render(request, _for_ecma(openapi_schema))


def _for_ecma(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: value.replace("\\Z", "$")
            if key == "pattern" and isinstance(value, str)
            else _for_ecma(value)
            for key, value in schema.items()
        }
    return [_for_ecma(item) for item in schema] if isinstance(schema, list) else schema


def build_app(
    hub: Hub, added: Sequence[Any], access: Callable[[], Access], health: Callable[[], str]
) -> Litestar:
    """The application of a hub, with the handlers that its other parts add."""

    @get("/healthz", include_in_schema=False)
    async def healthz() -> Response[str]:
        """Whether the event loop runs."""
        problem = health()
        return Response(
            f"{problem or 'ok'}\n", media_type="text/plain", status_code=503 if problem else 200
        )

    handlers: list[Any] = [healthz, *api.handlers(hub), *pages.handlers(hub, access), *added]
    return Litestar(
        handlers,
        openapi_config=OpenAPIConfig(
            title="nodevitals hub",
            version=__version__,
            path=OPENAPI_PATH,
            render_plugins=[_Description(path=["/", "/openapi.json"])],
        ),
        exception_handlers={Exception: handle},
        request_max_body_size=MAX_BODY_BYTES,
        logging_config=None,
    )
