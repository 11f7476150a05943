"""Prometheus' HTTP API: expressions in, series over time out, within the server's limits.

A query that the server refuses as too large is repeated in halves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

MAX_POINTS = 3_000
"""Points per series and query: it bounds the memory; Prometheus refuses more than 11,000."""
_SLOW_TRIES = 3
"""A query that takes too long is halved so often in a row."""
_RETRY = Retry(
    connect=2,
    read=False,  # it took too long: a shorter query may pass
    status=2,
    backoff_factor=1,
    status_forcelist=(429, 500, 502),
    allowed_methods=None,
    raise_on_status=False,
)
# Errors of Prometheus, Thanos and Mimir for a query that is too large; a shorter one may pass.
_TOO_LARGE = (
    *("maximum resolution", "too many samples", "limit", "exceeded maximum", "too large"),
    *("max-samples", "max_samples", "timed out", "timeout", "context deadline"),
)


class ServerError(Exception):
    """The server could not answer; the text is one line."""


class RefusedError(ServerError):
    """The server answered, but refused this query."""


class TimeSeries(msgspec.Struct):
    """One series of an answer."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class Cost(msgspec.Struct):
    """The load that a back-test caused so far; `seconds` is the time until the answers."""

    queries: int = 0
    seconds: float = 0.0


class _Matrix(msgspec.Struct):
    result: list[TimeSeries]


class _Answer(msgspec.Struct):
    status: str
    data: Any = None
    error: str = ""


class _TooLargeError(ServerError):
    """A shorter query may pass. `slow`: it took too long."""

    def __init__(self, message: str, slow: bool) -> None:
        super().__init__(message)
        self.slow = slow


class Server:
    """A Prometheus, or another server with its API."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=_RETRY))
        self.cost = Cost()

    def metric_names(self, start: float, end: float) -> set[str]:
        """The names of the metrics with samples in a span. Raises ServerError."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}"}
        names: set[str] = self._data("GET", "label/__name__/values", times, set[str])
        return names

    def query_range(
        self, expression: str, start: float, end: float, step: float
    ) -> Iterator[list[TimeSeries]]:
        """The series of an expression, part by part in the order of time. Raises ServerError."""
        points, slow = MAX_POINTS, 0
        form = {"query": expression, "step": f"{step:g}", "timeout": f"{self._timeout:.0f}s"}
        while start <= end:
            last = min(end, start + (points - 1) * step)
            times = {"start": f"{start:.3f}", "end": f"{last:.3f}"}
            try:
                yield self._data("POST", "query_range", {**form, **times}, _Matrix).result
            except _TooLargeError as error:
                asked = round((last - start) / step) + 1
                points, slow = asked // 2, slow + error.slow
                if points < 1 or slow >= _SLOW_TRIES:
                    raise RefusedError(
                        f"{error}, for {asked} points; raise the server's --query.timeout or "
                        "--query.max-samples, or --timeout"
                    ) from None
            else:
                start, slow = last + step, 0

    def _data(self, method: str, path: str, form: dict[str, str], shape: Any) -> Any:
        """The data of a good answer. Raises ServerError."""
        place = f"{self._url}/api/v1/{path}"
        began = time.monotonic()
        try:
            response = self._session.request(
                method,
                place,
                params=form if method == "GET" else None,
                data=form if method == "POST" else None,
                timeout=self._timeout * 1.1 + 1,  # the server has its own
            )
        except requests.Timeout:
            text = f"{place}: no answer within {self._timeout:.0f} s"
            raise _TooLargeError(text, slow=True) from None
        except requests.exceptions.ChunkedEncodingError:
            raise ServerError(f"{place}: the answer broke off") from None
        except requests.ConnectionError:
            text = "no connection; check the URL and that Prometheus runs"
            raise ServerError(f"{place}: {text}") from None
        except requests.RequestException as error:
            raise ServerError(f"{place}: {' '.join(str(error).split())}") from None
        finally:
            self.cost.queries += 1
            self.cost.seconds += time.monotonic() - began
        return _checked(response, place, shape)


def _checked(response: requests.Response, place: str, shape: Any) -> Any:
    """The data of an answer as a shape. Raises ServerError for an answer that is none."""
    status, text = response.status_code, response.text[:200]
    try:
        answer = msgspec.json.decode(response.content, type=_Answer)
        if status == 200 and answer.status == "success":
            return msgspec.convert(answer.data, shape)
        text = answer.error
    except msgspec.MsgspecError:
        if status == 200:
            raise ServerError(f"{place}: not an answer of Prometheus' API") from None
    message = f"{place}: HTTP {status}: {' '.join(text.split()) or 'an empty answer'}"
    if status in (413, 504) or any(words in text.lower() for words in _TOO_LARGE):
        raise _TooLargeError(message, slow=status in (503, 504))
    if status in (400, 422):
        raise RefusedError(message)
    hint = "; the URL is that of Prometheus, without /api" if status == 404 else ""
    raise ServerError(f"{message}{hint}")
