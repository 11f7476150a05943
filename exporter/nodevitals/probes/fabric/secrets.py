"""The token and the certificates, read again when their files change: certificates are renewed
while agents run. A TLS context uses a new certificate for later connections.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from nodevitals.probe import ProbeError
from nodevitals.probes.fabric.settings import FabricTlsSettings

MIN_TOKEN_CHARACTERS = 16


class Secrets:
    """Token and TLS contexts of server and client. Raises ProbeError for an unusable file."""

    def __init__(self, token_file: str, tls: FabricTlsSettings) -> None:
        self._token_file = token_file
        self._tls = tls
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
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
            token = Path(self._token_file).read_text(encoding="ascii", errors="replace").strip()
            self.server_context.load_cert_chain(self._tls.cert_file, self._tls.key_file)
            self.client_context.load_verify_locations(self._tls.ca_file)
        except ssl.SSLError as error:
            text = f"{self._tls.cert_file}, {self._tls.key_file}, {self._tls.ca_file}"
            raise ProbeError("tls", f"{text}: {error.reason or error}") from None
        except OSError as error:
            raise ProbeError("secrets", f"{error.filename}: {error.strerror}") from None
        if len(token) < MIN_TOKEN_CHARACTERS:
            text = f"{self._token_file}: under {MIN_TOKEN_CHARACTERS} characters"
            raise ProbeError("token", text)
        self.token, self._read_at = token, changed
