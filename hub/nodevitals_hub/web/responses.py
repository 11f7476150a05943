"""Responses of pages.

In: a request, a template and its values. Out: HTML in the language of the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request, Response

from nodevitals_hub.web.errors import one_line
from nodevitals_hub.web.reasons import reason_in
from nodevitals_hub.web.rendering import language_of, render

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
    return {name: reason_in(language, one_line(text)) for name, text in problems.items()}


def redirect(place: str) -> Response[str]:
    """To another page, by GET."""
    return Response("", status_code=303, media_type="text/html", headers={"location": place})
