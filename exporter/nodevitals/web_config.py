"""The web configuration file, in the format of Prometheus' exporter-toolkit.

In: YAML text and the PEM files that it names. Out: settings and the content of those files. A
setting of that format that this server does not support is an error, so that no operator relies on
a protection that is not in place.
https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Optional, cast

import msgspec

from nodevitals.document import DocumentError, Problem, add_problems, convert_parts, read_file

if TYPE_CHECKING:
    import ssl

# Names of ssl.TLSVersion and of ssl.VerifyMode.
_VERSIONS = {"TLS10": "TLSv1", "TLS11": "TLSv1_1", "TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
_CLIENT_CERTIFICATES = {
    "NoClientCert": "CERT_NONE",
    "RequireAndVerifyClientCert": "CERT_REQUIRED",
    "VerifyClientCertIfGiven": "CERT_OPTIONAL",
}
# The salt has 128 bits in 22 characters: its last character has four possible values.
_USERS, _WRONG = "basic_auth_users", "a bcrypt hash"
_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
MIN_BCRYPT_COST = 4
# A check takes twice as long with each step: 50 ms with 10, a second with 14, 8 seconds with 17.
MAX_BCRYPT_COST = 14
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class WebTlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_server_config`. Relative paths start at the directory of the web configuration file."""

    cert_file: str
    """PEM file with the server's certificate and its intermediate certificates."""
    key_file: str
    """PEM file with the private key of the certificate, without a passphrase."""
    client_auth_type: Literal[
        "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
    ] = "NoClientCert"
    """Whether clients need a certificate."""
    client_ca_file: Optional[str] = None
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

    tls_server_config: Optional[WebTlsSettings] = None
    """TLS settings; without them the server uses plain HTTP."""
    http_server_config: HttpSettings = HttpSettings()
    """HTTP settings."""
    basic_auth_users: dict[str, str] = {}
    """User names and their bcrypt password hashes of cost 4 to 14; without users no login is
    required."""


class WebConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, and the content of the PEM files that they name."""

    settings: WebSettings = WebSettings()
    certificates: bytes = b""
    key: bytes = b""
    authorities: bytes = b""


def read(path: str | None) -> WebConfiguration:
    """Read a web configuration file and what it names, and check both; without a file, no login is
    required. Raises DocumentError.
    """
    if path is None:
        return WebConfiguration()
    from nodevitals.document import SettingsDocument

    document = SettingsDocument(read_file(path))
    problems: list[Problem] = []
    settings = cast(
        "WebSettings | None", convert_parts(document.values(), WebSettings, "", problems)
    )
    configuration = WebConfiguration()
    if settings is not None:
        add_problems(_problems(settings), problems)
        configuration = _with_files(settings, Path(path).parent, problems)
    if not problems:
        try:
            tls_context(configuration)
        except DocumentError as error:
            problems.extend(error.problems)
    error_of_all = document.error(problems)
    if error_of_all is not None:
        raise DocumentError([_without_password(problem) for problem in error_of_all.problems])
    return configuration


def _without_password(problem: Problem) -> Problem:
    """The problem, without the wrong value where that may be a password: if a reload fails, the
    page at / shows the problem to every client.
    """
    if problem.path == _USERS:
        text = "not a mapping: write each user on a line as `NAME: HASH`"
    elif problem.path.startswith(f"{_USERS}.") and _WRONG not in problem.message:
        text = f"not {_WRONG}: make one with htpasswd -nBC 10"
    else:
        return problem
    return msgspec.structs.replace(problem, message=text)


def _with_files(settings: WebSettings, folder: Path, problems: list[Problem]) -> WebConfiguration:
    tls = getattr(settings, "tls_server_config", None)  # unset where it is wrong
    content = {}
    for field in ("cert_file", "key_file", "client_ca_file"):
        name = getattr(tls, field, None)
        try:
            content[field] = b"" if name is None else read_file(folder / name)
        except DocumentError as error:
            where = f"tls_server_config.{field}"
            problems.extend(
                Problem(where, f"{name}: {problem.message}") for problem in error.problems
            )
    return WebConfiguration(
        settings=settings,
        certificates=content.get("cert_file", b""),
        key=content.get("key_file", b""),
        authorities=content.get("client_ca_file", b""),
    )


def _problems(settings: WebSettings) -> Iterator[Problem]:
    for user, hashed in settings.basic_auth_users.items():
        wrong = _wrong_hash(hashed)
        if wrong:
            yield Problem(f"basic_auth_users.{user}", wrong)
    tls = settings.tls_server_config
    if tls is not None and tls.client_auth_type != "NoClientCert" and tls.client_ca_file is None:
        yield Problem(
            "tls_server_config.client_ca_file",
            "missing: write the file that verifies client certificates",
        )
    if tls is not None and tls.min_version > tls.max_version:
        yield Problem(
            "tls_server_config.max_version",
            f"lower than min_version: write at least {tls.min_version}",
        )
    for name, value in settings.http_server_config.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            text = "not a header: write letters, digits and - in the name, plain ASCII in the value"
            yield Problem(f"http_server_config.headers.{name}", text)


def _wrong_hash(hashed: str) -> str:
    """What is wrong with the form of a password hash, or ''. A real check may take minutes."""
    match = _BCRYPT.fullmatch(hashed)
    if match is None:
        return f"not {_WRONG}: make one with htpasswd -nBC 10"
    if not MIN_BCRYPT_COST <= int(match["cost"]) <= MAX_BCRYPT_COST:
        bounds = f"{MIN_BCRYPT_COST} to {MAX_BCRYPT_COST}"
        return f"a bcrypt hash of cost {match['cost']}, outside {bounds}: run htpasswd -nBC 10"
    return ""


def tls_context(configuration: WebConfiguration) -> ssl.SSLContext | None:
    """The TLS context of the server; None without TLS. No file of the disk is read. Raises
    DocumentError.
    """
    settings = configuration.settings.tls_server_config
    if settings is None:
        return None
    import ssl  # here, because workers must not have its 2 MiB

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion[_VERSIONS[settings.min_version]]
    context.maximum_version = ssl.TLSVersion[_VERSIONS[settings.max_version]]
    try:
        _load_chain(context, configuration.certificates, configuration.key)
    except (OSError, ssl.SSLError) as error:
        raise DocumentError([_chain_problem(error)]) from None
    if settings.client_ca_file is not None:
        try:
            context.load_verify_locations(cadata=configuration.authorities.decode("ascii"))
        except (ValueError, ssl.SSLError) as error:
            text = f"no PEM certificates{_reason(error)}: check the file"
            raise DocumentError([Problem("tls_server_config.client_ca_file", text)]) from None
        required = _CLIENT_CERTIFICATES[settings.client_auth_type]
        context.verify_mode = ssl.VerifyMode[required]
    return context


def _chain_problem(error: OSError) -> Problem:
    """OpenSSL's error as a problem, with its file and a remedy."""
    reason = _reason(error)
    if "MISMATCH" in reason:
        text = "not the key of the certificate in cert_file: choose the pair that belongs together"
        return Problem("tls_server_config.key_file", text)
    text = f"certificate or key not usable{reason}: write both as PEM, without a passphrase"
    return Problem("tls_server_config.cert_file", text)


def _reason(error: Exception) -> str:
    """OpenSSL's name of an error, as ` (KEY_VALUES_MISMATCH)`; '' where it has none."""
    reason = getattr(error, "reason", None)
    return f" ({reason})" if reason else ""


def _load_chain(context: ssl.SSLContext, certificates: bytes, key: bytes) -> None:
    """Load a certificate chain from memory: `load_cert_chain` takes only paths."""
    with _in_memory(certificates) as certificates_path, _in_memory(key) as key_path:
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(certificates_path, key_path, password="")


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    with open(os.memfd_create("nodevitals-tls"), "wb") as handle:
        handle.write(content)
        handle.flush()
        yield f"/proc/self/fd/{handle.fileno()}"
