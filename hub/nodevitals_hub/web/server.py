"""The hub's HTTP server: hypercorn, with TLS settings that a reload replaces.

In: the parts of the hub. Out: a server that runs until it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from nodevitals.document import DocumentError
from nodevitals.quantities import parse_listen_address
from nodevitals.web.passwords import Passwords
from nodevitals.web_config import WebConfiguration, read, tls_context
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.stopping import canceled
from nodevitals_hub.web import limits
from nodevitals_hub.web.access import TOKENS_CHECK_SECONDS, Access
from nodevitals_hub.web.app import build_app
from nodevitals_hub.web.gate import Gate

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub

HEAD_SECONDS = 15.0
"""From a connection, or a response, to the end of the head of the next request."""
HANDSHAKE_SECONDS = 10.0
BACKLOG = 512
RELOAD_SECONDS = 30.0
"""For requests of connections whose TLS settings were replaced."""
STOP_SECONDS = 2.0
TICK_SECONDS = 1.0
HEALTHY_TICK_SECONDS = 10.0

log = logging.getLogger(__name__)


class WebServer:
    """The server of one hub."""

    def __init__(
        self,
        hub: Hub,
        handlers: Sequence[Any],
        listen: str,
        web_config: str | None,
        listening: socket.socket | None = None,
    ) -> None:
        """`handlers` are those of the hub's other parts, `listen` and `web_config` values of the
        command line, `listening` a socket that listens already.
        """
        self._hub, self._handlers = hub, handlers
        self._listen, self._web_config, self._listening = listen, web_config, listening
        self._loaded: HubSettings | None = None
        self._access = Access(hub.settings.access)
        self._headers: dict[str, str] = {}
        self._context: ssl.SSLContext | None = None
        self._configuration = WebConfiguration()
        self._ticked = asyncio.get_running_loop().time()
        self._app: Any = None
        self._servers: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        """Ends the newest of them."""

    def health(self) -> str:
        """'' while the loop ticks."""
        age = asyncio.get_running_loop().time() - self._ticked
        return f"the loop has not ticked for {age:.0f} s" if age > HEALTHY_TICK_SECONDS else ""

    async def serve(self) -> None:
        """Serve until cancelled. Raises OSError, ValueError and DocumentError."""
        self._use(await asyncio.to_thread(read, self._web_config))
        self._app = Gate(
            build_app(self._hub, self._handlers, lambda: self._access, self.health),
            lambda: self._access,
            lambda: self._hub.settings.external_url,
            lambda: self._headers,
        )
        for name, level in (("hypercorn", logging.CRITICAL), ("asyncio", logging.ERROR)):
            logging.getLogger(name).setLevel(level)  # clients can cause messages of lower levels
        asyncio.get_running_loop().set_exception_handler(_report)
        if self._listening is None:
            self._listening = bind(self._listen)
        log.info("listening on %s", self._listen)
        self._open()
        try:
            await self._refresh()
        finally:
            self._stop.set()
            await asyncio.wait(self._servers, timeout=STOP_SECONDS)
            await canceled(self._servers, 1.0)

    def _open(self) -> None:
        """Accept connections with the current TLS settings; older connections end after their
        requests.
        """
        self._stop.set()
        self._stop = asyncio.Event()
        serving = serve(self._app, self._config(), shutdown_trigger=self._stop.wait, mode="asgi")
        former = [server for server in self._servers if not server.done()]
        self._servers = [*former, asyncio.create_task(serving)]

    def _config(self) -> Config:
        assert self._listening is not None
        tls: dict[str, Any] = {}
        if (context := self._context) is not None:
            # hypercorn would read the files again, and has no setting for the versions of TLS:
            # https://github.com/pgjones/hypercorn/issues/306. Their names turn TLS on.
            files = {"certfile": "cert_file", "keyfile": "key_file"}
            tls = {**files, "create_ssl_context": lambda: context}
        return Config.from_mapping(
            tls,
            bind=[f"fd://{self._listening.dup().detach()}"],
            backlog=BACKLOG,
            errorlog=logging.getLogger("hypercorn"),
            include_server_header=False,
            h11_max_incomplete_size=limits.MAX_HEAD_BYTES,
            keep_alive_timeout=HEAD_SECONDS,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            graceful_timeout=RELOAD_SECONDS,
        )

    async def _refresh(self) -> None:
        """Reload files: tokens when they change, the others at SIGHUP."""
        loop = asyncio.get_running_loop()
        tokens_due = 0.0
        while not self._servers[-1].done():
            self._ticked = loop.time()
            if self._loaded is not self._hub.settings:
                await self._reload()
            if self._ticked >= tokens_due:
                tokens_due = self._ticked + TOKENS_CHECK_SECONDS
                path = self._hub.settings.access.tokens_file
                await asyncio.to_thread(self._access.tokens.refresh, path)
            await asyncio.sleep(TICK_SECONDS)
        self._servers[-1].result()
        raise RuntimeError("the HTTP server ended")

    async def _reload(self) -> None:
        settings, former = self._hub.settings, self._configuration
        try:
            self._use(await asyncio.to_thread(read, self._web_config))
        except DocumentError as error:
            for problem in error.problems:
                log.error("reload: %s", problem.within(str(self._web_config)))
            self._loaded = settings
            return
        if self._configuration != former:
            self._open()
            log.info("reload: the web configuration is in use")

    def _use(self, configuration: WebConfiguration) -> None:
        """Use a web configuration and the access settings. Raises DocumentError."""
        self._context = tls_context(configuration)
        passwords = Passwords(configuration.settings.basic_auth_users)
        passwords.keep_verified(self._access.passwords)
        access = Access(self._hub.settings.access, passwords)
        self._access, self._loaded = access, self._hub.settings
        self._configuration = configuration
        self._headers = dict(configuration.settings.http_server_config.headers)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log errors that asyncio could not deliver, except that a client is gone."""
    streams = ("client_connected_cb", "StreamReaderProtocol")
    of_a_client = any(name in context["message"] for name in streams)
    if not (of_a_client and _is_gone(context.get("exception"))):
        loop.default_exception_handler(context)


def _is_gone(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_gone, error.exceptions))
    return isinstance(error, OSError | asyncio.CancelledError)


def bind(address: str) -> socket.socket:
    """A socket that listens on HOST:PORT. Raises OSError and ValueError."""
    family, place = parse_listen_address(address)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place[0] == "::":
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Also for data that a client does not read; accepted connections inherit it: tcp(7).
        user_timeout = int(limits.STALLED_SECONDS * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, user_timeout)
        listening.bind(place)
        listening.listen(BACKLOG)
        listening.setblocking(False)  # also for its dup() copies: accept() must not block
    except BaseException:
        listening.close()
        raise
    return listening
