"""Client of the agents' orders: HTTPS with a certificate on both sides, and the hub's token.

In: orders. Out: their states, or AgentError. Each request has a deadline and a size limit; a
repeated request does no harm, because an agent executes an order's id once.
"""

from __future__ import annotations

import asyncio

import httpx
import msgspec

from nodevitals.checks.deadlines import within
from nodevitals.probes.fabric.orders import (
    MAX_STATUS_BYTES,
    ORDERS_PATH,
    Order,
    OrderRefused,
    OrderStatus,
)
from nodevitals.probes.fabric.secrets import Secrets
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.launch.agent_replies import body_of, bounded
from nodevitals_hub.settings.agents import AgentsSettings

CONNECT_SECONDS = 5.0
REQUEST_SECONDS = 10.0
WAIT_SECONDS = 5.0
"""Duration of a long poll: well below the lease, so that two lost requests do not end an order."""
Response = OrderStatus | OrderRefused
_status = msgspec.json.Decoder(OrderStatus).decode
_refused = msgspec.json.Decoder(OrderRefused).decode
_encode = msgspec.json.Encoder().encode


class AgentError(Exception):
    """No valid answer of an agent; the text is the reason, in one line."""


class Agents:
    """Connections to all agents. Certificates and token are read again when they change."""

    def __init__(self, settings: AgentsSettings) -> None:
        """Raises ProbeError for unusable files."""
        self._secrets = Secrets(settings.token_file, settings.tls)
        self._context = self._secrets.client_context
        self._client = self._new_client()

    def _new_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=self._context,
            trust_env=False,
            timeout=httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def refresh(self) -> None:
        """Read the certificates and the token where they have changed. Raises ProbeError."""
        await asyncio.to_thread(self._secrets.refresh)
        if self._secrets.client_context is not self._context:
            self._context = self._secrets.client_context
            self._client = self._new_client()  # the old one is freed after its last request

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def put(self, member: Member, order: Order) -> Response:
        """Send an order to an agent; a repeated order returns its state."""
        return await self._ask("PUT", member, order.id, _encode(order))

    async def get(self, member: Member, identity: str, wait: float = 0.0) -> Response:
        """The state of an order, when it is done or after `wait` seconds."""
        return await self._ask("GET", member, f"{identity}?wait={wait:.0f}", None, wait)

    async def cancel(self, member: Member, identity: str) -> Response:
        """End an order."""
        return await self._ask("DELETE", member, identity, None)

    async def _ask(
        self, method: str, member: Member, path: str, body: bytes | None, wait: float = 0.0
    ) -> Response:
        url = f"https://{member.url_host}:{member.port}{ORDERS_PATH}/{path}"
        headers = {"Authorization": f"Bearer {self._secrets.token}"}
        try:
            response = await within(
                self._exchange(method, url, headers, body), REQUEST_SECONDS + wait
            )
            if isinstance(response, OrderStatus) and response.id != path.partition("?")[0]:
                raise ValueError("the state of another order")
            return response
        except TimeoutError:
            text = f"no response in {REQUEST_SECONDS + wait:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            text = str(error) or type(error).__name__
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            text = f"not a response of an agent: {error}"
        raise AgentError(f"agent of {member.name} ({member.host}:{member.port}): {text[:200]}")

    async def _exchange(
        self, method: str, url: str, headers: dict[str, str], body: bytes | None
    ) -> Response:
        async with self._client.stream(method, url, headers=headers, content=body) as response:
            read = await body_of(response, MAX_STATUS_BYTES)
        if response.status_code == 200:
            return bounded(_status(read))
        if response.status_code in (403, 409) and read.startswith(b"{"):
            return _refused(read)
        text = read[:100].decode("utf-8", "replace").split("\n", 1)[0]
        raise ValueError(f"HTTP {response.status_code} {text}")
