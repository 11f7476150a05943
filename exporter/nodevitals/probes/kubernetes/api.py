"""Reads the pods of this node and the node itself over HTTPS, from the API server or the kubelet.

The agent's role needs `list` of pods and `get` of nodes; for the kubelet `get` of nodes/proxy, or
of nodes/pods since Kubernetes 1.33 (KEP-2862). Each GET has a token, is bounded in time and in
bytes, and follows no redirect; a CallError contains what is missing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, Optional, TypeVar
from urllib.parse import quote, urlencode

from nodevitals.probe import ProbeError
from nodevitals.probes.common.https import Connection, tls_context
from nodevitals.probes.kubernetes.kubelet import CallError
from nodevitals.probes.kubernetes.pods import KnownNode, Pod, parse_node, parse_pods
from nodevitals.probes.kubernetes.settings import KubernetesSettings

T = TypeVar("T")
PAGE_PODS = 500
MAX_PAGES = 20
RESTARTS = 2
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_TOKEN_BYTES = 64 * 1024
MAX_RETRY_SECONDS = 600.0
_SHOWN_CHARACTERS = 160


class GoneError(Exception):
    """410: the list of a `continue` token has expired. Start over."""


class ThrottledError(CallError):
    """429 or 503 with Retry-After: try again after so many seconds."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__("throttled", "throttled", message)
        self.seconds = seconds


class Server(NamedTuple):
    """An HTTPS server and how to authenticate. `ca_file` None: its certificate is not verified."""

    url: str
    token_file: str
    ca_file: Optional[str]
    name: str
    """For messages: `API server` or `kubelet`."""


def get(server: Server, path: str, seconds: float, needed: str) -> bytes:
    """The body of a 200. Raises GoneError, CallError; `needed` is the permission that is missing in
    case of a 403.
    """
    token = read_token(server.token_file)
    context = tls_context(server.ca_file, verify=server.ca_file is not None)
    connection = Connection(server.url, context, MAX_BODY_BYTES)
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    what = f"{server.name} at {server.url}: GET {path.partition('?')[0]}"
    deadline = time.monotonic() + seconds
    try:
        answer = connection.get(path, {**headers, "Connection": "close"}, deadline)
    except ssl.SSLCertVerificationError as error:
        text = f"{what}: {error.verify_message}: is ca_file right?"
        raise CallError("error", "tls", text) from None
    except ssl.SSLError as error:
        if _is_over(deadline):
            raise _late(what, seconds) from None
        raise CallError("error", "tls", f"{what}: {error.reason or error}") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, TimeoutError) or _is_over(deadline):
            raise _late(what, seconds) from None
        text = f"{what}: {getattr(error, 'strerror', None) or error or type(error).__name__}"
        raise CallError("unavailable", "api", text) from None
    finally:
        connection.close()
    if _is_over(deadline):
        raise _late(what, seconds)
    if answer.status != 200:
        raise _failure(answer.status, answer.headers, answer.body, what, needed)
    if len(answer.body) > MAX_BODY_BYTES:
        raise CallError("error", "too_large", f"{what}: over {MAX_BODY_BYTES} bytes")
    return answer.body


def read_token(path: str) -> str:
    """The token. Raises ProbeError."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{path}: {getattr(error, 'strerror', None) or 'not in ASCII'}: no token"
        raise ProbeError("no_token", text) from None
    if not token or not token.isprintable():
        raise ProbeError("no_token", f"{path}: no token")
    return token


def _is_over(deadline: float) -> bool:
    return time.monotonic() >= deadline


def _late(what: str, seconds: float) -> CallError:
    return CallError("timeout", "timeout", f"{what}: no complete answer within {seconds:.1f} s")


def _failure(
    status: int, headers: http.client.HTTPMessage, body: bytes, what: str, needed: str
) -> Exception:
    text = f"{what}: {status}: {_message(body)}"
    if status == 410:
        return GoneError(text)
    if status == 401:
        return CallError("denied", "unauthorized", f"{text}: the token is not accepted")
    if status == 403:
        return CallError("denied", "forbidden", f"{text}: the agent's role needs {needed}")
    retry = headers.get("Retry-After", "")
    if status == 429 or (status == 503 and retry):
        seconds = min(float(retry), MAX_RETRY_SECONDS) if _is_number(retry) else 1.0
        return ThrottledError(text, seconds)
    return CallError("error" if status < 500 else "unavailable", "api", text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _message(body: bytes) -> str:
    """The message of a Status object, else the beginning of the body, in one line."""
    text = body[:4096].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        text = str(json.loads(text).get("message", text))
    return " ".join(text.split())[:_SHOWN_CHARACTERS]


def api_server(settings: KubernetesSettings) -> Server | None:
    """The API server; None if the agent is no pod and none is configured."""
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
    """The pods of the node, read page by page, and from the start again if the list expires. Raises
    ProbeError.
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
    pods: list[Pod] = []
    token = ""
    for _ in range(MAX_PAGES):
        # Read from the API server's cache, not from etcd; a next page must not name a version.
        query = {**selector, "continue": token} if token else {**selector, "resourceVersion": 0}
        path = f"/api/v1/pods?{urlencode(query)}"
        left = max(0.01, deadline - time.monotonic())
        page = _parsed(get(server, path, left, "list of pods"), parse_pods, "/api/v1/pods")
        pods += page.items or []
        token = page.metadata.continue_ if page.metadata else ""
        if not token:
            return pods
    raise CallError("error", "too_large", f"/api/v1/pods: over {MAX_PAGES} pages of {PAGE_PODS}")


def _parsed(body: bytes, parse: Callable[[bytes], T], path: str) -> T:
    try:
        return parse(body)
    except ValueError as error:
        raise CallError("error", "garbage", f"GET {path}: {str(error)[:200]}") from None
