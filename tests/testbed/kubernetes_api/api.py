"""What the API server answers: an account with a role, kinds, lists in pages, watches.

In: requests. Out: answers. As in a real one, the account is checked before the role, and the role
before the path; handlers of a verb and a resource replace what all kinds have in common.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from testbed.kubernetes_api.answers import SUCCESS, Answer, Object, RefusedError, document, failure
from testbed.kubernetes_api.failures import WRITES
from testbed.kubernetes_api.store import Kind, Store, resource_of

_PATH = re.compile(
    r"/api(?:s/(?P<group>[a-z0-9.-]+))?/(?P<version>v[a-z0-9]+)"
    r"(?:/namespaces/(?P<namespace>[a-z0-9-]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[a-z]+))?)?"
)
ACCOUNT = "system:serviceaccount:monitoring:nodevitals"
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclass
class Call:
    """One request."""

    verb: str
    resource: str
    path: str
    query: dict[str, str]
    namespace: str = ""
    name: str = ""
    part: str = ""
    media: str = ""
    token: str = ""
    body: bytes = field(default=b"", repr=False)

    def document(self) -> Object:
        """What is sent."""
        try:
            sent = json.loads(self.body or b"{}")
        except ValueError:
            raise RefusedError(400, "the body is no JSON") from None
        assert isinstance(sent, dict)
        return sent


Handler = Callable[[Call], "Answer | Object"]


class Api(Store):
    """The answers to requests; tests change its fields."""

    def __init__(self, kinds: Iterable[Kind], role: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self.kinds = {one.resource: one for one in kinds}
        """What is installed."""
        self.role = set(role)
        """Verb and resource: `("create", "jobs.batch")`, `("patch", "nodes/status")`."""
        self.handlers: dict[tuple[str, str], Handler] = {}
        """By verb and resource."""
        self.paths: dict[str, str] = {}
        """Resources of paths that are none of a kind."""
        self.namespaces: set[str] = set()
        """Those that there are; none for all."""
        self.token = "a token of the test bed"
        self.requests: Counter[tuple[str, str]] = Counter()
        self.denied: list[tuple[str, str]] = []
        """What was asked for and is not in the role."""
        self.page_size = 0
        """The most objects per page, where it is less than a client's limit."""
        self.ended = threading.Event()

    def writes(self) -> int:
        """Number of requests that may change something."""
        return sum(count for (verb, _), count in self.requests.items() if verb in WRITES)

    def call_of(self, method: str, url: str, headers: Message, body: bytes) -> Call:
        """A request, by its verb and resource."""
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        call = Call(
            verb=_VERBS.get(method, "get"),
            resource=self.paths.get(parts.path, parts.path),
            path=parts.path,
            query=query,
            media=headers.get("Content-Type", ""),
            token=headers.get("Authorization", "").removeprefix("Bearer "),
            body=body,
        )
        found = _PATH.fullmatch(parts.path)
        if found is None or parts.path in self.paths:
            return call
        call.namespace, call.name = found["namespace"] or "", unquote(found["name"] or "")
        call.part = found["part"] or ""
        plural = f"{found['plural']}/{call.part}" if call.part else found["plural"]
        call.resource = resource_of(found["group"] or "", plural)
        if call.verb == "get" and not call.name:
            call.verb = "watch" if query.get("watch") in ("true", "1") else "list"
        return call

    def answer(self, call: Call) -> Answer:
        """Answer one request."""
        try:
            self._allow(call)
            handler = self.handlers.get((call.verb, call.resource), self._generic)
            found = handler(call)
        except RefusedError as refused:
            return document(refused.code, refused.document)
        if isinstance(found, Answer):
            return found
        return document(201 if call.verb == "create" else 200, found)

    def _allow(self, call: Call) -> None:
        if call.token != self.token:
            raise RefusedError(401, "Unauthorized")
        if (call.verb, call.resource) not in self.role:
            self.denied.append((call.verb, call.resource))
            plural, _, group = call.resource.partition(".")
            text = f'{call.resource} is forbidden: User "{ACCOUNT}" cannot {call.verb} resource '
            text += f'"{plural}" in API group "{group}"'
            raise RefusedError(403, text, name=call.name, kind=plural)

    def kind_of(self, call: Call) -> Kind:
        """The kind of a request; raises RefusedError."""
        kind = self.kinds.get(call.resource.partition("/")[0])
        if kind is None or not call.path.startswith(f"{kind.path}/"):
            raise RefusedError(404, "the server could not find the requested resource")
        if self.namespaces and call.namespace not in {*self.namespaces, ""}:
            raise RefusedError(404, f'namespaces "{call.namespace}" not found')
        return kind

    def _generic(self, call: Call) -> Answer | Object:
        """What all kinds have in common."""
        kind = self.kind_of(call)
        if call.verb == "list":
            return self.page(kind, call)
        if call.verb == "watch":
            return Answer(200, stream=self._watch(kind, call.namespace, call.query))
        if call.part not in ("", "status"):
            raise RefusedError(404, "the server could not find the requested resource")
        if call.verb == "create" and not call.part:
            return self.accept(kind, call.namespace, call.document())
        one = self.get(kind, call.namespace, call.name)
        if call.verb == "get":
            return one
        if call.verb == "patch":
            return self.patch(kind, one, call.media, call.document(), call.part)
        if call.verb == "delete" and not call.part:
            self.remove(kind, call.namespace, call.name)
            return SUCCESS
        raise RefusedError(405, f"{call.verb} of {call.resource}")

    def page(self, kind: Kind, call: Call) -> Object:
        """A list, or one page of it; raises RefusedError."""
        query = call.query
        if "continue" in query and "resourceVersion" in query:
            text = "specifying resource version is not allowed when using continue"
            raise RefusedError(400, text)
        items, start = self.list(kind, call.namespace, query), int(query.get("continue", 0))
        limits = [one for one in (int(query.get("limit", 0)), self.page_size) if one]
        end = start + min(limits, default=len(items))
        metadata = {"resourceVersion": str(self.version)}
        if end < len(items):
            metadata["continue"] = str(end)
        names = {"kind": f"{kind.name}List", "apiVersion": kind.version}
        return {**names, "metadata": metadata, "items": items[start:end]}

    def _watch(self, kind: Kind, namespace: str, query: dict[str, str]) -> Iterator[bytes]:
        """Changes since a version, each with a bookmark after it, until timeoutSeconds."""
        since = int(query.get("resourceVersion") or self.version)
        until = time.monotonic() + float(query.get("timeoutSeconds", 3600))
        if since < self.oldest:
            yield _event("ERROR", failure(410, "too old resource version"))
            return
        while not self.ended.is_set() and time.monotonic() < until:
            with self.changed:
                lines = [
                    _event(event, one)
                    for version, resource, event, one in self.history
                    if version > since
                    and resource == kind.resource
                    and namespace in ("", one["metadata"]["namespace"])
                ]
                since = self.version
            if query.get("allowWatchBookmarks") == "true":
                mark: dict[str, Any] = {"kind": kind.name, "apiVersion": kind.version}
                mark["metadata"] = {"resourceVersion": str(since)}
                lines.append(_event("BOOKMARK", mark))
            yield b"".join(lines)
            with self.changed:
                left = until - time.monotonic()
                self.changed.wait_for(
                    lambda: self.ended.is_set() or self.version > since,  # noqa: B023
                    max(0.0, left),
                )


def _event(kind: str, one: Object) -> bytes:
    return json.dumps({"type": kind, "object": one}).encode() + b"\n"
