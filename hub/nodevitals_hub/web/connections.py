"""HTTP/1.1 connections with limits: their number, the time of a request and of a response.

In: bytes of clients, of which some are slow, many or hostile. Out: requests for the application;
refusals of what is not HTTP.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from nodevitals_hub.web.gate import HEADERS, MAX_HEAD_BYTES
from nodevitals_hub.web.handshakes import Listening

REQUEST_SECONDS = 20.0
"""A request must be complete within this time, from its first byte or the connection on."""
STALLED_SECONDS = 30.0
LEAST_BYTES = 256 * 1024
"""A client that reads less than this within STALLED_SECONDS is disconnected."""
MAX_CONNECTIONS = 256
_TEXTS = {
    431: f"the head of the request has over {MAX_HEAD_BYTES >> 10} KiB",
    501: "Transfer-Encoding: only chunked is supported",
    503: "too many requests at a time: try again in a second",
}


class BoundedProtocol(H11Protocol):
    """One connection. A new one over the limit takes the place of the one that has sent no request
    for the longest time.
    """

    _request_deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _listening: Listening | None = None
    _left = 0
    since = 0.0
    """When it began to wait for a request."""

    def accepted_by(self, listening: Listening) -> BoundedProtocol:
        """The same, which reports the end of its handshake there."""
        self._listening = listening
        return self

    def connection_made(self, transport: Any) -> None:
        """Await the first request."""
        super().connection_made(transport)
        if self._listening is not None:
            self._listening.established(transport.get_extra_info("socket").fileno())
        self.since = self.loop.time()
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        others = [one for one in self.connections if one is not self]
        found = [one for one in others if isinstance(one, BoundedProtocol)]
        waiting = [one for one in found if one.is_waiting]
        stalled = [one for one in found if one.flow.write_paused]
        replaced = min(waiting or stalled, key=lambda one: one.since, default=None)
        if replaced is None:
            self._refuse(503)
        else:
            self.connections.discard(replaced)
            replaced.transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether it has no complete request that is being handled."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def data_received(self, data: bytes) -> None:
        """Take what a client sent."""
        super().data_received(data)
        self._await_request()

    def _await_request(self) -> None:
        if self.is_waiting and self._request_deadline is None:
            self._request_deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)
        elif not self.is_waiting and self._request_deadline is not None:
            self._request_deadline.cancel()
            self._request_deadline = None

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Refuse what is not HTTP; called while its exception is handled."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._refuse(hint if hint in _TEXTS else 400)

    def _refuse(self, status: int) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = msgspec.json.encode({"error": _TEXTS.get(status, "not a request of HTTP/1.1")})
            headers = {
                **HEADERS,
                "content-type": "application/json",
                "content-length": str(len(body)),
                "connection": "close",
            }
            head = h11.Response(
                status_code=status,
                headers=list(headers.items()),
                reason=HTTPStatus(status).phrase.encode(),
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._watch_writing()

    def on_response_complete(self) -> None:
        """Await the next request; the client may still have to read this response."""
        self.since = self.loop.time()
        super().on_response_complete()
        self._watch_writing()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        """The client has read most of it."""
        super().resume_writing()
        self._end_watch()
        self._watch_writing()

    def _watch_writing(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and self._write_deadline is None:
            self._left = left
            self._write_deadline = self.loop.call_later(STALLED_SECONDS, self._check_writing)

    def _check_writing(self) -> None:
        self._write_deadline = None
        left = self.transport.get_write_buffer_size()
        if left and left > self._left - LEAST_BYTES:
            self.transport.abort()
        else:
            self._watch_writing()

    def _end_watch(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadlines."""
        super().connection_lost(exc)
        self._end_watch()
        if self._request_deadline is not None:
            self._request_deadline.cancel()
