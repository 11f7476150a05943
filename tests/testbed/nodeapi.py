"""An API server for nodes, their pods, evictions and events, and every failure in turn.

It keeps what Kubernetes keeps: a merge patch with an older resourceVersion is a conflict, the
status is a subresource, an eviction that a PodDisruptionBudget forbids is refused with 429, an
object that exists is not created again, and an account may do what its role says.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

TOKEN = "the hub's account"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
# Verb and resource; what the chart gives the hub where it takes nodes out of service.
ROLE = {
    ("get", "nodes"),
    ("list", "nodes"),
    ("patch", "nodes"),
    ("patch", "nodes/status"),
    ("list", "pods"),
    ("create", "pods/eviction"),
    ("create", "events"),
}
_PATHS = (
    (re.compile(r"/api/v1/nodes"), "nodes"),
    (re.compile(r"/api/v1/nodes/([a-z0-9.-]+)"), "nodes"),
    (re.compile(r"/api/v1/nodes/([a-z0-9.-]+)/status"), "nodes/status"),
    (re.compile(r"/api/v1/pods"), "pods"),
    (re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/pods/([a-z0-9.-]+)/eviction"), "pods/eviction"),
    (re.compile(r"/api/v1/namespaces/([a-z0-9-]+)/events"), "events"),
)
_VERBS = {"GET": "get", "PATCH": "patch", "POST": "create"}
_WRITES = ("patch", "create", "put", "delete")


TROUBLES = (
    *("401", "403", "404", "409", "410", "422", "429", "500", "503"),
    *("reset_before", "reset_after", "garbage", "html", "html_404", "empty", "null"),
    *("other_kind", "other_node", "other_shape"),
)
SILENT = ("silent_before", "silent_after")
"""No answer before `released`; `silent` is called."""
EXECUTED_BEFORE = ("reset_after", "silent_after")
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class NodeApi:
    """The server; tests change its fields. `fail` is the status of each answer while it is set, for
    the resources in `failing`; `hang` seconds pass before each answer; `lost` answers are not sent
    although the request was executed.
    """

    def __init__(self, folder: Path, nodes: list[str]) -> None:
        self.lock = threading.RLock()
        self.version = 100
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.protected: set[str] = set()
        """Pods that a PodDisruptionBudget keeps."""
        self.events: dict[str, dict[str, Any]] = {}
        self.role = set(ROLE)
        self.fail = 0
        self.failing: set[str] = set()
        self.hang = 0.0
        self.lost = 0
        """Number of next writes whose answer is not sent."""
        self.trouble: Callable[[str, str], str] = lambda _verb, _resource: ""
        """How the answer to a request is wrong: a name of TROUBLES, or ''."""
        self.silent: Callable[[], object] = lambda: None
        self.released = threading.Event()
        self.cordons: list[tuple[str, bool]] = []
        """Each change of a node's spec.unschedulable by a request."""
        self.withheld = 0
        """Number of next writes that are neither executed nor answered before `deliver`."""
        self._late: list[tuple[BaseHTTPRequestHandler, bytes]] = []
        self.conflicts = 0
        """Number of next patches before which another client changes the node."""
        self.requests: Counter[tuple[str, str]] = Counter()
        self.denied: list[tuple[str, str]] = []
        """What was asked for and is not in the role."""
        for name in nodes:
            self.add(name)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(self._kubeconfig()))

    def _kubeconfig(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._http.server_port}"
        return {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "current-context": "c",
        }

    def __enter__(self) -> NodeApi:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()

    # ---- what kubectl does -----------------------------------------------------------------------

    def add(self, name: str) -> None:
        """Add a node."""
        with self.lock:
            self.version += 1
            self.nodes[name] = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {"site/own": "x"}},
                "spec": {"taints": [{"key": "site/own", "effect": "NoExecute"}]},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
            self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """As a person with kubectl."""
        with self.lock:
            spec = self.nodes[name]["spec"]
            spec.pop("unschedulable", None)
            if cordoned:
                spec["unschedulable"] = True
            self._changed(self.nodes[name])

    def mark(self, name: str, identity: str) -> None:
        """A cordon with a mark of ours, as another hub or an old manifest makes it."""
        with self.lock:
            metadata = self.nodes[name]["metadata"]
            metadata["annotations"]["nodevitals.io/isolation"] = identity
            metadata.setdefault("labels", {})["nodevitals.io/isolation"] = identity
            self.cordon(name)

    def unmark(self, name: str) -> None:
        """A person removes our mark; the cordon stays."""
        with self.lock:
            self.nodes[name]["metadata"]["annotations"].pop("nodevitals.io/isolation", None)
            self._changed(self.nodes[name])

    def pod(self, name: str, node: str, owner: str = "Job", **more: Any) -> None:
        """Add a pod of a controller of this kind; of none with ''."""
        owners = [{"kind": owner, "name": "x", "controller": True}] if owner else []
        metadata = {"name": name, "namespace": "train", "ownerReferences": owners}
        with self.lock:
            self.pods.append(
                {
                    "metadata": {**metadata, **more},
                    "spec": {"nodeName": node},
                    "status": {"phase": "Running"},
                }
            )

    def cordoned(self) -> list[str]:
        """The nodes that take no new pods."""
        with self.lock:
            return sorted(n for n, one in self.nodes.items() if one["spec"].get("unschedulable"))

    def annotations(self, name: str) -> dict[str, str]:
        """The annotations of a node."""
        with self.lock:
            return dict(self.nodes[name]["metadata"]["annotations"])

    def writes(self) -> int:
        """Number of requests that may change something."""
        with self.lock:
            return sum(count for (verb, _), count in self.requests.items() if verb in _WRITES)

    def deliver(self) -> list[int]:
        """Execute what was withheld, as a slow API server does: the statuses, which none reads."""
        with self.lock:
            late, self._late = self._late, []
            return [self._answer(*one)[0] for one in late]

    def taints(self, name: str) -> list[str]:
        """The keys of a node's taints."""
        with self.lock:
            return [one["key"] for one in self.nodes[name]["spec"].get("taints") or []]

    def condition(self, name: str, kind: str) -> str:
        """The status of a condition; '' where there is none."""
        with self.lock:
            conditions = self.nodes[name]["status"]["conditions"]
            return next((one["status"] for one in conditions if one["type"] == kind), "")

    # ---- the server ------------------------------------------------------------------------------

    def _changed(self, node: dict[str, Any]) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else b""
                with contextlib.suppress(ConnectionError):
                    api.serve(self, body)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def serve(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        time.sleep(self.hang)
        with self.lock:
            if self.withheld > 0 and handler.command != "GET":
                self.withheld -= 1
                self._late.append((handler, body))
                handler.close_connection = True
                handler.connection.close()
                return
            trouble = self._trouble_of(handler)
            if trouble in EXECUTED_BEFORE:
                self._answer(handler, body)
            if trouble in SILENT:
                self.silent()
            elif trouble:
                answer = self._wrong(trouble)
            else:
                code, document = self._answer(handler, body)
        if trouble in SILENT:
            self.released.wait(30)
            handler.close_connection = True
            return
        if trouble:
            send_wrong(handler, *answer)
            return
        with self.lock:
            lost = self.lost > 0 and handler.command != "GET" and code < 300
            self.lost -= lost
        if lost:
            handler.close_connection = True
            handler.connection.close()
            return
        data = json.dumps(document).encode()
        handler.send_response(code)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _trouble_of(self, handler: BaseHTTPRequestHandler) -> str:
        path = urlsplit(handler.path).path
        known = [(name, m) for p, name in _PATHS if (m := p.fullmatch(path))]
        if not known:  # objects of another API: a subclass answers
            return ""
        [(resource, match)] = known
        verb = _VERBS.get(handler.command, handler.command.lower())
        verb = "list" if verb == "get" and not match.groups() else verb
        found = self.trouble(verb, resource)
        if found:
            self.requests[verb, resource] += 1
        return found

    def _wrong(self, trouble: str) -> tuple[int, str, bytes]:
        """Status, type and body; a status of 0 for no answer."""
        if trouble.isdigit():
            code, document = failure(int(trouble), "as the test wants")
            return code, "application/json", json.dumps(document).encode()
        other = {"kind": "Node", "apiVersion": "v1", **next(reversed(self.nodes.values()))}
        broken = {**other, "metadata": other["metadata"] | {"annotations": "x"}, "spec": "x"}
        return {
            "reset_before": (0, "", b""),
            "reset_after": (0, "", b""),
            "garbage": (200, "application/json", b'{"kind": "Node", "meta'),
            "html": (200, "text/html", b"<html>Sign in</html>"),
            "html_404": (404, "text/html", b"<html>not here</html>"),
            "empty": (200, "application/json", b""),
            "null": (200, "application/json", b"null"),
            "other_kind": (200, "application/json", json.dumps(STATUS).encode()),
            "other_node": (200, "application/json", json.dumps(other).encode()),
            "other_shape": (200, "application/json", json.dumps(broken).encode()),
        }[trouble]

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        parts = urlsplit(handler.path)
        found = [(resource, m) for p, resource in _PATHS if (m := p.fullmatch(parts.path))]
        if not found:
            return failure(404, f"no such path: {parts.path}")
        [(resource, match)] = found
        verb = _VERBS.get(handler.command, handler.command.lower())
        verb = "list" if verb == "get" and not match.groups() else verb
        self.requests[verb, resource] += 1
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            return failure(401, "Unauthorized")
        if (verb, resource) not in self.role:
            self.denied.append((verb, resource))
            return failure(403, f"cannot {verb} resource {resource}")
        if self.fail and (not self.failing or resource in self.failing):
            return failure(self.fail, "as the test wants")
        if resource == "pods":
            return self._list_pods(parse_qs(parts.query))
        if resource == "pods/eviction":
            return self._evict(match[2], json.loads(body))
        if resource == "events":
            return self._add_event(match[1], json.loads(body))
        if verb == "list":
            return self._list_nodes(parse_qs(parts.query))
        node = self.nodes.get(match[1])
        if node is None:
            return missing("nodes", match[1])
        if verb == "get":
            return 200, node
        return self._patch(node, resource, handler.headers.get("Content-Type", ""), body)

    def _patch(
        self, node: dict[str, Any], resource: str, media: str, body: bytes
    ) -> tuple[int, Any]:
        patch = json.loads(body)
        if resource == "nodes/status":
            if media != STRATEGIC or set(patch) != {"status"}:
                return failure(415, f"{media}: {sorted(patch)}")
            conditions = {one["type"]: one for one in node["status"]["conditions"]}
            conditions |= {one["type"]: one for one in patch["status"]["conditions"]}
            node["status"]["conditions"] = list(conditions.values())
            self._changed(node)
            return 200, node
        if media != MERGE or not set(patch) <= {"metadata", "spec"}:
            return failure(415, f"{media}: {sorted(patch)}")
        if self.conflicts:
            self.conflicts -= 1
            self._changed(node)
        version = patch["metadata"].pop("resourceVersion", None)
        if version is None:
            return failure(422, "a patch without resourceVersion would lose another's change")
        if version != node["metadata"]["resourceVersion"]:
            return failure(409, "the object has been modified")
        was = bool(node["spec"].get("unschedulable"))
        _merge(node, patch)
        if bool(node["spec"].get("unschedulable")) != was:
            self.cordons.append((node["metadata"]["name"], not was))
        self._changed(node)
        return 200, node

    def _list_nodes(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        [label] = query.get("labelSelector", [""])
        if not label:
            return failure(400, "all nodes of the cluster")
        found = [one for one in self.nodes.values() if label in one["metadata"].get("labels", {})]
        items = [{key: one[key] for key in ("metadata", "spec", "status")} for one in found]
        return 200, {"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _list_pods(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        [selector] = query.get("fieldSelector", [""])
        name = selector.removeprefix("spec.nodeName=")
        if name == selector:
            return failure(400, "pods of all nodes")
        items = [one for one in self.pods if one["spec"]["nodeName"] == name]
        return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}

    def _evict(self, name: str, body: Any) -> tuple[int, Any]:
        if body.get("kind") not in ("Eviction", None) or body["metadata"]["name"] != name:
            return failure(400, "no eviction")
        found = [one for one in self.pods if one["metadata"]["name"] == name]
        if not found:
            return missing("pods", name)
        if name in self.protected:
            return failure(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        self.pods.remove(found[0])
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _add_event(self, namespace: str, event: dict[str, Any]) -> tuple[int, Any]:
        name = event["metadata"]["name"]
        if event["metadata"]["namespace"] != namespace:
            return failure(400, "another namespace")
        if name in self.events:
            return failure(409, f'events "{name}" already exists')
        self.events[name] = event
        return 201, event


def send_wrong(handler: BaseHTTPRequestHandler, code: int, media: str, data: bytes) -> None:
    """Send what is no good answer, or none."""
    if not code:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.connection.close()
        return
    handler.send_response(code)
    handler.send_header("Content-Type", media)
    handler.send_header("Content-Length", str(len(data)))
    if code == 429:
        handler.send_header("Retry-After", "3600")
    handler.end_headers()
    handler.wfile.write(data)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            own = target.setdefault(key, {})
            _merge(own, value)
        else:
            target[key] = value


def failure(code: int, message: str) -> tuple[int, Any]:
    """A Status of the API server."""
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return code, {**document, "message": message, "details": {}}


def missing(kind: str, name: str) -> tuple[int, Any]:
    """The failure for an object that is not there."""
    code, document = failure(404, f'{kind} "{name}" not found')
    return code, {**document, "reason": "NotFound", "details": {"name": name, "kind": kind}}
