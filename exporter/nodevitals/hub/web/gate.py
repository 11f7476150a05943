"""The gate before the application: what every request must pass, and headers of every response.

In: ASGI requests as the network sends them. Out: those of a known client with a sufficient role, of
bounded size and of our own pages, with the Requester at `scope["user"]`; refusals for the others.
"""

from __future__ import annotations

from typing import Any, Callable
from urllib.parse import urlsplit

from litestar.types import ASGIApp, Message, Receive, Scope, Send

from nodevitals.checks.model import Requester, Role, Trigger
from nodevitals.hub.web.access import Access, Client, LoginError, TooManyLoginsError, rank
from nodevitals.hub.web.errors import refusal

MAX_BODY_BYTES = 256 * 1024
"""10,000 names of nodes fit."""
MAX_TARGET_BYTES = 4096
OPEN_PATHS = ("/healthz", "/static/style.css")
_SAFE = ("GET", "HEAD")
# A login is needed even where clients without one may read.
LOGIN_PATH = "/login"
# These change nothing.
_READ_PATHS = ("/api/v1/checks/estimate",)
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


class _RefusedRequest(Exception):  # noqa: N818 # an outcome
    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        finish = self._with_headers(send)
        try:
            headers = _headers_of(scope)
            await self._admit(scope, headers)
        except _RefusedRequest as error:
            await refusal(scope, finish, error.status, str(error), error.headers)
            return
        await self._app(scope, receive, finish)

    def _with_headers(self, send: Send) -> Send:
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
            await send(message)

        return finish

    async def _admit(self, scope: Any, headers: dict[str, str]) -> None:
        path, method = scope["path"], scope["method"]
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_TARGET_BYTES:
            raise _RefusedRequest(414, f"the URL has over {MAX_TARGET_BYTES} bytes")
        if not path.isprintable():
            raise _RefusedRequest(404, "no such page")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES:
            raise _RefusedRequest(413, f"the body has over {MAX_BODY_BYTES >> 10} KiB")
        if path in OPEN_PATHS:
            scope["user"] = Requester(trigger="rest", role="read")
            return
        client = await self._client(scope, headers)
        self._check_role(client, path, method)
        if method not in (*_SAFE, "OPTIONS") and not client.by_token:
            self._check_origin(scope["scheme"], headers)
        is_rest = path.startswith("/api/")
        if method in ("POST", "PUT", "PATCH") and is_rest:
            media = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media != "application/json":
                raise _RefusedRequest(415, "write the header Content-Type: application/json")
        trigger: Trigger = "rest" if is_rest else "page"
        if headers.get("user-agent", "").startswith("nodevitals"):
            trigger = "command"
        scope["user"] = Requester(trigger=trigger, name=client.name, role=client.role)
        scope["state"] = {**scope.get("state", {}), "client": client}

    async def _client(self, scope: Any, headers: dict[str, str]) -> Client:
        address = (scope.get("client") or ("",))[0]
        try:
            return await self._access().client_of(headers.get("authorization", ""), address)
        except LoginError as error:
            raise _RefusedRequest(401, str(error), **self._challenge()) from None
        except TooManyLoginsError as error:
            raise _RefusedRequest(429, str(error), **{"retry-after": "1"}) from None

    def _challenge(self) -> dict[str, str]:
        scheme = "Basic" if self._access().has_users else "Bearer"
        return {"www-authenticate": f'{scheme} realm="nodevitals hub", charset="UTF-8"'}

    def _check_role(self, client: Client, path: str, method: str) -> None:
        needed: Role = "read" if method in _SAFE or path in _READ_PATHS else "run"
        login = path == LOGIN_PATH and not client.logged_in
        if not login and rank(client.role) >= rank(needed):
            return
        access = self._access()
        if not client.logged_in and (access.has_users or access.tokens):
            raise _RefusedRequest(401, f"log in: this needs the role {needed}", **self._challenge())
        if login:
            raise _RefusedRequest(404, "this hub has no users: see access in its configuration")
        raise _RefusedRequest(403, f"needs the role {needed}")

    def _check_origin(self, scheme: str, headers: dict[str, str]) -> None:
        """Refuse what a page of another site makes a browser send. A client that is no browser
        sends neither of these headers.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site not in (None, "same-origin", "none"):
            raise _RefusedRequest(403, "sent by a page of another site")
        if origin is None:
            return
        external = self._external_url()
        own = [f"{scheme}://{headers.get('host', '')}".lower()]
        if external:
            parts = urlsplit(external)
            own.append(f"{parts.scheme}://{parts.netloc}".lower())
        # A TLS proxy in front of this server changes the scheme.
        if origin.lower() not in own and (
            site != "same-origin"
            or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        ):
            raise _RefusedRequest(403, "sent by a page of another site")


def _headers_of(scope: Any) -> dict[str, str]:
    """The headers by name. Raises _RefusedRequest for a head with two meanings."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in _SINGLE and key in found:
            raise _RefusedRequest(400, f"more than one header {key}")
        found[key] = value.decode("latin-1")
    if "content-length" in found and "transfer-encoding" in found:
        raise _RefusedRequest(400, "Content-Length beside Transfer-Encoding")
    if scope.get("http_version") == "1.1" and not found.get("host"):
        raise _RefusedRequest(400, "no header Host")
    return found
