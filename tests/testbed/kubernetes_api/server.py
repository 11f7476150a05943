"""The API server: HTTP or HTTPS, one account with a role, kinds, failures.

In: a folder, the kinds that are installed and what the account may do. Out: a kubeconfig, and what
was asked and denied. As in a real one, the account is checked before the role, and the role before
the path; handlers of a verb and a resource replace what all kinds have in common.
"""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import trustme
import yaml

from testbed.kubernetes_api import failures
from testbed.kubernetes_api.answers import SUCCESS, Answer, Object, RefusedError, document, failure
from testbed.kubernetes_api.failures import AFTER, LATE, WRITES
from testbed.kubernetes_api.store import Kind, Store, resource_of

_PATH = re.compile(
    r"/api(?:s/(?P<group>[a-z0-9.-]+))?/(?P<version>v[a-z0-9]+)"
    r"(?:/namespaces/(?P<namespace>[a-z0-9-]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<part>[a-z]+))?)?"
)
ACCOUNT = "system:serviceaccount:monitoring:nodevitals"
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
Rights = set[tuple[str, str]]
"""Verb and resource: `("create", "jobs.batch")`, `("patch", "nodes/status")`."""


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


class KubernetesApi(Store):
    """The server; tests change its fields. Each failure is `trouble`, which `fail` sets."""

    def __init__(
        self,
        folder: Path,
        kinds: Iterable[Kind],
        role: Iterable[tuple[str, str]],
        tls_name: str = "",
    ) -> None:
        super().__init__()
        self.kinds = {one.resource: one for one in kinds}
        """What is installed."""
        self.role: Rights = set(role)
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
        self.retry_after = "1"
        """Of answers with 429."""
        self.trouble: Callable[[Call], str] = _none
        """How the answer to a request is wrong: a failure, or ''."""
        self.failures = 0
        """Number of requests that failed as the test wants."""
        self.hanging: Callable[[], object] = int
        """Called when a request begins to hang."""
        self.late: list[Call] = []
        """Requests that `deliver` executes."""
        self._healed, self.ended = threading.Event(), threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"{'https' if tls_name else 'http'}://127.0.0.1:{self._http.server_port}"
        self.ca_file = folder / "ca.crt"
        if tls_name:
            self._encrypt(tls_name)
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(self._kubeconfig())

    def _encrypt(self, name: str) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)

    def _kubeconfig(self) -> str:
        authority = {"certificate-authority": str(self.ca_file)}
        cluster = {"server": self.url, **(authority if self.url.startswith("https") else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "current-context": "c",
        }
        return yaml.safe_dump(config)

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        with self.changed:
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    # ---- what tests do ---------------------------------------------------------------------------

    def fail(
        self,
        how: int | str,
        *verbs: str,
        resource: str = "",
        names: Iterable[str] = (),
        times: int = 1_000_000,
    ) -> None:
        """Let requests fail, of these verbs, this resource and these names, or all; what failed
        before does not any more.
        """
        self.heal()
        found = failures.failing(str(how), verbs, resource, tuple(names), times)
        self.trouble = lambda call: found(call.verb, call.resource, call.name)

    def heal(self) -> None:
        """No request fails any more; those that hang end without an answer."""
        with self.lock:
            self.trouble = _none
            self._healed.set()
            self._healed = threading.Event()

    def deliver(self) -> list[int]:
        """Execute what was late, as a slow API server does: the codes, which no client reads."""
        with self.lock:
            late, self.late = self.late, []
            return [self._answer(one).code for one in late]

    def writes(self) -> int:
        """Number of requests that may change something."""
        return sum(count for (verb, _), count in self.requests.items() if verb in WRITES)

    # ---- the server ------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Connection(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a head and a body are two packets

            def _serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with contextlib.suppress(OSError):
                    api.serve(self, body)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Connection

    def _call(self, handler: BaseHTTPRequestHandler, body: bytes) -> Call:
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        head = handler.headers
        call = Call(
            verb=_VERBS.get(handler.command, "get"),
            resource=self.paths.get(parts.path, parts.path),
            path=parts.path,
            query=query,
            media=head.get("Content-Type", ""),
            token=head.get("Authorization", "").removeprefix("Bearer "),
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

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        call = self._call(handler, body)
        with self.lock:
            self.requests[call.verb, call.resource] += 1
            how = self.trouble(call)
            healed, self.failures = self._healed, self.failures + bool(how)
            if how == LATE:
                self.late.append(call)
            executed = not how or how.startswith(AFTER)
            answer: Answer | None = self._answer(call) if executed else None
            how = how.removeprefix(AFTER)
            if how:
                others = self.objects[call.resource.partition("/")[0]].values()
                answer = failures.wrong_answer(how, next(reversed(others), {}))
            if how == failures.HANG:
                self.hanging()
        if answer is None:
            failures.disturb(handler, how, healed, self.ended)
        else:
            self._send(handler, answer)

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        handler.send_response(answer.code)
        handler.send_header("Content-Type", answer.media)
        if answer.code == 429:
            handler.send_header("Retry-After", self.retry_after)
        if answer.stream is None:
            handler.send_header("Content-Length", str(len(answer.body)))
            handler.end_headers()
            handler.wfile.write(answer.body)
            return
        handler.close_connection = True
        handler.send_header("Connection", "close")
        handler.end_headers()
        for part in answer.stream:
            handler.wfile.write(part)
            handler.wfile.flush()

    def _answer(self, call: Call) -> Answer:
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


def _none(_: Call) -> str:
    return ""


def _event(kind: str, one: Object) -> bytes:
    return json.dumps({"type": kind, "object": one}).encode() + b"\n"
