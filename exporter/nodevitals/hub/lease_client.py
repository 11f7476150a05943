"""Asks one agent for a lease: HTTPS with the hub's certificate and token."""

from __future__ import annotations

import asyncio
from typing import Optional

import httpx
import msgspec

from nodevitals.hub.checks import Member
from nodevitals.hub.lease_book import AgentError
from nodevitals.hub.settings import AgentsSettings
from nodevitals.probe import ProbeError
from nodevitals.probes.fabric.leases import (
    LEASE_PATH,
    REPLY_SECONDS,
    LeaseRequest,
    LeaseStatus,
)
from nodevitals.probes.fabric.secrets import Secrets
from nodevitals.wire import LeaseState

TIMEOUT = httpx.Timeout(5.0, read=REPLY_SECONDS + 3.0)
MAX_TEXT_CHARACTERS = 200


class LeaseClient:
    """One client per hub; files are read again when they change."""

    def __init__(self, settings: AgentsSettings) -> None:
        self._settings = settings
        self._secrets: Optional[Secrets] = None

    async def send(
        self, member: Member, probes: tuple[str, ...], seconds: float
    ) -> dict[str, LeaseState]:
        """Ask for probes and seconds; without probes, end the lease. Raises AgentError."""
        try:
            secrets = await asyncio.to_thread(self._refreshed)
        except ProbeError as error:
            raise AgentError(error.message) from None
        host = f"[{member.host}]" if ":" in member.host else member.host
        url = f"https://{host}:{member.port}{LEASE_PATH}"
        head = {"Authorization": f"Bearer {secrets.token}"}
        try:
            async with httpx.AsyncClient(
                verify=secrets.client_context, timeout=TIMEOUT, trust_env=False
            ) as client:
                if probes:
                    body = LeaseRequest(node=member.name, probes=probes, seconds=seconds)
                    data = msgspec.json.encode(body)
                    reply = await client.put(url, content=data, headers=head)
                else:
                    reply = await client.delete(url, headers=head)
        except (httpx.HTTPError, OSError, ValueError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise AgentError(f"{host}:{member.port}: {text[:MAX_TEXT_CHARACTERS]}") from None
        if reply.status_code != 200:
            text = " ".join(reply.text.split())[:MAX_TEXT_CHARACTERS]
            raise AgentError(f"{host}:{member.port}: HTTP {reply.status_code}: {text}")
        try:
            return msgspec.json.decode(reply.content, type=LeaseStatus).states
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AgentError(f"{host}:{member.port}: unreadable reply: {error}") from None

    def _refreshed(self) -> Secrets:
        if self._secrets is None:
            self._secrets = Secrets(self._settings.token_file, self._settings.tls)
        self._secrets.refresh()
        return self._secrets
