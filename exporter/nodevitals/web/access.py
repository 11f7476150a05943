"""Access control of the server: TLS, users with their passwords, and headers of all responses."""

from __future__ import annotations

import ssl

from nodevitals.web.passwords import Passwords
from nodevitals.web_config import WebConfiguration, WebSettings, read, tls_context


class Access:
    """Access control: a TLS context, users with bcrypt hashes, and headers for every response."""

    def __init__(self, settings: WebSettings, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.headers = settings.http_server_config.headers
        self.passwords = Passwords(settings.basic_auth_users)

    @property
    def open_to_all(self) -> bool:
        """Whether no login is required."""
        return not self.passwords


def load(path: str | None) -> Access:
    """Read a web configuration file; without one, no login is required. Raises DocumentError."""
    return access_of(read(path))


def access_of(configuration: WebConfiguration) -> Access:
    """The access control of a configuration that was read. No file of the disk is read. Raises
    DocumentError.
    """
    return Access(configuration.settings, tls_context(configuration))
