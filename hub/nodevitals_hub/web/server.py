"""The hub's HTTP server: uvicorn with deadlines for slow clients, TLS that a reload replaces.

In: the hub's parts. Out: a server that runs until it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn

from nodevitals.document import DocumentError
from nodevitals.quantities import parse_listen_address
from nodevitals.web.passwords import Passwords
from nodevitals.web_config import WebConfiguration, read, tls_context
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.web.access import TOKENS_CHECK_SECONDS, Access
from nodevitals_hub.web.app import build_app
from nodevitals_hub.web.connections import BoundedProtocol
from nodevitals_hub.web.gate import MAX_HEAD_BYTES, Gate
from nodevitals_hub.web.handshakes import Listening

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

KEEP_ALIVE_SECONDS = 15
HANDSHAKE_SECONDS = 10.0
BACKLOG = 512
STOP_SECONDS = 2
TICK_SECONDS = 1.0
HEALTHY_TICK_SECONDS = 10.0

log = logging.getLogger(__name__)


class _Uvicorn(uvicorn.Server):
    """Signals are those of the hub; its TLS context can be replaced."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket) -> None:
        super().__init__(config)
        self._listening = listening
        self.servers = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections."""
        assert not sockets
        await self.open(self.config.ssl)
        self.started = True

    async def open(self, context: ssl.SSLContext | None) -> None:
        """Accept connections with this context from now on; the others go on with theirs."""
        listening = Listening.on(self._listening)
        protocol = functools.partial(
            BoundedProtocol, config=self.config, server_state=self.server_state, app_state={}
        )
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol().accepted_by(listening),
            sock=listening,
            backlog=BACKLOG,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
        )
        former, self.servers = self.servers, [server]
        for one in former:
            one.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class WebServer:
    """The server of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._loaded: HubSettings | None = None
        self._access = Access(hub.settings.access)
        self._headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None
        self._configuration = WebConfiguration()
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
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        )
        config.load()
        config.ssl = self._context
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        if self._hub.listening is None:
            self._hub.listening = bind(self._hub.listen)
        log.info("listening on %s", self._hub.listen)
        await self._serve(_Uvicorn(config, self._hub.listening))

    async def _serve(self, server: _Uvicorn) -> None:
        serving = asyncio.ensure_future(server.serve())
        refreshing = asyncio.ensure_future(self._refresh(server))
        try:
            ended, _ = await asyncio.wait(
                [serving, refreshing], return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            refreshing.cancel()
            server.should_exit = True
            await asyncio.wait([serving], timeout=STOP_SECONDS + 1)
        for one in ended:
            one.result()

    async def _refresh(self, server: _Uvicorn) -> None:
        """Follow the files: tokens when they change, the others at SIGHUP."""
        loop = asyncio.get_running_loop()
        tokens_due = 0.0
        while True:
            self._ticked = loop.time()
            if self._loaded is not self._hub.settings:
                await self._reload(server)
            if self._ticked >= tokens_due:
                tokens_due = self._ticked + TOKENS_CHECK_SECONDS
                path = self._hub.settings.access.tokens_file
                await asyncio.to_thread(self._access.tokens.refresh, path)
            await asyncio.sleep(TICK_SECONDS)

    async def _reload(self, server: _Uvicorn) -> None:
        settings, former = self._hub.settings, self._configuration
        try:
            self._use(await asyncio.to_thread(read, self._hub.web_config))
        except DocumentError as error:
            for problem in error.problems:
                log.error("reload: %s", problem.within(str(self._hub.web_config)))
            self._loaded = settings
            return
        if self._configuration != former:
            await server.open(self._context)
            log.info("reload: the web configuration is in use")

    def _use(self, configuration: WebConfiguration) -> None:
        """Take a web configuration and the access settings. Raises DocumentError."""
        self._context = tls_context(configuration)
        passwords = Passwords(configuration.settings.basic_auth_users)
        passwords.keep_verified(self._access.passwords)
        access = Access(self._hub.settings.access, passwords)
        self._access, self._loaded = access, self._hub.settings
        self._configuration = configuration
        self._headers = dict(configuration.settings.http_server_config.headers)


def bind(address: str) -> socket.socket:
    """A socket that listens on HOST:PORT. Raises OSError and ValueError."""
    family, place = parse_listen_address(address)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place[0] == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(place)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def run(hub: Hub) -> None:
    """Serve until cancelled. Raises OSError, ValueError and DocumentError."""
    await WebServer(hub).serve()
