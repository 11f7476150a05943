"""Documents of an API server: a Status, and what it refuses. In: a code. Out: the document.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

Object = dict[str, Any]
JSON = "application/json"
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Answer(NamedTuple):
    """What is sent; a stream ends with its connection."""

    code: int
    body: bytes = b""
    media: str = JSON
    stream: Iterator[bytes] | None = None


class RefusedError(Exception):
    """A request that the API server refuses."""

    def __init__(self, code: int, message: str, reason: str = "", **details: Any) -> None:
        super().__init__(message)
        self.code, self.document = code, failure(code, message, reason, **details)


def failure(code: int, message: str = "as the test wants", reason: str = "", **more: Any) -> Object:
    """A Status of a failure; `details` name an object where it concerns one."""
    return {
        **SUCCESS,
        "status": "Failure",
        "code": code,
        "reason": reason or REASONS.get(code, "Unknown"),
        "message": message,
        "details": more,
    }


def document(code: int, content: Any) -> Answer:
    """A document as JSON."""
    return Answer(code, json.dumps(content).encode())
