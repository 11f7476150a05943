"""Alertmanager's webhook, and the address of an alert's newest check."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath

from nodevitals_hub.triggers.alert_plan import decode
from nodevitals_hub.web.gate import MAX_MESSAGE_BYTES

PATH = "/api/v1/alerts"


def made(alerts: Any) -> list[Any]:
    """The handlers; `alerts` are the Alerts of alerts.py, which imports this module."""

    @post(PATH, status_code=200, request_max_body_size=MAX_MESSAGE_BYTES)
    async def take(request: Request[Any, Any, Any]) -> dict[str, Any]:
        """Start the checks that a message of Alertmanager (webhook, version 4) asks for."""
        try:
            message = decode(await request.body())
        except ValueError as error:
            raise ClientException(str(error)) from None
        answer = await alerts.take(message)
        return {"checks": answer.checks, "refused": answer.refused}

    @get("/alerts/{fingerprint:str}", include_in_schema=False)
    async def newest(fingerprint: FromPath[str]) -> Response[str]:
        """The newest check of an alert."""
        place = {"location": f"/checks/{alerts.newest(fingerprint)}"}
        return Response("", status_code=303, media_type="text/html", headers=place)

    return [take, newest]
