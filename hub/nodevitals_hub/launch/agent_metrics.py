"""Requests to the /metrics of agents, with the certificates and the login of the settings.

In: members. Out: responses. Certificates and password are read again when their files change.
"""

from __future__ import annotations

import os
import ssl
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx

from nodevitals.errors import ProbeError
from nodevitals_hub.checks.check_requests import Member
from nodevitals_hub.settings.agents import AgentsSettings


class Scraper:
    """Connections to the /metrics of all agents."""

    def __init__(self, settings: AgentsSettings, timeout: float, at_a_time: int) -> None:
        """Raises ProbeError for unusable files."""
        self._settings = settings
        self._timeout, self._at_a_time = timeout, at_a_time
        tls, login = settings.metrics_tls_config, settings.metrics_basic_auth
        is_verified = settings.metrics_scheme == "https" and not tls.insecure_skip_verify
        self._ca_file = (tls.ca_file or settings.tls.ca_file) if is_verified else ""
        self._password_file = login.password_file if login else ""
        own = (tls.cert_file, tls.key_file) if settings.metrics_scheme == "https" else ()
        self._files = [file for file in (self._ca_file, self._password_file, *own) if file]
        self._read_at: tuple[int, ...] = ()
        self._client: httpx.AsyncClient | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the files that have changed. Raises ProbeError."""
        try:
            changed = tuple(os.stat(file).st_mtime_ns for file in self._files)
            if self._client is None or changed != self._read_at:
                self._client, self._read_at = self._new_client(), changed
        except ssl.SSLError as error:
            files = ", ".join(file for file in self._files if file != self._password_file)
            raise ProbeError("tls", f"{files}: {error.reason or error}") from None
        except OSError as error:
            raise ProbeError("secrets", f"{error.filename}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ProbeError("secrets", f"{self._password_file}: not UTF-8") from None

    def _new_client(self) -> httpx.AsyncClient:
        login = self._settings.metrics_basic_auth
        auth = None
        if login is not None:
            password = Path(login.password_file).read_text(encoding="utf-8").strip()
            auth = httpx.BasicAuth(login.username, password)
        return httpx.AsyncClient(
            verify=self._context(),
            auth=auth,
            trust_env=False,
            timeout=self._timeout,
            limits=httpx.Limits(max_connections=self._at_a_time, max_keepalive_connections=0),
        )

    def _context(self) -> ssl.SSLContext:
        tls = self._settings.metrics_tls_config
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self._ca_file:
            context.load_verify_locations(self._ca_file)
        else:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if tls.cert_file and tls.cert_file in self._files:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        return context

    def stream(self, member: Member) -> AbstractAsyncContextManager[httpx.Response]:
        """A request for the /metrics of an agent."""
        settings = self._settings
        url = f"{settings.metrics_scheme}://{member.url_host}:{settings.metrics_port}/metrics"
        name = settings.metrics_tls_config.server_name
        assert self._client is not None
        headers = {"Accept-Encoding": "gzip"}
        extensions = {"sni_hostname": name} if name else {}
        return self._client.stream("GET", url, headers=headers, extensions=extensions)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
