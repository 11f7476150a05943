"""Prometheus' HTTP API: expressions in, series over time out, within the server's limits.

A query that the server refuses as too large is asked again in halves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Optional, TypeVar

import msgspec
import requests

TIMEOUT_SECONDS = 120.0
MAX_POINTS = 10_000
"""Points per series and query; Prometheus refuses more than 11,000."""
MAX_ANSWER_BYTES = 24 * 1024 * 1024
"""A longer answer is asked for in halves: it bounds the memory of this process."""
_TRIES = 3
_SLOW_TRIES = 3
"""A query that takes too long is halved so often in a row."""
_BACKOFF_SECONDS = 1.0
# What Prometheus, Thanos and Mimir say to a query that a shorter one may pass.
_TOO_LARGE = (
    *("maximum resolution", "too many samples", "exceeds the limit", "limit exceeded"),
    *("exceeded maximum", "too large", "max-samples", "max_samples"),
)
_TOO_SLOW = ("timed out", "timeout", "context deadline")


class ServerError(Exception):
    """The server could not answer; the text is one line. `may_pass`: another try may help."""

    def __init__(self, message: str, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class TimeSeries(msgspec.Struct):
    """One series of an answer."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class Cost(msgspec.Struct):
    """What a back-test has cost the server so far; `seconds` is the time until its answers."""

    queries: int = 0
    seconds: float = 0.0
    bytes: int = 0


class _Matrix(msgspec.Struct):
    resultType: str  # noqa: N815
    result: list[TimeSeries]


class _Answer(msgspec.Struct):
    status: str
    data: Optional[_Matrix] = None
    error: str = ""


class _Names(msgspec.Struct):
    status: str
    data: list[str] = []
    error: str = ""


class _TooLargeError(Exception):
    """The server refuses the query, and may answer a shorter one. `slow`: it took too long."""

    def __init__(self, message: str, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow


class Server:
    """A Prometheus, or what has its API."""

    def __init__(self, url: str, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._session = requests.Session()
        self.cost = Cost()

    def metric_names(self, start: float, end: float) -> set[str]:
        """The names of the metrics with samples in a span. Raises ServerError."""
        path = "/api/v1/label/__name__/values"
        body = self._tried("GET", path, {"start": f"{start:.3f}", "end": f"{end:.3f}"})
        answer = _decoded(body, _Names)
        if answer is None or answer.status != "success":
            raise ServerError(f"{self._url}{path}: not an answer of Prometheus' API")
        return set(answer.data)

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> Iterator[list[TimeSeries]]:
        """The series of an expression, part by part in the order of time. Raises ServerError."""
        points, slow = MAX_POINTS, 0
        while start <= end:
            last = min(end, start + (points - 1) * step)
            try:
                yield self._query(expression, start, last, step)
            except _TooLargeError as error:
                asked = round((last - start) / step) + 1
                points, slow = asked // 2, slow + error.slow
                if points < 1 or slow >= _SLOW_TRIES:
                    raise ServerError(
                        f"{self._url}: {error}, for {asked} points of: {shortened(expression)}; "
                        "raise the server's --query.timeout or --query.max-samples, or --timeout"
                    ) from None
            else:
                start, slow = last + step, 0

    def _query(self, expression: str, start: float, end: float, step: float) -> list[TimeSeries]:
        form = {
            "query": expression,
            "start": f"{start:.3f}",
            "end": f"{end:.3f}",
            "step": f"{step:g}",
            "timeout": f"{self._timeout:.0f}s",
        }
        answer = _decoded(self._tried("POST", "/api/v1/query_range", form), _Answer)
        if answer is None or answer.data is None or answer.data.resultType != "matrix":
            text = answer.error if answer and answer.error else "not an answer of Prometheus' API"
            raise ServerError(f"{self._url}: {text}, to the query {shortened(expression)}")
        return answer.data.result

    def _tried(self, method: str, path: str, form: dict[str, str]) -> bytes:
        """The body of a good answer; what may pass is tried again."""
        for number in range(_TRIES):
            try:
                return self._request(method, path, form)
            except ServerError as error:
                if number == _TRIES - 1 or not error.may_pass:
                    raise
                time.sleep(_BACKOFF_SECONDS * 2**number)
        raise AssertionError

    def _request(self, method: str, path: str, form: dict[str, str]) -> bytes:
        began = time.monotonic()
        is_get = method == "GET"
        try:
            with self._session.request(
                method,
                f"{self._url}{path}",
                params=form if is_get else None,
                data=None if is_get else form,
                timeout=self._timeout * 1.1 + 1,  # the server has its own
                stream=True,
            ) as response:
                body = _limited_body(response)
        except requests.Timeout:
            raise _TooLargeError(f"no answer within {self._timeout:.0f} s", slow=True) from None
        except requests.RequestException as error:
            raise ServerError(f"{self._url}{path}: {_reason(error)}", may_pass=True) from None
        finally:
            self.cost.queries += 1
            self.cost.seconds += time.monotonic() - began
        self.cost.bytes += len(body)
        _check(response.status_code, body, f"{self._url}{path}")
        return body


_Shape = TypeVar("_Shape")


def _decoded(body: bytes, shape: type[_Shape]) -> _Shape | None:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError:
        return None


def shortened(expression: str) -> str:
    """An expression for an error message."""
    return expression if len(expression) <= 100 else f"{expression[:100]}…"


def _limited_body(response: requests.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_content(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise _TooLargeError(f"an answer over {MAX_ANSWER_BYTES >> 20} MiB")
    return b"".join(parts)


def _check(status: int, body: bytes, place: str) -> None:
    """Raise for an answer that is none: _TooLargeError where a shorter query may pass."""
    if status == 200:
        if not body.rstrip().endswith(b"}"):
            raise ServerError(f"{place}: the answer broke off after {len(body)} bytes", True)
        return
    answer = _decoded(body, _Answer)
    text = answer.error if answer and answer.error else body[:200].decode(errors="replace").strip()
    text = text or "an empty answer"
    if any(words in text.lower() for words in (*_TOO_LARGE, *_TOO_SLOW)) or status in (413, 504):
        slow = status == 504 or any(words in text for words in _TOO_SLOW)
        raise _TooLargeError(f"HTTP {status}: {' '.join(text.split())}", slow)
    message = f"{place}: HTTP {status}: {' '.join(text.split())}"
    if status in (429, 500, 502, 503):
        raise ServerError(message, may_pass=True)
    hint = "; the URL is that of Prometheus, without /api" if status == 404 else ""
    raise ServerError(f"{message}{hint}")


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the answer broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection; check the URL and that Prometheus runs"
    return " ".join(str(error).split())
