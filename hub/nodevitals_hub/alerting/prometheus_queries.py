"""Queries to Prometheus and Alertmanager over HTTP.

In: an address, queries. Out: samples or alerts, or AskingError with one line without secrets.
Answers are bounded in time and size.
"""

from __future__ import annotations

import math
import ssl
from pathlib import Path
from typing import NamedTuple, TypeVar

import httpx
import msgspec

from nodevitals.checks.deadlines import within
from nodevitals_hub.records import Alert
from nodevitals_hub.settings.response import ServerSettings

SECONDS = 10.0
MAX_BYTES = 64 << 20
Decoded = TypeVar("Decoded")


class AskingError(Exception):
    """No usable answer; the text is the server and the reason, in one line."""


class Sample(NamedTuple):
    """One series of an instant query."""

    labels: dict[str, str]
    value: float
    """Never NaN: such series are left out."""
    time: float
    """Time of the evaluation, by Prometheus' clock."""


class _Vector(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: list[_Vector] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class _State(msgspec.Struct, frozen=True, rename="camel"):
    state: str = "active"
    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()


class ActiveAlert(msgspec.Struct, frozen=True, rename="camel"):
    """An alert that Alertmanager has, sent or not."""

    fingerprint: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: str = ""
    ends_at: str = ""
    status: _State = _State()

    def alert(self) -> Alert:
        """The alert as in a message."""
        return Alert(
            status="firing",
            fingerprint=self.fingerprint,
            labels=self.labels,
            annotations=self.annotations,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )


class Server:
    """One server. Files with secrets are read for each query, because they may be replaced."""

    def __init__(self, name: str, settings: ServerSettings) -> None:
        self._name, self._settings = name, settings
        self._client: httpx.AsyncClient | None = None

    async def query(self, expression: str) -> list[Sample]:
        """An instant query of Prometheus. Raises AskingError."""
        body = await self._get("/api/v1/query", {"query": expression})
        answer = self._decoded(body, _Answer)
        if answer.status != "success" or answer.data is None:
            raise AskingError(
                f"{self._name}: query refused: {' '.join(answer.error.split())[:200]}"
            )
        if answer.data.result_type != "vector":
            raise AskingError(f"{self._name}: not a vector: {answer.data.result_type[:40]}")
        samples = []
        for series in answer.data.result:
            try:
                value = float(series.value[1])
            except ValueError:
                raise AskingError(f"{self._name}: not a number: {series.value[1][:40]!r}") from None
            if not math.isnan(value):
                samples.append(Sample(series.metric, value, series.value[0]))
        return samples

    async def active_alerts(self) -> list[ActiveAlert]:
        """All alerts that Alertmanager has now, also silenced ones. Raises AskingError."""
        wanted = {"active": "true", "silenced": "true", "inhibited": "true"}
        body = await self._get("/api/v2/alerts", wanted)
        return self._decoded(body, list[ActiveAlert])

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _get(self, path: str, parameters: dict[str, str]) -> bytes:
        try:
            return await within(self._read(path, parameters), SECONDS)
        except TimeoutError:
            raise AskingError(f"{self._name}: no answer within {SECONDS:g} s") from None
        except OSError as error:
            what = error.filename or self._settings.url
            raise AskingError(f"{self._name}: {what}: {error.strerror or error}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise AskingError(f"{self._name}: {reason}") from None

    async def _read(self, path: str, parameters: dict[str, str]) -> bytes:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=self._context(), trust_env=False, timeout=SECONDS, follow_redirects=False
            )
        url = self._settings.url.rstrip("/") + path
        request = self._client.build_request("GET", url, params=parameters, headers=self._login())
        answer = await self._client.send(request, stream=True)
        try:
            if answer.status_code != 200:
                raise AskingError(f"{self._name}: HTTP {answer.status_code}")
            body = bytearray()
            async for data in answer.aiter_bytes():
                body += data
                if len(body) > MAX_BYTES:
                    raise AskingError(f"{self._name}: an answer of more than {MAX_BYTES} bytes")
            return bytes(body)
        finally:
            await answer.aclose()

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._settings.ca_file)

    def _login(self) -> dict[str, str]:
        settings = self._settings
        if settings.token_file:
            return {"authorization": f"Bearer {_secret(settings.token_file)}"}
        if settings.user and settings.password_file:
            login = httpx.BasicAuth(settings.user, _secret(settings.password_file))
            request = next(login.auth_flow(httpx.Request("GET", "http://x")))
            return {"authorization": request.headers["authorization"]}
        return {}

    def _decoded(self, body: bytes, kind: type[Decoded]) -> Decoded:
        try:
            return msgspec.json.decode(body, type=kind, strict=False)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            text = " ".join(str(error).split())[:200]
            raise AskingError(f"{self._name}: the answer is not understood: {text}") from None


def _secret(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()
