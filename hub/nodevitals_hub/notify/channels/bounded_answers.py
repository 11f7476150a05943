"""Answers to the requests of Apprise, bounded in size and time.

In: the requests that a thread makes within `watched`. Out: their answers, with as much of a body as
comes within the bounds, and the status and Retry-After of the last one. `requests` reads a body of
any size, decompressed, for as long as a byte comes before each timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import requests.sessions
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

MAX_BYTES = 64 << 10
SECONDS = 10.0
_of_thread = threading.local()


class Answered:
    """What a thread was answered last."""

    def __init__(self, now: float) -> None:
        self.end = now + SECONDS
        """By the monotonic clock."""
        self.status: int | None = None
        self.retry_after = ""


class _Adapter(HTTPAdapter):
    def send(self, *values: Any, **named: Any) -> Any:
        """Send a request, and read what comes of the body within the bounds."""
        answered: Answered | None = getattr(_of_thread, "answered", None)
        if answered is None:
            return super().send(*values, **named)
        values[0].headers["Accept-Encoding"] = "identity"
        response = super().send(*values, **{**named, "stream": True})
        answered.status = response.status_code
        answered.retry_after = response.headers.get("Retry-After", "")
        response.raw = BytesIO(_body(response.raw, answered.end))
        return response


def _body(raw: Any, end: float) -> bytes:
    body = bytearray()
    read = getattr(raw, "read1", raw.read)  # of urllib3 2: what is there, not all of it
    try:
        while len(body) < MAX_BYTES and time.monotonic() < end:
            data = read(MAX_BYTES, decode_content=False)
            if not data:
                break
            body += data
    except (HTTPError, OSError):
        pass  # the status has come, and says whether the message was taken
    raw.close()
    return bytes(body[:MAX_BYTES])


@contextmanager
def watched() -> Iterator[Answered]:
    """Bound the answers to this thread's requests."""
    # Each function of requests makes a session, which takes its adapter from there. Nothing else of
    # the hub uses requests.
    requests.sessions.HTTPAdapter = _Adapter
    _of_thread.answered = Answered(time.monotonic())
    try:
        yield _of_thread.answered
    finally:
        _of_thread.answered = None
