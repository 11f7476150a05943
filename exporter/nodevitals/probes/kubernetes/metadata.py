"""Reads the pods of this node and the node itself, from the API server or from the kubelet.

The agent's role needs `list` of pods and `get` of nodes; for the kubelet `get` of nodes/proxy, or
of nodes/pods since Kubernetes 1.33 (KEP-2862).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote, urlencode

from nodevitals.probe import ProbeError
from nodevitals.probes.kubernetes.https import GoneError, Server, get
from nodevitals.probes.kubernetes.kubelet import CallError
from nodevitals.probes.kubernetes.pods import KnownNode, Pod, parse_node, parse_pods
from nodevitals.probes.kubernetes.settings import KubernetesSettings

T = TypeVar("T")
PAGE_PODS = 500
MAX_PAGES = 20
RESTARTS = 2


def api_server(settings: KubernetesSettings) -> Server | None:
    """The API server; None where the agent is no pod and none is configured."""
    url = settings.api_url
    if url is None:
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        if not host:
            return None
    return Server(url, settings.token_file, settings.ca_file, "API server")


def kubelet_server(settings: KubernetesSettings) -> Server:
    """The kubelet's HTTPS port."""
    host = os.environ.get("HOST_IP") or "127.0.0.1"
    url = settings.kubelet_url or f"https://{f'[{host}]' if ':' in host else host}:10250"
    ca_file = settings.kubelet_ca_file or settings.ca_file
    return Server(url, settings.token_file, ca_file if settings.kubelet_verify else None, "kubelet")


def source_of(settings: KubernetesSettings, api: Server | None) -> str:
    """`api`, `kubelet` or `none`. Raises ProbeError for `api` without an API server."""
    if settings.source == "auto":
        return "api" if api is not None and os.path.exists(api.token_file) else "none"
    if settings.source == "api" and api is None:
        text = "the agent is not in a pod: set api_url, ca_file and token_file, or source: none"
        raise ProbeError("no_api", text)
    return settings.source


def read_node(server: Server, name: str, seconds: float) -> KnownNode:
    """The node. Raises ProbeError."""
    path = f"/api/v1/nodes/{quote(name, safe='')}?resourceVersion=0"
    return _parsed(get(server, path, seconds, "get of nodes"), parse_node, path)


def read_pods_of_kubelet(server: Server, seconds: float) -> list[Pod]:
    """The pods that the kubelet runs. Raises ProbeError."""
    body = get(server, "/pods", seconds, "get of nodes/proxy (or of nodes/pods)")
    return _parsed(body, parse_pods, "/pods").items or []


def read_pods(server: Server, node: str, seconds: float) -> list[Pod]:
    """The pods of the node, page by page; from the start again where the list expires meanwhile.
    Raises ProbeError.
    """
    deadline = time.monotonic() + seconds
    for _ in range(RESTARTS + 1):
        try:
            return _read_pages(server, node, deadline)
        except GoneError as error:
            gone = str(error)
    raise CallError("error", "api", f"{gone}: {RESTARTS + 1} times")


def _read_pages(server: Server, node: str, deadline: float) -> list[Pod]:
    selector = {"fieldSelector": f"spec.nodeName={node}", "limit": PAGE_PODS}
    found: list[Pod] = []
    token = ""
    for _ in range(MAX_PAGES):
        # From the API server's cache, not from etcd; a next page must not name a version.
        query = {**selector, "continue": token} if token else {**selector, "resourceVersion": 0}
        path = f"/api/v1/pods?{urlencode(query)}"
        left = max(0.01, deadline - time.monotonic())
        page = _parsed(get(server, path, left, "list of pods"), parse_pods, "/api/v1/pods")
        found += page.items or []
        token = page.metadata.continue_ if page.metadata else ""
        if not token:
            return found
    raise CallError("error", "too_large", f"/api/v1/pods: over {MAX_PAGES} pages of {PAGE_PODS}")


def _parsed(body: bytes, parse: Callable[[bytes], T], path: str) -> T:
    try:
        return parse(body)
    except ValueError as error:
        raise CallError("error", "garbage", f"GET {path}: {str(error)[:200]}") from None
