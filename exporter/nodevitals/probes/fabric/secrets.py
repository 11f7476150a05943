"""The token and the certificates, read again when their files change: certificates are renewed
while agents run. Later connections use new TLS contexts: a replaced authority is no longer trusted.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from nodevitals.probe import ProbeError
from nodevitals.probes.common.addresses import is_address
from nodevitals.probes.fabric.settings import FabricTlsSettings

MIN_TOKEN_CHARACTERS = 16


class Secrets:
    """Token and TLS contexts of server and client. Both present the certificate and verify the
    certificate of the other side. Raises ProbeError for an unusable file.
    """

    def __init__(self, token_file: str, tls: FabricTlsSettings) -> None:
        self._token_file = token_file
        self._tls = tls
        self.token = ""
        self._read_at: tuple[int, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Read the files that have changed."""
        files = (self._token_file, self._tls.cert_file, self._tls.key_file, self._tls.ca_file)
        try:
            changed = tuple(os.stat(file).st_mtime_ns for file in files)
            if changed == self._read_at:
                return
            token = read_token(self._token_file)
            server = self._context(ssl.PROTOCOL_TLS_SERVER)
            client = self._context(ssl.PROTOCOL_TLS_CLIENT)
        except ssl.SSLError as error:
            text = f"{self._tls.cert_file}, {self._tls.key_file}, {self._tls.ca_file}"
            raise ProbeError("tls", f"{text}: {error.reason or error}") from None
        except OSError as error:
            raise ProbeError("secrets", f"{error.filename}: {error.strerror}") from None
        self.token, self._read_at = token, changed
        self.server_context, self.client_context = server, client

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self._tls.cert_file, self._tls.key_file)
        context.load_verify_locations(self._tls.ca_file)
        return context


class HubToken:
    """The token of the hub, read again when its file changes. Raises ProbeError if it is unusable
    at the start; later, all requests are refused until the file is usable again.
    """

    def __init__(self, file: str, secrets: Secrets) -> None:
        self._file = file
        self._secrets = secrets
        self.problem = ""
        """Why the file is unusable, in one line."""
        self.token = self._read()

    def refresh(self) -> None:
        """Read the file."""
        try:
            self.token, self.problem = self._read(), ""
        except ProbeError as error:
            self.token, self.problem = "", error.message

    def _read(self) -> str:
        try:
            token = read_token(self._file)
        except OSError as error:
            raise ProbeError("secrets", f"{self._file}: {error.strerror}") from None
        if token == self._secrets.token:
            text = "the hub's token is that of the agents: make another one"
            raise ProbeError("token", f"{self._file}: {text}")
        return token


def read_token(file: str) -> str:
    """The token in a file. Raises OSError, and ProbeError if it is no token."""
    token = Path(file).read_text(encoding="ascii", errors="replace").strip()
    if len(token) < MIN_TOKEN_CHARACTERS or not (token.isascii() and token.isprintable()):
        text = f"at least {MIN_TOKEN_CHARACTERS} characters are needed, all printable ASCII"
        raise ProbeError("token", f"{file}: {text}")
    return token


def has_name(certificate: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether a verified certificate has one of these names or addresses literally. Wildcards do
    not count, because all nodes may share one.
    """
    given = certificate.get("subjectAltName", ())
    own = [(kind, text) for kind, text in given if not text.strip().startswith("*")]
    return any(is_issued_for({"subjectAltName": own}, name) for name in names)


def is_issued_for(certificate: Mapping[str, Any], name: str) -> bool:
    """Whether a verified certificate, as `getpeercert` returns it, has this host name or address
    among its subject alternative names. The common name does not count, as in Go.
    """
    names = [(kind, text.strip()) for kind, text in certificate.get("subjectAltName", ())]
    if is_address(name):
        wanted = ip_address(name)
        return any(kind == "IP Address" and ip_address(text) == wanted for kind, text in names)
    return any(kind == "DNS" and _covers(text.lower(), name.lower()) for kind, text in names)


def _covers(pattern: str, name: str) -> bool:
    """Whether they are equal; a leading `*` stands for one label."""
    if pattern.startswith("*."):
        label, _, name = name.partition(".")
        return bool(label) and name == pattern[2:]
    return name == pattern
