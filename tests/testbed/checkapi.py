"""An API server for the custom resource Check: list, watch, get, the status subresource, and every
failure in turn.

Versions grow by one with each change. A write with an older resourceVersion, or the uid of another
object, is a conflict; a watch sends what changed since its version, and 410 where it
is forgotten.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema
import yaml

from testbed.node import ROOT

PREFIX = "/apis/nodevitals.io/v1alpha1/"
_formats = jsonschema.FormatChecker(formats=())


@_formats.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _status_schema() -> dict[str, Any]:
    """That of the CRD; the API server drops fields that it does not name."""
    crd = yaml.safe_load((ROOT / "helm/nodevitals/files/crds/checks.yaml").read_text())
    [version] = crd["spec"]["versions"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return {**status, "additionalProperties": False}


STATUS = jsonschema.Draft4Validator(_status_schema(), format_checker=_formats)
# What it permits; the role of the chart is the same.
ROLE = {("get", "checks"), ("list", "checks"), ("watch", "checks"), ("patch", "checks/status")}


class CheckApi:
    """The server; tests change its fields. `fail` is the status of each answer while it is set, for
    the verbs in `failing`, or `garbage`, or `hang`; `deaf` watches send nothing and never end.

    A status that the CRD's schema does not allow is refused, and listed in `invalid`.
    """

    def __init__(self, folder: Path) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.oldest = 0
        """Versions before are forgotten."""
        self.fail: int | str = 0
        self.failing = {"list", "watch", "get", "patch"}
        self.headers: dict[str, str] = {}
        self.stuck: dict[str, str] = {}
        """Names of resources whose patches get no answer (`hang`), or one that comes byte by byte
        and never ends (`trickle`)."""
        self.deaf = False
        self.conflicts = 0
        """Number of next patches that find a newer version."""
        self.requests: list[str] = []
        self.failures = 0
        """Number of requests that failed as the test wants."""
        self.invalid: list[str] = []
        self.changed = threading.Condition(threading.RLock())
        self._ended = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.kubeconfig = folder / "kubeconfig"
        url = f"http://127.0.0.1:{self._http.server_port}"
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "clusters": [{"name": "c", "cluster": {"server": url}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "current-context": "c",
                }
            )
        )

    def __enter__(self) -> CheckApi:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def set(
        self,
        fail: int | str = 0,
        *failing: str,
        deaf: bool = False,
    ) -> None:
        """Fail so, for these verbs or all; what was set before ends."""
        with self.changed:
            self.failing = set(failing) or {"list", "watch", "get", "patch"}
            self.fail, self.deaf, self.oldest, self.conflicts = fail, deaf, 0, 0
            self.stuck = {}
            self.changed.notify_all()

    def names(self) -> list[str]:
        """The names of all resources."""
        with self.changed:
            return [key.partition("/")[2] for key in self.objects]

    # ---- what kubectl does -----------------------------------------------------------------------

    def create(self, name: str, spec: Any) -> str:
        """Create a resource in the namespace `ops`; returns its uid."""
        with self.changed:
            identity = str(uuid.uuid4())
            metadata = {"name": name, "namespace": "ops", "uid": identity, "generation": 1}
            metadata["creationTimestamp"] = f"2026-01-01T00:00:00Z-{self.version:09d}"
            one = {"apiVersion": "nodevitals.io/v1alpha1", "kind": "Check", "spec": spec}
            self.objects[f"ops/{name}"] = {**one, "metadata": metadata}
            self._change("ADDED", self.objects[f"ops/{name}"])
            return identity

    def edit(self, name: str, spec: Any) -> None:
        """Replace the spec."""
        with self.changed:
            one = self.objects[f"ops/{name}"]
            one["spec"] = spec
            one["metadata"]["generation"] += 1
            self._change("MODIFIED", one)

    def delete(self, name: str) -> None:
        """Delete a resource."""
        with self.changed:
            self._change("DELETED", self.objects.pop(f"ops/{name}"))

    def status(self, name: str) -> dict[str, Any]:
        """The status of a resource."""
        with self.changed:
            return dict(self.objects[f"ops/{name}"].get("status") or {})

    def write_status(self, name: str, status: dict[str, Any]) -> None:
        """Write a status, as a user with that right does."""
        with self.changed:
            one = self.objects[f"ops/{name}"]
            one["status"] = status
            self._change("MODIFIED", one)

    def phases(self) -> list[str]:
        """The phases of all resources."""
        with self.changed:
            return [(one.get("status") or {}).get("phase", "") for one in self.objects.values()]

    def count(self, verb: str) -> int:
        """Number of requests with that verb."""
        return self.requests.count(verb)

    def _change(self, kind: str, one: dict[str, Any]) -> None:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, json.loads(json.dumps(one))))
        self.changed.notify_all()

    # ---- what a client asks ----------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    server.get(self)

            def do_PATCH(self) -> None:
                with contextlib.suppress(OSError):
                    body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                    if not server.fails(self, "patch") and not server.sticks(self):
                        reply(self, *server.patch(self.path, self.headers["Content-Type"], body))

            def log_message(self, *_: object) -> None:
                pass

        def reply(handler: BaseHTTPRequestHandler, code: int, document: Any) -> None:
            body = json.dumps(document).encode()
            handler.send_response(code)
            for name, value in server.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        self._reply = reply
        return Handler

    def fails(self, handler: BaseHTTPRequestHandler, verb: str) -> bool:
        """Count a request, and answer it where it is to fail."""
        self.requests.append(verb)
        fail = self.fail
        if not fail or verb not in self.failing:
            return False
        self.failures += 1
        if fail == "hang":
            handler.close_connection = True
            with self.changed:
                while self.fail == "hang" and not self._ended:
                    self.changed.wait(0.05)
        elif fail == "garbage":
            handler.close_connection = True
            handler.wfile.write(b'HTTP/1.0 200 OK\r\n\r\n{"items": 3, "metadata": [\xff')
        else:
            self._reply(handler, int(fail), failure(int(fail), "as the test wants"))
        return True

    def sticks(self, handler: BaseHTTPRequestHandler) -> bool:
        """Keep a patch waiting where it is to be stuck."""
        how = self.stuck.get(handler.path.partition("?")[0].split("/")[-2])
        if how is None:
            return False
        self.failures += 1
        handler.close_connection = True
        if how == "trickle":
            handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
        with self.changed:
            while not self._ended:
                self.changed.wait(0.05)
                if how == "trickle":
                    handler.wfile.write(b" ")  # fails once the client is gone
        return True

    def get(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a list, a watch or a get."""
        parts = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        words = parts.path.removeprefix(PREFIX).split("/")
        verb = "watch" if "watch" in query else "list" if words[-1] == "checks" else "get"
        if self.fails(handler, verb):
            return
        if (verb, "checks") not in ROLE:
            self._reply(handler, 403, failure(403, f"checks.nodevitals.io is forbidden: {verb}"))
        elif verb == "watch":
            self._watch(handler, int(query["resourceVersion"]), float(query["timeoutSeconds"]))
        elif verb == "get":
            with self.changed:
                found = self.objects.get(f"{words[1]}/{words[3]}")
                code, answer = (200, found) if found else (404, failure(404, "not found"))
                self._reply(handler, code, answer)
        else:
            self._list(handler, int(query.get("limit", 0)), int(query.get("continue", 0)))

    def _list(self, handler: BaseHTTPRequestHandler, limit: int, start: int) -> None:
        with self.changed:
            items = list(self.objects.values())
            end = start + limit if limit else len(items)
            metadata = {"resourceVersion": str(self.version)}
            if end < len(items):
                metadata["continue"] = str(end)
            document = {"kind": "CheckList", "metadata": metadata, "items": items[start:end]}
            self._reply(handler, 200, document)

    def _watch(self, handler: BaseHTTPRequestHandler, version: int, seconds: float) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        if version < self.oldest:
            gone = {"type": "ERROR", "object": failure(410, "too old resource version")}
            handler.wfile.write(json.dumps(gone).encode() + b"\n")
            return
        with self.changed:
            while not self._ended:
                if not self.deaf:
                    for number, kind, one in self.events:
                        if number > version:
                            line = json.dumps({"type": kind, "object": one}).encode() + b"\n"
                            handler.wfile.write(line)
                            version = number
                    mark = {"kind": "Check", "metadata": {"resourceVersion": str(version)}}
                    line = json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n"
                    handler.wfile.write(line)
                    handler.wfile.flush()
                if not self.changed.wait(None if self.deaf else seconds) and not self.deaf:
                    return

    def patch(self, path: str, kind: str, body: Any) -> tuple[int, Any]:
        """Merge a status into an object."""
        assert kind == "application/merge-patch+json"
        words = path.partition("?")[0].removeprefix(PREFIX).split("/")
        assert words[4] == "status"
        if ("patch", "checks/status") not in ROLE:
            return 403, failure(403, "checks.nodevitals.io is forbidden: patch")
        assert set(body) == {"metadata", "status"}
        with self.changed:
            one = self.objects.get(f"{words[1]}/{words[3]}")
            if one is None:
                return 404, failure(404, "not found")
            if self.conflicts:
                self.conflicts -= 1
                self._change("MODIFIED", one)
            for key in ("uid", "resourceVersion"):
                if body["metadata"][key] != one["metadata"][key]:
                    return 409, failure(409, f"the object has been modified: {key}")
            status = {**(one.get("status") or {}), **body["status"]}
            status = {key: value for key, value in status.items() if value is not None}
            wrong = [error.message for error in STATUS.iter_errors(status)]
            if wrong:
                self.invalid += wrong
                return 422, failure(422, "; ".join(wrong))
            one["status"] = status
            self._change("MODIFIED", one)
            return 200, one


def failure(code: int, message: str) -> dict[str, Any]:
    """A Status."""
    return {"kind": "Status", "status": "Failure", "message": message, "code": code}
