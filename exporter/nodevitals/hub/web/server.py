"""The hub's HTTP server: uvicorn with deadlines for slow clients, TLS that a reload replaces.

In: the hub's parts. Out: a server that runs until it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nodevitals.document import DocumentError
from nodevitals.hub.settings import HubSettings
from nodevitals.hub.web.access import TOKENS_CHECK_SECONDS, Access
from nodevitals.hub.web.app import build_app
from nodevitals.hub.web.gate import Gate
from nodevitals.quantities import parse_listen_address
from nodevitals.web.passwords import Passwords
from nodevitals.web_config import WebConfiguration, read, tls_context

if TYPE_CHECKING:
    from nodevitals.hub.context import Hub

REQUEST_SECONDS = 20.0
"""A request must be complete within this time, from its first byte or the connection on."""
STALLED_SECONDS = 30.0
"""A client that does not read for so long is disconnected."""
KEEP_ALIVE_SECONDS = 15
MAX_CONNECTIONS = 256
STOP_SECONDS = 2
TICK_SECONDS = 1.0
HEALTHY_TICK_SECONDS = 10.0
RETRY_SECONDS = 5.0

log = logging.getLogger(__name__)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for each request and for each write."""

    _request_deadline: Optional[asyncio.TimerHandle] = None
    _write_deadline: Optional[asyncio.TimerHandle] = None

    def connection_made(self, transport: Any) -> None:
        """Await the first request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Take what a client sent."""
        super().data_received(data)
        self._await_request()

    def _await_request(self) -> None:
        incomplete = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if incomplete and self._request_deadline is None:
            self._request_deadline = self.loop.call_later(REQUEST_SECONDS, self._abort)
        elif not incomplete and self._request_deadline is not None:
            self._request_deadline.cancel()
            self._request_deadline = None

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._write_deadline = self.loop.call_later(STALLED_SECONDS, self._abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """End the deadlines."""
        super().connection_lost(exc)
        for deadline in (self._request_deadline, self._write_deadline):
            if deadline is not None:
                deadline.cancel()

    def _abort(self) -> None:
        self.transport.abort()  # type: ignore[attr-defined]


class _Uvicorn(uvicorn.Server):
    """Signals are those of the hub."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class WebServer:
    """The server of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loaded: Optional[HubSettings] = None
        self._access = Access(hub.settings.access)
        self._headers: dict[str, str] = {}
        self._context: Optional[ssl.SSLContext] = None
        self._ticked = asyncio.get_running_loop().time()

    def health(self) -> str:
        """'' while the loop ticks."""
        age = asyncio.get_running_loop().time() - self._ticked
        return f"the loop has not ticked for {age:.0f} s" if age > HEALTHY_TICK_SECONDS else ""

    async def serve(self) -> None:
        """Serve until cancelled. Raises OSError, ValueError and DocumentError."""
        self._use(await asyncio.to_thread(read, self._hub.web_config))
        app = Gate(
            build_app(self._hub, lambda: self._access, self.health),
            lambda: self._access,
            lambda: self._hub.settings.external_url,
            lambda: self._headers,
        )
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=16 * 1024,
        )
        config.load()
        config.ssl = self._entrance()
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        with _listening(self._hub.listen) as listening:
            log.info("listening on %s", self._hub.listen)
            await self._serve(_Uvicorn(config), listening)

    async def _serve(self, server: uvicorn.Server, listening: socket.socket) -> None:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        refreshing = asyncio.ensure_future(self._refresh())
        try:
            await asyncio.wait([serving, refreshing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            refreshing.cancel()
            server.should_exit = True
            await asyncio.wait([serving], timeout=STOP_SECONDS + 1)

    async def _refresh(self) -> None:
        """Follow the files: tokens when they change, the others at SIGHUP."""
        loop = asyncio.get_running_loop()
        tokens_due = 0.0
        while True:
            self._ticked = loop.time()
            if self._loaded is not self._hub.settings:
                await self._reload()
            if self._ticked >= tokens_due:
                tokens_due = self._ticked + TOKENS_CHECK_SECONDS
                path = self._hub.settings.access.tokens_file
                await asyncio.to_thread(self._access.tokens.refresh, path)
            await asyncio.sleep(TICK_SECONDS)

    async def _reload(self) -> None:
        settings = self._hub.settings
        try:
            self._use(await asyncio.to_thread(read, self._hub.web_config))
        except DocumentError as error:
            for problem in error.problems:
                log.error("reload: %s", problem.within(str(self._hub.web_config)))
            self._loaded = settings

    def _use(self, configuration: WebConfiguration) -> None:
        """Take a web configuration and the access settings. Raises DocumentError."""
        context = tls_context(configuration)
        if self._loaded is not None and (context is None) != (self._context is None):
            log.error("reload: TLS on or off needs a restart")
        else:
            self._context = context
        passwords = Passwords(configuration.settings.basic_auth_users)
        passwords.keep_verified(self._access.passwords)
        access = Access(self._hub.settings.access, passwords)
        self._access, self._loaded = access, self._hub.settings
        self._headers = dict(configuration.settings.http_server_config.headers)

    def _entrance(self) -> Optional[ssl.SSLContext]:
        """The context of the listening socket: each handshake goes on with the newest one."""
        context = self._context
        if context is None:
            return None

        def choose(sock: ssl.SSLObject, _name: Optional[str], _context: ssl.SSLContext) -> None:
            if self._context is not None:
                sock.context = self._context

        context.sni_callback = choose  # type: ignore[assignment]
        return context


@contextlib.contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    family, place = parse_listen_address(address)
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place[0] == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(place)
        yield listening


async def run(hub: Hub) -> None:
    """Serve; where the address or a file cannot be used, log why and try again."""
    while True:
        try:
            await WebServer(hub).serve()
        except DocumentError as error:
            for problem in error.problems:
                log.error("%s", problem.within(str(hub.web_config)))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            log.error("cannot listen on %s: %s", hub.listen, reason)
        await asyncio.sleep(RETRY_SECONDS)
