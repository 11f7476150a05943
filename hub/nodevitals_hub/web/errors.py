"""Responses: pages, and refusals as JSON for programs and as a page for a browser."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web.rendering import language_of, render
from nodevitals_hub.web.texts.translations import translated

STATUS = {
    "invalid": 422,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "busy": 429,
    "unavailable": 503,
}
_SHOWN = 500
_TEXTS = {404: Wording("no such page"), 405: Wording("this method is not supported here")}

log = logging.getLogger(__name__)


def one_line(text: str) -> str:
    """The text as one line of bounded length, without control characters."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else "?" for c in line)[:_SHOWN]


def _header(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    values = [value for name, value in headers if name.lower() == wanted]
    return values[0].decode("latin-1") if values else ""


def _body(scope: Any, status: int, text: str) -> tuple[bytes, str]:
    accepts = _header(scope["headers"], b"accept")
    if "text/html" in accepts and not scope["path"].startswith("/api/"):
        problem = one_line(translated(language_of(scope), text))
        page = render(scope, "error.html", status=status, problem=problem)
        return page.encode(), "text/html; charset=utf-8"
    return msgspec.json.encode({"error": one_line(text)}), "application/json"


async def refusal(
    scope: Any, send: Any, status: int, text: str, headers: dict[str, str] | None = None
) -> None:
    """Send a refusal from outside of the application."""
    body, media = _body(scope, status, text)
    sent = {"content-type": media, "content-length": str(len(body)), **(headers or {})}
    if status in (400, 408, 413, 414, 431, 505):
        sent["connection"] = "close"  # an unread body may follow
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in sent.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def status_and_text(error: Exception) -> tuple[int, str]:
    """The status and the text for an exception of a handler."""
    if isinstance(error, RefusedError):
        return STATUS[error.kind], error.args[0]
    if isinstance(error, ValidationException):
        extra = error.extra if isinstance(error.extra, list) else []
        texts = [
            f"{problem.get('key', '')}: {problem.get('message', '')}".strip(": ")
            for problem in extra
            if isinstance(problem, dict)
        ]
        return 422, "; ".join(texts) or error.detail
    if isinstance(error, HTTPException):
        return error.status_code, _TEXTS.get(error.status_code, error.detail)
    if isinstance(error, RecursionError):
        return 400, "the body is nested too deeply"
    log.error("a request failed", exc_info=error)
    return 500, Wording("a defect of the hub: see its log")


def handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """The response for an exception of a handler."""
    status, text = status_and_text(error)
    body, media = _body(request.scope, status, text)
    headers = dict(getattr(error, "headers", None) or {})
    if status == 429:
        headers["retry-after"] = "10"
    return Response(body, status_code=status, media_type=media, headers=headers)


AnyRequest = Request[Any, Any, Any]


def page(request: AnyRequest, template: str, status: int = 200, **values: Any) -> Response[str]:
    """A page; `?lang=` is remembered in a cookie."""
    text = render(request.scope, template, **values)
    headers = {"content-language": language_of(request.scope), "vary": "Accept-Language, Cookie"}
    if "lang" in request.query_params:
        cookie = f"lang={language_of(request.scope)}; Path=/; Max-Age=31536000; SameSite=Lax"
        headers["set-cookie"] = f"{cookie}; HttpOnly"
    return Response(text, media_type="text/html", status_code=status, headers=headers)


def shown_problems(request: AnyRequest, problems: Mapping[str, str]) -> dict[str, str]:
    """Problems by field, each as one line in the language of the client."""
    language = language_of(request.scope)
    return {name: one_line(translated(language, text)) for name, text in problems.items()}


def redirect(place: str) -> Response[str]:
    """A redirect to another page, by GET."""
    return Response("", status_code=303, media_type="text/html", headers={"location": place})
