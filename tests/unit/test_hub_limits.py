"""Limits of the hub's requests: how many run at a time, and clients that do not read or send."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodevitals_hub.settings.hub import AccessSettings
from nodevitals_hub.web import limits
from nodevitals_hub.web.access import Access
from nodevitals_hub.web.gate import Gate


async def page(_scope: Any, receive: Any, send: Any) -> None:
    """An application that returns the body of the request."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def gate() -> Gate:
    """In front of that application."""
    access = Access(AccessSettings(anonymous="run"))
    return Gate(page, lambda: access, str)


async def call(found: Gate, path: str, receive: Any) -> list[Any]:
    """What a request sends."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"hub")],
    }
    await found(scope, receive, send)
    return sent


def parts(*bodies: bytes, ends: bool = True) -> Any:
    """A body in parts; one that does not end waits for ever."""
    left = list(bodies)

    async def receive() -> Any:
        if not left:
            await asyncio.sleep(3600)
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(left) or not ends}

    return receive


def test_a_busy_hub_refuses_more_requests_and_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodevitals_hub.web.gate.MAX_REQUESTS", 3)

    async def whole() -> list[Any]:
        found = gate()
        slow = [asyncio.ensure_future(call(found, "/a", parts(ends=False))) for _ in range(3)]
        await asyncio.sleep(0)
        starts = [(await call(found, path, parts(b"")))[0] for path in ("/", "/healthz")]
        for one in slow:
            one.cancel()
        await asyncio.wait(slow)
        return [*starts, (await call(found, "/", parts(b"")))[0]]

    busy, *others = asyncio.run(whole())
    assert (busy["status"], *(one["status"] for one in others)) == (503, 200, 200)
    assert (b"retry-after", b"1") in busy["headers"]


def test_a_body_is_whole_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(limits, "REST_SECONDS", 0.05)
    monkeypatch.setattr(limits, "MAX_BODY_BYTES", 6)

    async def gone() -> Any:
        return {"type": "http.disconnect"}

    def status_and_body(receive: Any) -> tuple[int, bytes]:
        start, *rest = asyncio.run(call(gate(), "/", receive))
        return start["status"], b"".join(one["body"] for one in rest)

    assert status_and_body(parts(b"abc", b"def")) == (200, b"abcdef")
    assert status_and_body(parts(b"abc", b"defg"))[0] == 413
    assert status_and_body(parts(b"abc", ends=False))[0] == 408
    assert status_and_body(gone)[0] == 400


def test_what_a_client_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.05)
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(3600)

    async def whole() -> None:
        timely = limits.while_read(send)
        for _ in range(3):
            await timely({"type": "http.response.body", "body": b"x", "more_body": True})

    asyncio.run(whole())
    assert len(sent) == 1
