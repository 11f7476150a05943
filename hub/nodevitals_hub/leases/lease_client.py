"""Sends leases to agents: HTTPS with the hub's certificate and token."""

from __future__ import annotations

import asyncio

import httpx
import msgspec

from nodevitals.checks.deadlines import within
from nodevitals.errors import ProbeError
from nodevitals.probes.fabric.leases import (
    LEASE_PATH,
    REPLY_SECONDS,
    LeaseRequest,
    LeaseStatus,
)
from nodevitals.probes.fabric.secrets import Secrets
from nodevitals.wire import LeaseState
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.launch.agent_replies import body_of
from nodevitals_hub.leases.lease_book import AgentError
from nodevitals_hub.settings.agents import AgentsSettings

TIMEOUT = httpx.Timeout(5.0, read=REPLY_SECONDS + 3.0)
ALL_SECONDS = REPLY_SECONDS + 8.0
"""Limit of the whole exchange: TIMEOUT is per read, and an agent may send a byte per second."""
MAX_REPLY_BYTES = 64 * 1024
MAX_TEXT_CHARACTERS = 200
_decode = msgspec.json.Decoder(LeaseStatus).decode


class LeaseClient:
    """One client per hub; files are read again when they change."""

    def __init__(self, settings: AgentsSettings | None) -> None:
        self._settings = settings
        self._secrets: Secrets | None = None

    async def send(
        self, member: Member, probes: tuple[str, ...], seconds: float
    ) -> dict[str, LeaseState]:
        """Request a lease for probes and seconds; without probes, end it. Raises AgentError."""
        if self._settings is None:
            raise AgentError("the hub's configuration has no section agents")
        try:
            secrets = await asyncio.to_thread(self._refreshed, self._settings)
        except ProbeError as error:
            raise AgentError(error.message) from None
        body = b""
        if probes:
            request = LeaseRequest(node=member.name, probes=probes, seconds=seconds)
            body = msgspec.json.encode(request)
        try:
            status, data = await within(self._exchange(secrets, member, body), ALL_SECONDS)
            if status == 200:
                states = _decode(data).states
                # Only requested probes: an agent may answer anything.
                return {name: states[name] for name in probes if name in states}
            text = f"HTTP {status}: {data[:MAX_TEXT_CHARACTERS].decode('utf-8', 'replace')}"
        except TimeoutError:
            text = f"no response in {ALL_SECONDS:g} s"
        except (msgspec.DecodeError, RecursionError) as error:
            text = f"unreadable reply: {error}"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            text = str(error) or type(error).__name__
        text = " ".join(text.split())[:MAX_TEXT_CHARACTERS]
        raise AgentError(f"{member.host}:{member.port}: {text}")

    async def _exchange(self, secrets: Secrets, member: Member, body: bytes) -> tuple[int, bytes]:
        """Status and body of the reply; without a body, the request ends the lease."""
        url = f"https://{member.url_host}:{member.port}{LEASE_PATH}"
        head = {"Authorization": f"Bearer {secrets.token}"}
        async with httpx.AsyncClient(
            verify=secrets.client_context, timeout=TIMEOUT, trust_env=False
        ) as client:
            method = "PUT" if body else "DELETE"
            async with client.stream(method, url, content=body or None, headers=head) as reply:
                return reply.status_code, await body_of(reply, MAX_REPLY_BYTES)

    def _refreshed(self, settings: AgentsSettings) -> Secrets:
        if self._secrets is None:
            self._secrets = Secrets(settings.token_file, settings.tls)
        self._secrets.refresh()
        return self._secrets
