"""An API server for Helm's dry run against a server, which reads Secrets with `lookup`.

It answers what Helm asks before it prints a manifest: the version, the kinds of objects, whether
the server validates fields itself (OpenAPI v3), and Secrets.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import helm_python as helm
import yaml

from testbed.charts import CHART, NAMESPACE, Object, of_kind

# https://kubernetes.io/docs/concepts/overview/kubernetes-api/: groups, versions, kinds.
KINDS = {
    "v1": ["ConfigMap", "Secret", "Service", "ServiceAccount", "PersistentVolumeClaim"],
    "apps/v1": ["DaemonSet", "Deployment"],
    "rbac.authorization.k8s.io/v1": ["ClusterRole", "ClusterRoleBinding"],
}


class Cluster:
    """Secrets by name, and dry runs that see them."""

    def __init__(self, url: str, secrets: dict[str, Object]) -> None:
        self.secrets = secrets
        self._kubeconfig = yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": {"server": url}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "users": [{"name": "test", "user": {}}],
                "current-context": "test",
            }
        )

    def install(self, values: dict[str, Any]) -> list[Object]:
        """The objects that an installation makes; the cluster keeps the Secrets."""
        with helm.Config(kubeconfig_content=self._kubeconfig, namespace=NAMESPACE) as config:
            release = config.install(
                CHART, "nodevitals", values, namespace=NAMESPACE, dry_run="server"
            )
        objects = [one for one in yaml.safe_load_all(release["manifest"]) if one]
        for one in of_kind(objects, "Secret"):
            # Helm marks what it makes, and changes nothing without these marks.
            marks = {"release-name": "nodevitals", "release-namespace": NAMESPACE}
            annotations = one["metadata"].setdefault("annotations", {})
            annotations |= {f"meta.helm.sh/{key}": value for key, value in marks.items()}
            self.secrets[one["metadata"]["name"]] = one
        return objects


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster without Secrets."""
    secrets: dict[str, Object] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(urlsplit(self.path).path, secrets)
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
            missing = {**status, "reason": "NotFound", "code": 404}
            body = json.dumps(missing if answer is None else answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Cluster(f"http://127.0.0.1:{server.server_port}", secrets)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(path: str, secrets: dict[str, Object]) -> Any:
    """The body of an answer; None for 404."""
    groups = {_path(version): version for version in KINDS}
    if path == "/version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "groups": [_group(v) for v in KINDS if "/" in v]}
    if path == "/openapi/v3":
        return {"paths": {g[1:]: {"serverRelativeURL": f"/openapi/v3{g}"} for g in groups}}
    if path.startswith("/openapi/v3/"):
        return _openapi(groups[path.removeprefix("/openapi/v3")])
    if path in groups:
        return {
            "kind": "APIResourceList",
            "groupVersion": groups[path],
            "resources": [_resource(kind) for kind in KINDS[groups[path]]],
        }
    folder, _, name = path.rpartition("/")
    return secrets.get(name) if folder.endswith("/secrets") else None


def _path(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _group(version: str) -> dict[str, Any]:
    name, _, number = version.partition("/")
    one = {"groupVersion": version, "version": number}
    return {"name": name, "versions": [one], "preferredVersion": one}


def _resource(kind: str) -> dict[str, Any]:
    return {
        "name": f"{kind.lower()}s",
        "singularName": kind.lower(),
        "namespaced": not kind.startswith("Cluster"),
        "kind": kind,
        "verbs": ["get", "list", "patch", "create"],
    }


def _openapi(version: str) -> dict[str, Any]:
    """A document that says only that each kind can be patched with `fieldValidation`."""
    group, _, number = version.rpartition("/")
    parameters = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {}
    for kind in KINDS[version]:
        names = {"group": group, "version": number, "kind": kind}
        patch = {"parameters": parameters, "x-kubernetes-group-version-kind": names}
        paths[f"{_path(version)}/{kind.lower()}s/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "test", "version": "1"}, "paths": paths}
