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


def gate(app: Any = page) -> Gate:
    """In front of an application."""
    access = Access(AccessSettings(anonymous="run"))
    return Gate(app, lambda: access, str)


async def call(found: Gate, path: str, receive: Any, read: Any = None) -> list[Any]:
    """What a request sends, to a client that has read it after `read`."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if read is not None:
            await read()

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
    monkeypatch.setattr(limits, "MAX_REQUESTS", 3)

    async def whole() -> list[Any]:
        done = asyncio.Event()

        async def busy(scope: Any, receive: Any, send: Any) -> None:
            await (done.wait() if scope["path"] == "/busy" else page(scope, receive, send))

        found = gate(busy)
        calls = [asyncio.ensure_future(call(found, "/busy", parts(b""))) for _ in range(3)]
        await asyncio.sleep(0)
        starts = [(await call(found, path, parts(b"")))[0] for path in ("/", "/healthz")]
        done.set()
        await asyncio.wait(calls)
        return [*starts, (await call(found, "/", parts(b"")))[0]]

    refused, *others = asyncio.run(whole())
    assert (refused["status"], *(one["status"] for one in others)) == (503, 200, 200)
    assert (b"retry-after", b"1") in refused["headers"]


def test_the_slowest_client_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends its body, or reads its response, slowly."""
    monkeypatch.setattr(limits, "MAX_REQUESTS", 3)
    monkeypatch.setattr(limits, "REST_SECONDS", 0.05)

    async def whole() -> list[Any]:
        found, never = gate(), asyncio.Event().wait
        slow = [
            asyncio.ensure_future(call(found, "/", parts(b""), never)),
            asyncio.ensure_future(call(found, "/", parts(b"a", ends=False))),
            asyncio.ensure_future(call(found, "/", parts(b"b", ends=False))),
        ]
        await asyncio.sleep(0.01)
        new = [(await call(found, "/", parts(b"")))[0]["status"] for _ in range(2)]
        await asyncio.sleep(0.2)
        ended = [one.done() for one in slow]
        slow[2].cancel()
        await asyncio.wait(slow)
        return [*new, *ended, slow[1].result()[0]["status"]]

    assert asyncio.run(whole()) == [200, 200, True, True, False, 408]


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
    """A body goes in parts, each with its time."""
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.05)
    monkeypatch.setattr(limits, "LEAST_BYTES", 2)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(3600 if message["body"] == b"xx" else 0.02)

    async def whole(*bodies: bytes) -> list[Any]:
        sent.clear()
        timely = limits.Places().while_read(send)
        for body in bodies:
            await timely({"type": "http.response.body", "body": body, "more_body": False})
        return [(one["body"], one["more_body"]) for one in sent]

    for body in (b"", b"a", b"ab"):
        assert asyncio.run(whole(body)) == [(body, False)]
    assert asyncio.run(whole(b"abcdef")) == [(b"ab", True), (b"cd", True), (b"ef", False)]
    assert asyncio.run(whole(b"abxxcd", b"ef")) == [(b"ab", True), (b"xx", True)]
