"""How a server is to be asked: the file that promtool and amtool take as --http.config.file.

In: its YAML. Out: `HttpConfig`. Relative paths start at the directory of the file.
https://prometheus.io/docs/prometheus/latest/configuration/promtool/
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec

from nodevitals.commands.terminal import CommandError, document_error
from nodevitals.document import DocumentError, Problem, SettingsDocument, convert, read_file


class BasicAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`basic_auth`; without a user name, none."""

    username: str = ""
    password: str = ""
    password_file: str = ""


class Authorization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`authorization`: a header; without credentials, none."""

    type: str = "Bearer"
    credentials: str = ""
    credentials_file: str = ""


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_config`; without a CA, those of the machine."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure_skip_verify: bool = False


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    basic_auth: BasicAuth = BasicAuth()
    authorization: Authorization = Authorization()
    tls_config: TlsConfig = TlsConfig()


def read_http_config(path: str | None) -> HttpConfig:
    """The configuration of a file, with the passwords of the files that it names. Raises
    CommandError.
    """
    if path is None:
        return HttpConfig()
    problems: list[Problem] = []
    try:
        document = SettingsDocument(read_file(path))
        config = cast("HttpConfig | None", convert(document.values(), HttpConfig, "", problems))
        error = document.error(problems)
        if error is not None:
            raise error
    except DocumentError as error:
        raise document_error(path, error) from None
    assert config is not None
    return _with_files(config, Path(path).absolute().parent)


def _with_files(config: HttpConfig, folder: Path) -> HttpConfig:
    basic, header, tls = config.basic_auth, config.authorization, config.tls_config
    if basic.password_file:
        text = _secret(folder / basic.password_file)
        basic = msgspec.structs.replace(basic, password=text)
    if header.credentials_file:
        text = _secret(folder / header.credentials_file)
        if not (text.isascii() and text.isprintable()):  # the error of a header would show it
            raise CommandError(
                f"{folder / header.credentials_file}: not one line of ASCII: "
                "write only the token into it"
            )
        header = msgspec.structs.replace(header, credentials=text)
    files = {name: getattr(tls, name) for name in ("ca_file", "cert_file", "key_file")}
    found = {name: str(folder / file) for name, file in files.items() if file}
    for file in found.values():
        _content(Path(file))
    tls = msgspec.structs.replace(tls, **found)
    return HttpConfig(basic_auth=basic, authorization=header, tls_config=tls)


def _secret(path: Path) -> str:
    try:
        return _content(path).decode().strip()
    except UnicodeDecodeError:
        raise CommandError(f"{path}: not in UTF-8; write the password in UTF-8") from None


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except DocumentError as error:
        raise document_error(str(path), error) from None
