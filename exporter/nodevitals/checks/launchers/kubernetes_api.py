"""Requests to a Kubernetes API server about jobs, their pods and logs, by lightkube.

In: the configuration of this pod, KUBECONFIG, or ~/.kube/config. Every failure is an ApiFaultError
with one line. Needs the extra `collectives`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Optional, TypeVar

from nodevitals.checks import CheckError
from nodevitals.checks.deadlines import within
from nodevitals.checks.processes import Excerpt

try:
    from httpx2 import HTTPError
    from lightkube import AsyncClient
    from lightkube.core.exceptions import ConfigError
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.resources.core_v1 import PodLog
    from lightkube.types import CascadeType
except ModuleNotFoundError as error:
    text = f"the package {error.name} is missing: pip install 'nodevitals[collectives]'"
    raise CheckError(f"{text}, with Python 3.10 or later") from None

TRANSPORT_ERRORS: tuple[type[Exception], ...] = (HTTPError, OSError)
REQUEST_SECONDS = 15.0
LOG_SECONDS = 60.0
MAX_LOG_LINES = 200_000
TRANSIENT = (0, 429, 500, 502, 503, 504)
"""Codes after which a request is repeated; 0: no answer."""
NO_ANSWER = "no answer from the API server in time"
PLURALS = {"Job": "jobs", "MPIJob": "mpijobs"}
PodResource = create_namespaced_resource("", "v1", "Pod", "pods")
_WHAT = {
    401: "the token or certificate is not accepted: log in again",
    403: "not allowed: give this account the role",
    404: "not found",
    409: "exists already",
    410: "gone",
    422: "refused as invalid",
    429: "too many requests",
}
Value = TypeVar("Value")


class ApiFaultError(CheckError):
    """A request to the API server failed; `code` is the HTTP status, 0 without an answer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Jobs:
    """The jobs of one kind in one namespace."""

    def __init__(self, api_version: str, kind: str, namespace: str) -> None:
        group, _, version = api_version.partition("/")
        self._resource = create_namespaced_resource(group, version, kind, PLURALS[kind])
        self._what = f"{PLURALS[kind]}.{group}"
        self._namespace = namespace
        try:
            self._client = AsyncClient(namespace=namespace)
        except (ConfigError, OSError, ValueError, AssertionError) as error:
            text = f"kubeconfig: {' '.join(str(error).split()) or type(error).__name__}"
            raise ApiFaultError(0, text) from None

    async def create(self, document: dict[str, Any]) -> None:
        """Create a job."""
        await self._ask("create", self._client.create(self._resource.from_dict(document)))

    async def get(self, name: str) -> Optional[dict[str, Any]]:
        """A job; None where there is none."""
        try:
            return await self._ask("get", self._client.get(self._resource, name))
        except ApiFaultError as fault:
            if fault.code == 404:
                return None
            raise

    async def delete(self, name: str) -> None:
        """Start to delete a job, after its pods; do nothing where there is none."""
        asked = self._client.delete(self._resource, name, cascade=CascadeType.FOREGROUND)
        try:
            await self._ask("delete", asked)
        except ApiFaultError as fault:
            if fault.code != 404:
                raise

    async def pods(self, label: str, value: str) -> list[dict[str, Any]]:
        """The pods with this label."""

        async def listed() -> list[dict[str, Any]]:
            pods = self._client.list(PodResource, labels={label: value})
            return [pod async for pod in pods]

        return await self._ask("list", listed(), "pods")

    async def log(self, pod: str) -> str:
        """A pod's log; of a long one the beginning and the end."""
        excerpt = Excerpt()
        # AsyncClient.log would read the whole log into memory, or wait for the end of a line.
        inner: Any = self._client._client  # noqa: SLF001
        request = inner.prepare_request(
            "get", PodLog, name=pod, namespace=self._namespace, params={"tailLines": MAX_LOG_LINES}
        )

        async def read() -> None:
            response = await inner.send(inner.build_adapter_request(request), stream=True)
            try:
                if response.is_error:
                    await response.aread()
                    inner.raise_for_status(response)
                async for data in response.aiter_bytes(65536):
                    excerpt.add(data)
            finally:
                await response.aclose()

        try:
            await self._ask("get", read(), "pods/log", LOG_SECONDS)
        except ApiFaultError:
            if not excerpt.text():
                raise
        return excerpt.text()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(
        self, verb: str, asked: Awaitable[Value], what: str = "", seconds: Optional[float] = None
    ) -> Value:
        where = f"{verb} {what or self._what} in {self._namespace}"
        try:
            return await within(asked, seconds or REQUEST_SECONDS)
        except asyncio.TimeoutError:
            raise ApiFaultError(0, f"{where}: {NO_ANSWER}") from None
        except TRANSPORT_ERRORS as error:
            response: Any = getattr(error, "response", None)
            status: Any = getattr(error, "status", None)  # of an ApiError
            code = 0 if response is None else int(response.status_code)
            reason = (status and status.message) or str(error) or NO_ANSWER
            raise ApiFaultError(code, f"{where}: {_line(code, str(reason))}") from None
        except (ValueError, TypeError, AttributeError, KeyError, ConfigError) as error:
            raise ApiFaultError(
                0, f"{where}: the answer makes no sense: {_line(0, str(error))}"
            ) from None


async def apply(document: dict[str, Any]) -> str:
    """Create a job. Returns its kind, namespace and name. Raises CheckError."""
    metadata = document["metadata"]
    jobs = Jobs(document["apiVersion"], document["kind"], metadata["namespace"])
    try:
        await jobs.create(document)
    finally:
        await jobs.close()
    return f"{document['kind']} {metadata['namespace']}/{metadata['name']}"


def _line(code: int, text: str) -> str:
    words = " ".join(text.split())[:300]
    return f"{code} {_WHAT.get(code, 'failed')}: {words}" if code else words
