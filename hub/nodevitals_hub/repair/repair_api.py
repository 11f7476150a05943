"""Creates, reads and deletes the objects of repairs at a Kubernetes API server.

In: an object and its Target; the configuration of this pod, or KUBECONFIG. Out: objects as the API
server returns them, or ApiRefusal with one line. Needs the extra `hub`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import httpx2
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import (
    GenericGlobalResource,
    GenericNamespacedResource,
    create_api_info,
)
from lightkube.types import CascadeType

from nodevitals.checks.deadlines import within
from nodevitals_hub.repair.repair_records import ApiRefusal, Target, uid_of
from nodevitals_hub.triggers.resource_objects import GARBAGE, UNREACHABLE

REQUEST_SECONDS = 15.0
Value = TypeVar("Value")


class RepairApi:
    """A client of one API server."""

    def __init__(self) -> None:
        """Raises ApiRefusal for an unusable configuration."""
        try:
            self._client = AsyncClient(
                timeout=httpx2.Timeout(REQUEST_SECONDS), field_manager="nodevitals-hub"
            )
        except (ConfigError, OSError, *GARBAGE) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise ApiRefusal(0, f"kubeconfig: {text}") from None
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line per request

    async def create(self, target: Target, document: dict[str, Any]) -> str:
        """Create an object. Returns its uid. Raises ApiRefusal."""
        made = _resource(target).from_dict(document)
        created = await self._ask(self._client.create(made), f"create {target}")
        return _uid(created, target)

    async def get(self, target: Target) -> Mapping[str, Any] | None:
        """An object; None where there is none. Raises ApiRefusal."""
        kind = _resource(target)
        namespace = target.namespace or None
        asked = self._client.get(kind, target.name, namespace=namespace)
        try:
            document = await self._ask(asked, f"get {target}")
        except ApiRefusal as refusal:
            if refusal.code == 404:
                return None
            raise
        _uid(document, target)
        made: Mapping[str, Any] = document
        return made

    async def delete(self, target: Target) -> None:
        """Start to delete an object; do nothing where there is none. Raises ApiRefusal."""
        asked = self._client.delete(
            _resource(target),
            target.name,
            namespace=target.namespace or None,
            cascade=CascadeType.BACKGROUND,  # the default keeps the pods of a Job
        )
        try:
            await self._ask(asked, f"delete {target}")
        except ApiRefusal as refusal:
            if refusal.code != 404:
                raise

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, asked: Awaitable[Value], what: str) -> Value:
        try:
            return await within(asked, REQUEST_SECONDS)
        except TimeoutError:
            raise ApiRefusal(0, f"{what}: no answer in time") from None
        except ApiError as error:
            code = int(error.status.code or 0)
            text = " ".join(str(error.status.message or "failed").split())[:300]
            raise ApiRefusal(code, f"{what}: {code} {text}") from None
        except UNREACHABLE as error:
            text = " ".join(str(error).split())[:200] or type(error).__name__
            raise ApiRefusal(0, f"{what}: {text}") from None
        except GARBAGE as error:
            text = " ".join(str(error).split())[:200]
            raise ApiRefusal(0, f"{what}: not understood: {text}") from None


def _uid(document: Any, target: Target) -> str:
    if not isinstance(document, Mapping) or not isinstance(document.get("metadata"), Mapping):
        raise ApiRefusal(0, f"{target}: the answer is no object")
    return uid_of(document)


def _resource(target: Target) -> Any:
    """A class for lightkube. It is not registered: another module may have registered the kind."""
    group, _, version = target.api_version.rpartition("/")
    info = create_api_info(group, version, target.kind, target.resource)
    base = GenericNamespacedResource if target.namespace else GenericGlobalResource
    return type(target.kind, (base,), {"_api_info": info})
