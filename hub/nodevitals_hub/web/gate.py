"""The gate before the application: it checks every request, and adds headers to every response.

In: ASGI requests from the network. Out: requests of bounded size from a known client with a
sufficient role and from our own pages, with the Requester at `scope["user"]`; the others are
refused.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from litestar.types import ASGIApp, Message, Receive, Send

from nodevitals.checks.model import Requester, Role, Trigger
from nodevitals.errors import Wording
from nodevitals_hub.web.access import Access, Client, LoginError, TooManyLoginsError, rank
from nodevitals_hub.web.limits import (
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    Places,
    RefusedRequest,
    most_bytes,
    refuse,
)

OPEN_PATHS = ("/healthz", "/static/style.css")
# Prometheus scrapes these paths under any name of the hub.
_ANY_HOST_PATHS = ("/metrics", "/api/v1/sd/fast")
_SAFE = ("GET", "HEAD", "OPTIONS")
# A login is needed even where clients without one may read.
LOGIN_PATH = "/login"
# These POST requests change nothing.
_READ_PATHS = ("/api/v1/checks/estimate",)
# Its handler accepts the signature in a notification's link instead of a role.
_SIGNED = re.compile(r"/incidents/[0-9a-z-]{1,40}/acknowledge")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SINGLE = ("host", "authorization", "content-length", "content-type", "origin", "transfer-encoding")


log = logging.getLogger(__name__)


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        access: Callable[[], Access],
        external_url: Callable[[], str],
        extra_headers: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._app, self._access = app, access
        self._external_url, self._extra = external_url, extra_headers
        self._places = Places()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        finish = self._with_headers(self._places.while_read(send), scope["method"] == "HEAD")
        try:
            with self._places.take(scope["path"] in OPEN_PATHS):
                await self._serve(scope, receive, finish)
        except RefusedRequest as error:
            await refuse(scope, receive, finish, error)

    async def _serve(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            await self._admit(scope, _headers_of(scope))
        except RefusedRequest:
            raise
        except Exception:
            log.exception("a request failed")
            text = Wording("a defect of the hub: see its log")
            raise RefusedRequest(500, text) from None
        receive = await self._places.with_body(receive, most_bytes(scope["path"]))
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        await self._app(scope, receive, send)

    def _with_headers(self, send: Send, is_head: bool) -> Send:
        extra = self._extra()

        async def finish(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = {name.lower() for name, _ in message["headers"]}
                own = {**HEADERS, **{name.lower(): value for name, value in extra.items()}}
                more = [
                    (name.encode(), value.encode("latin-1"))
                    for name, value in own.items()
                    if name.encode() not in sent
                ]
                message["headers"] = [*message["headers"], *more]
            elif is_head and message["type"] == "http.response.body":
                message["body"] = b""
            await send(message)

        return finish

    async def _admit(self, scope: Any, headers: dict[str, str]) -> None:
        path, method = scope["path"], scope["method"]
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
            text = Wording("the URL has over {most} bytes", most=MAX_TARGET_BYTES)
            raise RefusedRequest(414, text)
        if not path.isprintable() or {"", ".", ".."} & set(path.split("/")[1:-1]):
            raise RefusedRequest(404, Wording("no such page"))
        length = headers.get("content-length", "0")
        most = most_bytes(path)
        if not length.isdecimal() or int(length[:20]) > most:
            text = Wording("the body has over {most} KiB", most=most >> 10)
            raise RefusedRequest(413, text)
        if path in OPEN_PATHS:
            scope["user"] = Requester(trigger="rest", role="read")
            return
        client = await self._client(scope, headers)
        self._check_role(client, path, method)
        self._check_site(scope, headers, client)
        is_rest = path.startswith("/api/")
        if method in ("POST", "PUT", "PATCH") and is_rest:
            media = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media != "application/json":
                raise RefusedRequest(415, "write the header Content-Type: application/json")
            if length == "0" and "transfer-encoding" not in headers:
                raise RefusedRequest(400, "the body is empty: send JSON")
        trigger: Trigger = "rest" if is_rest else "page"
        if headers.get("user-agent", "").startswith("nodevitals"):
            trigger = "command"
        scope["user"] = Requester(trigger=trigger, name=client.name, role=client.role)
        scope["state"] = {**scope.get("state", {}), "client": client}

    def _check_site(self, scope: Any, headers: dict[str, str], client: Client) -> None:
        """Refuse requests that a page of another site makes a browser send."""
        external = self._external_url()
        anonymous = not client.logged_in and scope["path"] not in _ANY_HOST_PATHS
        if anonymous and not is_own_host(headers.get("host", ""), external):
            text = Wording(
                "not the name of this hub: without a login, use external_url, an address or a"
                " private name as Host"
            )
            raise RefusedRequest(421, text)
        by_page = scope["method"] not in _SAFE and not client.by_token
        if by_page and not is_own_origin(scope["scheme"], headers, external):
            raise RefusedRequest(403, Wording("sent by a page of another site"))

    async def _client(self, scope: Any, headers: dict[str, str]) -> Client:
        address = (scope.get("client") or ("",))[0]
        try:
            return await self._access().client_of(headers.get("authorization", ""), address)
        except LoginError as error:
            raise RefusedRequest(401, error.args[0], **self._challenge()) from None
        except TooManyLoginsError as error:
            raise RefusedRequest(429, error.args[0], **{"retry-after": "1"}) from None

    def _challenge(self) -> dict[str, str]:
        scheme = "Basic" if self._access().has_users else "Bearer"
        return {"www-authenticate": f'{scheme} realm="nodevitals hub", charset="UTF-8"'}

    def _check_role(self, client: Client, path: str, method: str) -> None:
        reads = method in _SAFE or path in _READ_PATHS or _SIGNED.fullmatch(path)
        needed: Role = "read" if reads else "run"
        login = path == LOGIN_PATH and not client.logged_in
        if not login and rank(client.role) >= rank(needed):
            return
        access = self._access()
        if not client.logged_in and (access.has_users or access.tokens):
            text = Wording("log in: this needs the role {role}", role=needed)
            raise RefusedRequest(401, text, **self._challenge())
        if login:
            text = Wording("this hub has no users: see access in its configuration")
            raise RefusedRequest(404, text)
        raise RefusedRequest(403, Wording("needs the role {role}", role=needed))


def _headers_of(scope: Any) -> dict[str, str]:
    """The headers by name. Raises RefusedRequest for a head with two meanings."""
    if scope.get("http_version") not in ("1.0", "1.1"):
        raise RefusedRequest(505, "use HTTP/1.1")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
        raise RefusedRequest(431, f"the head of the request has over {MAX_HEAD_BYTES >> 10} KiB")
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in _SINGLE and key in headers:
            raise RefusedRequest(400, f"more than one header {key}")
        headers[key] = value.decode("latin-1")
    if "content-length" in headers and "transfer-encoding" in headers:
        raise RefusedRequest(400, "Content-Length beside Transfer-Encoding")
    if scope.get("http_version") == "1.1" and not headers.get("host"):
        raise RefusedRequest(400, "no header Host")
    return headers


# Names below these cannot be registered, so no page of another site has one.
_PRIVATE = (".svc", ".cluster.local", ".internal", ".localhost")


def host_of(url: str) -> str:
    """Host and port of a URL, '' where there is none."""
    with contextlib.suppress(ValueError):
        return urlsplit(url).netloc.lower()
    return ""


def is_own_host(host: str, external_url: str) -> bool:
    """Whether a Host may be this hub's: the one of `external_url`, an address, or a name that is
    not public. A page whose own name resolves to the hub's address (DNS rebinding) sends a public
    name. Without `external_url`, any Host.
    """
    if not external_url or host.lower() == host_of(external_url):
        return True
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(name)
        return True
    return bool(name) and ("." not in name or name.endswith(_PRIVATE))


def is_own_origin(scheme: str, headers: dict[str, str], external_url: str) -> bool:
    """Whether a request comes from a page of this hub, or from no browser: other clients send
    neither Origin nor Sec-Fetch-Site.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site not in (None, "same-origin", "none"):
        return False
    if origin is None:
        return True
    host = headers.get("host", "").lower()
    own = [f"{scheme}://{host}"]
    if external_url:
        own.append(f"{urlsplit(external_url).scheme}://{host_of(external_url)}".lower())
    # A TLS proxy in front of this server changes the scheme.
    return origin.lower() in own or (site == "same-origin" and host_of(origin) == host != "")
