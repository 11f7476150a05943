"""An API server for nodes that has Jobs and a custom resource as well, by namespace and role.

It keeps what Kubernetes keeps: a name is given once, a label has a limited alphabet, a kind that is
not installed has no path. Tests write the status of objects, as their controllers do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.nodeapi import TOKEN, NodeApi, failure

NAMESPACE = "repairs"
JOBS = "jobs.batch"
REMEDIATIONS = "selfnoderemediations.self-node-remediation.medik8s.io"
REPAIR_ROLE = {("create", JOBS), ("get", JOBS)}
_PATH = re.compile(
    r"/apis/([a-z0-9.-]+)/(v[a-z0-9]+)/namespaces/([a-z0-9-]+)/([a-z]+)(?:/([a-z0-9.-]+))?"
)
_VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch", "PUT": "update"}
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


class RepairNodeApi(NodeApi):
    """The server; tests change its fields."""

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        super().__init__(folder, nodes)
        self.role |= REPAIR_ROLE | {("create", REMEDIATIONS), ("get", REMEDIATIONS)}
        self.role |= {("delete", REMEDIATIONS)}
        self.kinds = {JOBS: "Job", REMEDIATIONS: "SelfNodeRemediation"}
        """Kinds that are installed, by their resource."""
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        """By resource and name."""
        self.created: list[str] = []
        """The names of all that were created."""
        self.at_create: tuple[Callable[[], object], Callable[[], object]] = (int, int)
        """What happens directly before and after the next one is created."""

    def __enter__(self) -> RepairNodeApi:
        super().__enter__()
        return self

    def of_kind(self, resource: str) -> list[dict[str, Any]]:
        """The objects of a resource."""
        with self.lock:
            return [one for (kind, _), one in self.objects.items() if kind == resource]

    def say(self, resource: str, **status: Any) -> None:
        """Write the status of all objects of a resource, as their controller does."""
        with self.lock:
            for one in self.of_kind(resource):
                one["status"] = status

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        found = _PATH.fullmatch(urlsplit(handler.path).path)
        if found is None:
            return super()._answer(handler, body)
        group, version, namespace, plural, name = found.groups()
        resource = f"{plural}.{group}"
        verb = {"GET": "get", "POST": "create", "DELETE": "delete"}.get(
            handler.command, handler.command
        )
        self.requests[verb, resource] += 1
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            return failure(401, "Unauthorized")
        if (verb, resource) not in self.role:
            self.denied.append((verb, resource))
            return failure(403, f"cannot {verb} resource {resource}")
        if self.fail and (not self.failing or resource in self.failing):
            return failure(self.fail, "as the test wants")
        if resource not in self.kinds:
            return failure(404, "the server could not find the requested resource")
        if verb == "get":
            one = self.objects.get((resource, name or ""))
            return (200, one) if one else failure(404, f'{resource} "{name}" not found')
        if verb == "delete":
            if self.objects.pop((resource, name or ""), None) is None:
                return failure(404, f'{resource} "{name}" not found')
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        before, after = self.at_create
        self.at_create = (int, int)
        before()
        answer = self._create(resource, f"{group}/{version}", namespace, json.loads(body))
        after()
        return answer

    def _create(
        self, resource: str, api_version: str, namespace: str, document: dict[str, Any]
    ) -> tuple[int, Any]:
        metadata = document["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if namespace != NAMESPACE or metadata["namespace"] != namespace:
            return failure(404, f'namespaces "{namespace}" not found')
        if (document["apiVersion"], document["kind"]) != (api_version, self.kinds[resource]):
            return failure(400, "another kind")
        if not _NAME.fullmatch(name) or not all(map(_LABEL.fullmatch, labels.values())):
            return failure(422, f"{name}: a name or a label is invalid")
        if (resource, name) in self.objects:
            return failure(409, f'{resource} "{name}" already exists')
        self.version += 1
        made = {**document, "metadata": {**metadata, "uid": f"uid-{self.version}"}}
        self.objects[resource, name] = made
        self.created.append(name)
        return 201, made
