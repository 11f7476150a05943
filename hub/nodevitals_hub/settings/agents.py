"""The section `agents` of the hub's settings: how the hub talks with the agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from nodevitals.document import Problem
from nodevitals.document.local import LocalFile
from nodevitals.probes.fabric.settings import FabricTlsSettings


class MetricsTlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """TLS of the requests to /metrics, as in Prometheus' tls_config (scrape.py)."""

    ca_file: LocalFile | None = None
    """Certificate of the authority that signed the certificates of the agents' web servers; by
    default `agents.tls.ca_file`. Example: `/etc/nodevitals/web-ca.crt`"""
    cert_file: LocalFile | None = None
    """Certificate of the hub, where the agents' web servers ask for one.
    Example: `/etc/nodevitals/hub.crt`"""
    key_file: LocalFile | None = None
    """Its private key. Example: `/etc/nodevitals/hub.key`"""
    server_name: str = ""
    """Name in those certificates; by default the node's on the lists."""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate."""


class BasicAuthSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login, as in Prometheus' basic_auth."""

    username: Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[^:]*\Z")]
    """User of the agents' web configuration file. Example: `hub`"""
    password_file: LocalFile
    """File with the password. Example: `/etc/nodevitals/agents-password`"""


class AgentsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the hub talks with the agents (agents.py)."""

    token_file: LocalFile
    """File with the token that the agents accept from the hub (`probes.fabric.hub.token_file`).
    Example: `/etc/nodevitals/hub-token`"""
    tls: FabricTlsSettings
    """Certificates; the hub's own has one of the names of `probes.fabric.hub.names`."""
    metrics_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 9855
    """Port of the agents' /metrics, which the hub reads before a check."""
    metrics_scheme: Literal["http", "https"] = "http"
    """Scheme of the agents' /metrics."""
    metrics_tls_config: MetricsTlsSettings = MetricsTlsSettings()
    """TLS of these requests, where the scheme is https."""
    metrics_basic_auth: BasicAuthSettings | None = None
    """Login of these requests, where the agents ask for a password."""

    def problems(self) -> Iterator[Problem]:
        """Report what does not fit together."""
        tls = self.metrics_tls_config
        if (tls.cert_file is None) != (tls.key_file is None):
            missing = "cert_file" if tls.cert_file is None else "key_file"
            path = f"agents.metrics_tls_config.{missing}"
            yield Problem(path, "missing: cert_file and key_file belong together")
