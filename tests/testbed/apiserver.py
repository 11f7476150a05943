"""An API server over HTTPS for one probe: tokens, RBAC, field selector, pages, and every failure.

It also answers as a kubelet's HTTPS port (`/pods`). What it knows are the pods of
`testbed.kubelet`; the JSON has what a real server sends beside what the probe reads.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme

from testbed.kubelet import Pod

# The rules of the chart's ClusterRole.
ROLE = {("list", "pods"), ("get", "nodes")}
KUBELET_ROLE = {("get", "nodes/proxy")}


def pod_object(pod: Pod) -> dict[str, Any]:
    """A pod as the API server returns it."""
    last = {"terminated": {"containerID": f"containerd://{pod.last_container_id}", "exitCode": 137}}
    container = {
        "name": pod.container,
        "containerID": f"containerd://{pod.container_id}",
        "ready": True,
        "restartCount": 0,
        "lastState": last if pod.last_container_id else {},
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "labels": pod.labels or None,
        "annotations": pod.annotations or None,
        "ownerReferences": [{"kind": "Job", "name": "a-job"}],
    }
    return {
        "metadata": metadata,
        "spec": {"nodeName": pod.node, "containers": [{"name": pod.container}]},
        "status": {"phase": pod.phase, "containerStatuses": [container], "podIP": "10.1.1.1"},
    }


class ApiServer:
    """The server; tests change its fields. `status` (with `headers`) is the answer to every
    request while it is set, `behaviour` is one of `trickle`, `hang`, `huge`, `garbage`, `cut`.
    """

    def __init__(self, folder: Path, pods: list[Pod], host: str = "127.0.0.1") -> None:
        self.pods = pods
        self.conditions = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "Unknown"}
        self.unschedulable = False
        self.role = set(ROLE)
        self.page_size = 0
        self.expire = 0
        """Number of next pages to answer with 410."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.behaviour = ""
        self.requests: list[str] = []
        self.token_file, self.ca_file = folder / "token", folder / "ca.crt"
        self.rotate("first-token")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(host).configure_cert(context)
        self._ended = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._http.server_address[1]}"

    @property
    def settings(self) -> dict[str, Any]:
        """For the probe."""
        files = {"ca_file": str(self.ca_file), "token_file": str(self.token_file)}
        return {"api_url": self.url, "source": "api", **files}

    def rotate(self, token: str) -> None:
        """Accept another token from now on, and only that; write it for the probe."""
        self.token = token
        self.token_file.write_text(token + "\n")

    def __enter__(self) -> ApiServer:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests.append(self.path)
                with contextlib.suppress(OSError):
                    server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        if self.behaviour == "hang":
            self._ended.wait(600)
        status, document = self._document(request)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        request.send_response(status)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body) + (self.behaviour == "cut")))
        request.end_headers()
        if self.behaviour == "trickle":
            for one in body[:600]:
                request.wfile.write(bytes([one]))
                if self._ended.wait(0.1):
                    return
        request.wfile.write(body)

    def _document(self, request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return 401, _status(401, "Unauthorized")
        if self.status:
            return self.status, _status(self.status, "as the test wants")
        if self.behaviour == "garbage":
            return 200, b'{"items": [{"metadata": 7}]}'
        if self.behaviour == "huge":
            return 200, b" " * (17 * 1024 * 1024)
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        verb, resource = {
            "/api/v1/pods": ("list", "pods"),
            "/pods": ("get", "nodes/proxy"),
        }.get(parts.path, ("get", "nodes"))
        if (verb, resource) not in self.role:
            text = f'{resource} is forbidden: User "system:serviceaccount:monitoring:nodevitals" '
            return 403, _status(403, f'{text}cannot {verb} resource "{resource}"')
        if resource == "nodes":
            return self._node(parts.path.rpartition("/")[2])
        if resource == "pods":
            return self._pods(query)
        return 200, _list([pod_object(pod) for pod in self.pods])

    def _node(self, name: str) -> tuple[int, Any]:
        if name != "node-7":
            return 404, _status(404, f'nodes "{name}" not found')
        conditions = [{"type": kind, "status": one} for kind, one in self.conditions.items()]
        spec = {"unschedulable": True} if self.unschedulable else {}
        return 200, {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions}}

    def _pods(self, query: dict[str, str]) -> tuple[int, Any]:
        field, _, node = query.get("fieldSelector", "").partition("=")
        assert field == "spec.nodeName"
        objects = [pod_object(pod) for pod in self.pods if pod.node == node]
        start = 0
        if "continue" in query:
            if "resourceVersion" in query:
                text = "specifying resource version is not allowed when using continue"
                return 400, _status(400, text)
            if self.expire:
                self.expire -= 1
                return 410, _status(410, "The provided continue parameter is too old")
            start = int(query["continue"])
        if not self.page_size:
            return 200, _list(objects)
        end = start + self.page_size
        return 200, _list(objects[start:end], str(end) if end < len(objects) else "")


def _list(items: list[Any], token: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": "4711", **({"continue": token} if token else {})}
    return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}
