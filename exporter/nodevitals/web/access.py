"""The web configuration file, in the format of Prometheus' exporter-toolkit.

YAML text in, TLS context and users out. What that format knows and this server cannot do is an
error, so that nobody believes in a protection that is not there.
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import bcrypt
import msgspec

from nodevitals.document import DocumentError, Problem, convert, parse_yaml

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
# Checked for names that do not exist, so that they take as long as those that do.
_NOBODY = b"$2b$10$22VEZxFhfui4J.Wd/sNdAefHcq1Bl74hpXHxi1NDdFl4Z28wgxETq"
MAX_REMEMBERED_LOGINS = 100


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_server_config`. Paths are relative to the file that names them."""

    cert_file: str
    key_file: str
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    client_ca_file: str | None = None
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`http_server_config`. `http2` is accepted and has no effect: the server speaks HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = {}


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    tls_server_config: TlsSettings | None = None
    http_server_config: HttpSettings = HttpSettings()
    basic_auth_users: dict[str, str] = {}


class Access:
    """Who may come in: a TLS context, users with bcrypt hashes, and headers for every answer."""

    def __init__(self, settings: WebSettings, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self.headers = settings.http_server_config.headers
        self._users = {user: hashed.encode() for user, hashed in settings.basic_auth_users.items()}
        self._secret = secrets.token_bytes(32)
        self._known: set[bytes] = set()
        self._one_at_a_time = threading.Lock()

    @property
    def open_to_all(self) -> bool:
        """Whether no password is asked for."""
        return not self._users

    def admits(self, user: str, password: str) -> bool:
        """Whether the password is the user's. bcrypt takes 50 ms of a core on purpose: a success
        is remembered, and guesses are worked off one after the other.
        """
        words = f"{len(user)}:{user}{password}".encode()
        login = hashlib.blake2b(words, key=self._secret).digest()
        if login in self._known:
            return True
        with self._one_at_a_time:
            hashed = self._users.get(user, _NOBODY)
            try:
                right = bcrypt.checkpw(password.encode()[:72], hashed) and user in self._users
            except ValueError:
                return False
            if right and len(self._known) < MAX_REMEMBERED_LOGINS:
                self._known.add(login)
            return right


def load(path: str | None) -> Access:
    """Access from a web configuration file; open to all without one. Raises DocumentError."""
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
        yield Problem("tls_server_config.client_ca_file", "missing: clients are to be verified")
    for name, value in settings.http_server_config.headers.items():
        if not name.replace("-", "").isalnum() or "\n" in value or "\r" in value:
            yield Problem(f"http_server_config.headers.{name}", "not a header")


def _context(settings: TlsSettings, folder: Path) -> ssl.SSLContext:
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
