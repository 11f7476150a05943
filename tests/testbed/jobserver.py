"""An API server for jobs of Volcano and the MPI operator, with their controllers and a kubelet.

Each list of the pods is one step of a scenario, so that nothing depends on time. A request that the
real server refuses is refused here: an unknown field of a job, another propagation of a deletion.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "a-token-of-the-test-bed"
# What it permits, with `jobs` for mpijobs too; the role of the chart is the same.
ROLE = {
    *(("create", "jobs"), ("get", "jobs"), ("delete", "jobs")),
    *(("list", "pods"), ("get", "pods/log")),
}
VERBS = {"POST": "create", "DELETE": "delete"}
FIELDS = {
    "Job": {
        *("schedulerName", "minAvailable", "tasks", "plugins", "queue", "maxRetry"),
        "ttlSecondsAfterFinished",
    },
    "MPIJob": {"slotsPerWorker", "runPolicy", "mpiReplicaSpecs"},
}
PATHS = {
    "/apis/batch.volcano.sh/v1alpha1/namespaces/tests/jobs": "Job",
    "/apis/kubeflow.org/v2beta1/namespaces/tests/mpijobs": "MPIJob",
}
PODS = "/api/v1/namespaces/tests/pods"
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}],
}
PENDING = {"phase": "Pending"}
GOOD = (
    {"launcher": PENDING, "worker": PENDING},
    {"launcher": RUNNING, "worker": RUNNING},
    {"launcher": SUCCEEDED, "worker": RUNNING},
)


def ended(status: int) -> dict[str, Any]:
    """The status of a failed pod."""
    terminated = {"terminated": {"exitCode": status, "reason": "Error"}}
    return {"phase": "Failed", "containerStatuses": [{"state": terminated}]}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    """The status of a pod whose container waits."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"state": state}]}


def unschedulable(message: str) -> dict[str, Any]:
    """The status of a pod without a node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"phase": "Pending", "conditions": [{**condition, "message": message}]}


class JobServer:
    """The server; tests change its fields."""

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []
        self.scenario: tuple[dict[str, Any], ...] = GOOD
        """The status of the pods of each role, by step; the last one lasts."""
        self.job_status: dict[str, Any] = {"state": {"phase": "Running"}}
        self.log: bytes = b""
        self.log_times = 1
        """How often the log is sent."""
        self.linger = 1
        """Requests for which a deleted job is still there."""
        self.faults: dict[str, list[object]] = {}
        """By `METHOD resource`: statuses, or `hang`, `cut`, `garbage`, for the next requests;
        `stored` creates the object and answers with 504."""
        self.requests: list[str] = []
        self._step = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.kubeconfig = folder / "kubeconfig"
        address = f"http://127.0.0.1:{self._http.server_address[1]}"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "c", "cluster": {"server": address}}],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

    def __enter__(self) -> JobServer:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a head and a body are two packets

            def _any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                with contextlib.suppress(OSError):
                    server.answer(self, body)

            do_GET = do_POST = do_DELETE = _any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        resource = _resource(parts.path)
        key = f"{request.command} {resource}"
        with self._lock:
            self.requests.append(key)
            queue = self.faults.get(key) or []
            fault = queue.pop(0) if queue else None
        verb = "list" if resource == "pods" else VERBS.get(request.command, "get")
        if (verb, resource) not in ROLE:
            fault = 403
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            fault = 401
        if fault == "hang":
            self._closed.wait(600)
            return
        if fault == "garbage":
            _send(request, 200, b'{"items": [{"metadata"')
        elif fault == "cut":
            request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
            request.close_connection = True
        elif isinstance(fault, int):
            _send(request, fault, _status(fault, f"as the test wants: {fault}"))
        elif resource == "pods/log":
            self._send_log(request)
        else:
            with self._lock:
                status, document = self._document(request.command, parts.path, query, body)
            _send(request, 504 if fault == "stored" else status, document)

    def _document(
        self, method: str, path: str, query: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        if path == PODS:
            label, _, name = query["labelSelector"].partition("=")
            assert label == "nodevitals.io/run"
            return 200, {"kind": "PodList", "metadata": {}, "items": list(self._pods(name))}
        if method == "POST" and path in PATHS:
            return self._create(PATHS[path], json.loads(body))
        folder, _, name = path.rpartition("/")
        assert folder in PATHS, path
        job = self.jobs.get(name)
        if job is None:
            return 404, _status(404, f'jobs "{name}" not found')
        if method == "DELETE":
            options = json.loads(body or b"{}")
            assert "Foreground" in (
                query.get("propagationPolicy"),
                options.get("propagationPolicy"),
            )
            job["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            self.deleted.append(name)
            return 200, {"kind": "Status", "status": "Success"}
        if "deletionTimestamp" in job["metadata"]:
            job["linger"] -= 1
            if job["linger"] < 0:
                del self.jobs[name]
                return 404, _status(404, f'jobs "{name}" not found')
        return 200, {**job, "status": self.job_status}

    def _create(self, kind: str, job: dict[str, Any]) -> tuple[int, Any]:
        name = job["metadata"]["name"]
        unknown = set(job["spec"]) - FIELDS[kind]
        if job["kind"] != kind or unknown:
            return 422, _status(422, f"{kind}.spec: unknown field {sorted(unknown)}")
        if name in self.jobs:
            return 409, _status(409, f'jobs "{name}" already exists')
        self.jobs[name] = {**copy.deepcopy(job), "linger": self.linger}
        self.created.append(job)
        self._step = 0
        return 201, job

    def _pods(self, name: str) -> Iterator[dict[str, Any]]:
        job = self.jobs.get(name)
        if job is None:
            return
        step = self.scenario[min(self._step, len(self.scenario) - 1)]
        self._step += 1
        for role, template, count in _templates(job):
            for number in range(count):
                if role not in step:
                    continue
                status = step.get(f"{role}-{number}", step[role])
                labels = template["metadata"]["labels"]
                metadata = {"name": f"{name}-{role}-{number}", "labels": labels}
                yield {
                    "metadata": metadata,
                    "spec": {"nodeName": f"gpu-{number}"},
                    "status": status,
                }

    def _send_log(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Content-Length", str(len(self.log) * self.log_times))
        request.end_headers()
        for _ in range(self.log_times):
            request.wfile.write(self.log)


def _templates(job: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    if job["kind"] == "Job":
        for task in job["spec"]["tasks"]:
            yield task["name"], task["template"], task["replicas"]
    else:
        for role, replica in job["spec"]["mpiReplicaSpecs"].items():
            yield role.lower(), replica["template"], replica["replicas"]


def _resource(path: str) -> str:
    if path.startswith(PODS):
        return "pods/log" if path.endswith("/log") else "pods"
    return "jobs"


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}


def _send(request: BaseHTTPRequestHandler, status: int, document: Any) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
