"""The web configuration file, in the format of Prometheus' exporter-toolkit.

In: YAML text. Out: a TLS context and users. A setting of that format that this server does not
support is an error, so that no operator relies on a protection that is not in place.
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import bcrypt
import msgspec

from nodevitals.document import DocumentError, Problem, convert, parse_yaml
from nodevitals.web.passwords import Passwords

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_CERTIFICATES = {
    "NoClientCert": ssl.CERT_NONE,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
}


class WebTlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_server_config`. Relative paths start at the directory of the web configuration file."""

    cert_file: str
    """PEM file with the server's certificate and its intermediate certificates."""
    key_file: str
    """PEM file with the private key of the certificate."""
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    """Whether clients need a certificate."""
    client_ca_file: str | None = None
    """PEM file with the certificate authorities that client certificates are verified against."""
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    """Lowest TLS version that the server accepts."""
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"
    """Highest TLS version that the server accepts."""


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`http_server_config`."""

    http2: bool = True
    """Accepted and ignored: the server uses HTTP/1.1."""
    headers: dict[str, str] = {}
    """Headers to add to every response."""


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole web configuration file."""

    tls_server_config: WebTlsSettings | None = None
    """TLS settings; without them the server uses plain HTTP."""
    http_server_config: HttpSettings = HttpSettings()
    """HTTP settings."""
    basic_auth_users: dict[str, str] = {}
    """User names and their bcrypt password hashes; without users no login is required."""


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
    if path is None:
        return Access(WebSettings(), None)
    problems: list[Problem] = []
    try:
        raw = parse_yaml(Path(path).read_bytes())
    except OSError as error:
        raise DocumentError([Problem("", f"cannot be read: {error.strerror}")]) from None
    settings = cast(
        "WebSettings | None", convert({} if raw is None else raw, WebSettings, "", problems)
    )
    if settings is not None:
        problems.extend(_problems(settings))
    if problems or settings is None:
        raise DocumentError(problems)
    tls = settings.tls_server_config
    return Access(settings, _context(tls, Path(path).parent) if tls is not None else None)


def _problems(settings: WebSettings) -> Iterator[Problem]:
    for user, hashed in settings.basic_auth_users.items():
        try:
            bcrypt.checkpw(b"", hashed.encode())
        except ValueError:
            yield Problem(
                f"basic_auth_users.{user}", "not a bcrypt hash: make one with htpasswd -nBC 10"
            )
    tls = settings.tls_server_config
    if tls is not None and tls.client_auth_type != "NoClientCert" and tls.client_ca_file is None:
        yield Problem(
            "tls_server_config.client_ca_file", "missing: needed to verify client certificates"
        )
    for name, value in settings.http_server_config.headers.items():
        if not name.replace("-", "").isalnum() or "\n" in value or "\r" in value:
            yield Problem(f"http_server_config.headers.{name}", "not a header")


def _context(settings: WebTlsSettings, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.maximum_version = _VERSIONS[settings.max_version]
    try:
        context.load_cert_chain(folder / settings.cert_file, folder / settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise DocumentError([Problem("tls_server_config.cert_file", str(error))]) from None
    if settings.client_ca_file is not None:
        try:
            context.load_verify_locations(folder / settings.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            raise DocumentError([Problem("tls_server_config.client_ca_file", str(error))]) from None
        context.verify_mode = _CLIENT_CERTIFICATES[settings.client_auth_type]
    return context
