"""Limits of requests: their number at a time, their size, the time for a body and for a response.

In: ASGI requests; some clients are slow or hostile. Out: complete bodies; responses that end where
a client does not read; refusals that also reach a client that is still sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from litestar.types import Message, Receive, Send

from nodevitals.errors import Wording
from nodevitals_hub.web.errors import refusal

MAX_BODY_BYTES = 256 * 1024
"""10,000 names of nodes fit."""
MAX_MESSAGE_BYTES = 8 << 20
MAX_TARGET_BYTES = 4096
MAX_HEAD_BYTES = 16 * 1024
# Messages of Alertmanager: a group may have thousands of alerts.
_LARGE_PATHS = ("/api/v1/alerts", "/api/v1/notifications")
MAX_REQUESTS = 256
"""At a time."""
REQUEST_SECONDS = 20.0
"""A body must be complete within this time."""
STALLED_SECONDS = 30.0
LEAST_BYTES = 256 * 1024
"""A client that reads less than this within STALLED_SECONDS gets no more of a response."""
REST_SECONDS = 2.0
"""For the rest of a body that is refused: a client that still sends sees no refusal where the
connection is closed."""


class RefusedRequest(Exception):  # noqa: N818 # an outcome
    """A request that gets no other response."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


def most_bytes(path: str) -> int:
    """The largest number of bytes in a request's body."""
    return MAX_MESSAGE_BYTES if path in _LARGE_PATHS else MAX_BODY_BYTES


class Places:
    """The places of requests in progress. Where all are taken, the request that has waited for its
    client for the longest time is ended.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._waits: dict[asyncio.Timeout, None] = {}

    @contextmanager
    def take(self, always: bool) -> Iterator[None]:
        """Take a place; `always`: also where all are taken. Raises RefusedRequest."""
        self._taken += 1
        try:
            if self._taken > MAX_REQUESTS and not always and not self._end_oldest():
                text = Wording("too many requests at a time: try again in a second")
                raise RefusedRequest(503, text, **{"retry-after": "1"})
            yield
        finally:
            self._taken -= 1

    def _end_oldest(self) -> bool:
        oldest = next((wait for wait in self._waits if not wait.expired()), None)
        if oldest is None:
            return False
        del self._waits[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())
        return True

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(seconds) as wait:
            self._waits[wait] = None
            try:
                yield
            finally:
                self._waits.pop(wait, None)

    async def with_body(self, receive: Receive, most: int) -> Receive:
        """A `receive` that returns the whole body, once it is complete. Raises RefusedRequest."""
        body = bytearray()
        try:
            async with self._within(REQUEST_SECONDS):
                message: Any = await receive()
                while message["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > most:
                        text = Wording("the body has over {most} KiB", most=most >> 10)
                        raise RefusedRequest(413, text)
                    if not message.get("more_body", False):
                        break
                    message = await receive()
        except TimeoutError:
            raise RefusedRequest(408, "the body was not complete in time") from None
        if message["type"] != "http.request":
            raise RefusedRequest(400, "the body ended early")
        first: Any = {"type": "http.request", "body": bytes(body), "more_body": False}
        left = [first]

        async def again() -> Any:
            return left.pop() if left else await receive()

        return again

    def while_read(self, send: Send) -> Send:
        """A `send` that drops a message that a client has not read in time, and later ones."""
        stalled = False

        async def timely(message: Message) -> None:
            nonlocal stalled
            try:
                for part in () if stalled else _parts(message):
                    async with self._within(STALLED_SECONDS):
                        await send(part)
            except TimeoutError:
                stalled = True

        return timely


def _parts(message: Any) -> Iterator[Any]:
    """A message in parts of at most LEAST_BYTES."""
    body = message.get("body", b"")
    last = max(0, len(body) - 1) // LEAST_BYTES * LEAST_BYTES
    for start in range(0, last, LEAST_BYTES):
        yield {**message, "body": body[start : start + LEAST_BYTES], "more_body": True}
    yield {**message, "body": body[last:]} if last else message


async def refuse(scope: Any, receive: Receive, send: Send, error: RefusedRequest) -> None:
    """Send a refusal, and drop what the client still sends: the server stops reading while parts of
    a body wait for the application.
    """
    rest = asyncio.ensure_future(_drop_body(receive))

    async def after_the_rest(message: Any) -> None:
        if message["type"] == "http.response.body":
            message["more_body"] = True
            await send(message)
            await asyncio.wait([rest], timeout=REST_SECONDS)
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await send(message)

    try:
        await refusal(scope, after_the_rest, error.status, error.args[0], error.headers)
    finally:
        rest.cancel()


async def _drop_body(receive: Receive) -> None:
    message: Any = {"more_body": True}
    while message.get("more_body", False):
        message = await receive()
