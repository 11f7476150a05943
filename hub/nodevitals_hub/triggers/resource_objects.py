"""The custom resource Check as the API server returns it.

In: objects of the API server. Out: a Resource; the errors that a request may raise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx2
import msgspec
from lightkube.config.client_adapter import ConnectionParams
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import create_namespaced_resource

from nodevitals_hub.triggers.resource_spec import ENDED, GROUP, KIND, PLURAL, VERSION

CheckResource = create_namespaced_resource(GROUP, VERSION, KIND, PLURAL)
UNREACHABLE = (httpx2.HTTPError, httpx2.StreamError, ConfigError, OSError)
# Errors that lightkube raises for an invalid answer.
GARBAGE = (ValueError, KeyError, TypeError, AttributeError)
MAX_RETRY_AFTER = 300.0
"""A longer Retry-After must not keep the hub from resources for a day."""


class Waits(NamedTuple):
    """Times of requests to the API server, in seconds."""

    request: float = 10.0
    first_retry: float = 1.0
    last_retry: float = 60.0
    watch_grace: float = 5.0
    """Time after `list_every` in which a watch must end."""

    def connection(self) -> ConnectionParams:
        """The parameters of a client."""
        return ConnectionParams(timeout=httpx2.Timeout(self.request))


class Resource(msgspec.Struct, frozen=True):
    """The fields of a resource that the hub reads."""

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created: str
    spec: Any
    status: dict[str, Any]

    @property
    def settled(self) -> bool:
        """Whether there is nothing to do until the generation changes; a check runs only once."""
        if self.status.get("phase") not in ENDED:
            return False
        return bool(self.status.get("checkId")) or (
            self.status.get("observedGeneration") == self.generation
        )


def resource_of(document: Any) -> Resource:
    """The Resource of an object of the API server. Raises one of GARBAGE."""
    metadata = document["metadata"]
    status = document.get("status")
    return Resource(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        generation=int(metadata.get("generation") or 1),
        created=str(metadata.get("creationTimestamp") or ""),
        spec=document.get("spec"),
        status=status if isinstance(status, dict) else {},
    )


def retry_after(error: ApiError) -> float:
    """The seconds that the API server asks to wait, within MAX_RETRY_AFTER, or 0."""
    text = error.response.headers.get("Retry-After", "") if error.response is not None else ""
    return min(float(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() else 0.0
