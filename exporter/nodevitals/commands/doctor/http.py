"""Queries servers, each in a thread of its own. In: URLs. Out: answers of bounded size.

requests limits only the time of each read, and a server may send one byte per second: no thread is
waited for beyond the deadline. The threads end with the process.

`HttpConfig` is the file that promtool and amtool take as --http.config.file. Relative paths start
at the directory of the file. https://prometheus.io/docs/prometheus/latest/configuration/promtool/
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec
import requests
import urllib3
from requests.auth import HTTPBasicAuth

from nodevitals.commands.doctor.findings import PROBLEM, UNKNOWN, printable
from nodevitals.commands.terminal import CommandError, document_error
from nodevitals.document import DocumentError, Problem, SettingsDocument, convert, read_file


class BasicAuth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`basic_auth`; off without a user name."""

    username: str = ""
    password: str = ""
    password_file: str = ""


class Authorization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`authorization`, a header; off without credentials."""

    type: str = "Bearer"
    credentials: str = ""
    credentials_file: str = ""


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tls_config`; without a CA file, the machine's CAs are used."""

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
        if not (text.isascii() and text.isprintable()):  # requests' error would show the password
            raise CommandError(
                f"{folder / header.credentials_file}: not one line of ASCII: "
                "write only the token into it"
            )
        header = msgspec.structs.replace(header, credentials=text)
    files = {name: getattr(tls, name) for name in ("ca_file", "cert_file", "key_file")}
    paths = {name: str(folder / file) for name, file in files.items() if file}
    for file in paths.values():
        _content(Path(file))
    tls = msgspec.structs.replace(tls, **paths)
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


_CHUNK_BYTES = 1 << 16
_SHOWN = 120
# Texts of HTTP errors.
_STATUSES = {
    401: "HTTP 401: it asks for a password",
    403: "HTTP 403: access is denied",
    404: "HTTP 404: it has no such page",
}


class Answer(msgspec.Struct, frozen=True):
    """The answer to a query. `problem`: why there is none. `state`: whether that is a problem of
    the server, or the answer is only unknown. Times are of this machine's clock.
    """

    status: int = 0
    body: bytes = b""
    problem: str = ""
    state: str = ""
    sent: float = 0.0
    received: float = 0.0


_Shape = TypeVar("_Shape")


class Endpoint(NamedTuple):
    """A server: its address and how it is queried. `shown` is the URL without a password."""

    base: str
    shown: str
    host: str
    port: int
    path: str
    config: HttpConfig
    max_bytes: int


def endpoint(option: str, url: str, config: HttpConfig, max_bytes: int) -> Endpoint:
    """The server of a URL, which may contain user and password. Raises CommandError."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        host = parts.hostname or ""
        if not host:
            raise ValueError
    except (ValueError, KeyError):
        text = "not a URL; write it like http://localhost:9090"
        raise CommandError(f"{option}: {text}") from None
    if parts.username:
        basic = msgspec.structs.replace(
            config.basic_auth,
            username=unquote(parts.username),
            password=unquote(parts.password or "") or config.basic_auth.password,
        )
        config = msgspec.structs.replace(config, basic_auth=basic)
    bare = SplitResult(parts.scheme, parts.netloc.rpartition("@")[2], "", "", "")
    base, path = urlunsplit(bare), parts.path.rstrip("/")
    return Endpoint(base, base + path, host, port, path, config, max_bytes)


class Jobs:
    """Functions that run at the same time, each in a daemon thread, until a common deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._threads: dict[str, threading.Thread] = {}
        self._results: dict[str, Any] = {}

    def start(self, name: str, function: Callable[[], Any]) -> None:
        """Start a function; an exception is kept as its result."""

        def run() -> None:
            try:
                self._results[name] = function()
            except Exception as error:  # noqa: BLE001 # raised by `result`
                self._results[name] = error

        self._threads[name] = threading.Thread(target=run, daemon=True)
        self._threads[name].start()

    def result(self, name: str, late: _Shape) -> _Shape:
        """The result of a function; `late` where it has not returned by the deadline."""
        self._threads[name].join(max(0.0, self._deadline - time.monotonic()))
        outcome = self._results.get(name, late)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return] # as its function returns


def ask(
    server: Endpoint, path: str, deadline: float, params: Mapping[str, str] | None = None
) -> Answer:
    """The answer to one GET. Never raises."""
    seconds = max(deadline - time.monotonic(), 0.1)
    sent = time.time()
    session = _session(server.config)
    try:
        with session.get(
            server.base + path,
            params=params,
            timeout=seconds,
            stream=True,
            allow_redirects=False,  # a redirect leads to a login page or into a loop
        ) as response:
            received = time.time()
            problem, state = _problem_of(response)
            body = _body(response, server.max_bytes)
        return Answer(response.status_code, body, problem, state, sent, received)
    except _TooLargeError:
        text = f"an answer of over {server.max_bytes >> 20} MiB; it was not read"
        return Answer(problem=text, state=UNKNOWN)
    except requests.Timeout:
        return late(seconds)
    # Three libraries parse the server's bytes; their possible exceptions are not documented.
    except Exception as error:  # noqa: BLE001
        return Answer(problem=reason_of(error), state=PROBLEM)


def late(seconds: float) -> Answer:
    """The answer where none came in time."""
    return Answer(problem=f"no complete answer within {seconds:.0f} s", state=PROBLEM)


class _TooLargeError(Exception):
    pass


def _session(config: HttpConfig) -> requests.Session:
    session = requests.Session()
    # No proxies and passwords from the environment: Prometheus does not use them either.
    session.trust_env = False
    session.headers["Accept-Encoding"] = "identity"
    basic, header, tls = config.basic_auth, config.authorization, config.tls_config
    if basic.username:
        session.auth = _basic_auth(basic.username, basic.password)
    elif header.credentials:
        session.headers["Authorization"] = f"{header.type} {header.credentials}"
    session.verify = False if tls.insecure_skip_verify else (tls.ca_file or True)
    if tls.cert_file:
        session.cert = (tls.cert_file, tls.key_file or tls.cert_file)
    if tls.insecure_skip_verify:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    return session


def _basic_auth(user: str, password: str) -> HTTPBasicAuth:
    """User and password as UTF-8: requests encodes text as Latin-1, and fails with other text."""
    return HTTPBasicAuth(user.encode(), password.encode())


def _body(response: requests.Response, max_bytes: int) -> bytes:
    parts, size = [], 0
    while part := response.raw.read(_CHUNK_BYTES, decode_content=False):
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _TooLargeError
    return b"".join(parts)


def _problem_of(response: requests.Response) -> tuple[str, str]:
    status = response.status_code
    if status == 200:
        packed = response.headers.get("Content-Encoding", "identity")
        return ("", "") if packed == "identity" else ("an answer in an encoding", UNKNOWN)
    if 300 <= status < 400:
        where = _without_password(response.headers.get("Location", ""))
        return f"HTTP {status}: it redirects to {where or 'nowhere'}", UNKNOWN
    text = _STATUSES.get(status, f"HTTP {status}")
    return text, PROBLEM if status >= 500 else UNKNOWN


def _without_password(url: str) -> str:
    head, slashes, rest = url.partition("//")
    host, slash, path = rest.partition("/")
    return printable(head + slashes + host.rpartition("@")[2] + slash + path.partition("?")[0], 100)


def reason_of(error: BaseException) -> str:
    """Why there is no answer: the text of the deepest cause."""
    chain: list[BaseException] = [error]
    while len(chain) < 20:
        inner = chain[-1]
        reason = getattr(inner, "reason", None)
        argument = inner.args[0] if inner.args else None
        causes = (reason, argument, inner.__cause__, inner.__context__)
        following = next((cause for cause in causes if isinstance(cause, BaseException)), None)
        if following is None or following in chain:
            break
        chain.append(following)
    for cause in reversed(chain):
        if isinstance(cause, OSError) and cause.strerror:
            return printable(cause.strerror, _SHOWN)
    return printable(f"not HTTP: {chain[-1]}", _SHOWN)


def decoded(answer: Answer, shape: type[_Shape], what: str) -> tuple[_Shape | None, Answer]:
    """The JSON of an answer as the type `shape`; or None, and the answer with its problem."""
    if answer.problem:
        return None, answer
    try:
        return msgspec.json.decode(answer.body, type=shape), answer
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        start = printable(answer.body[:60].decode("utf-8", "replace"), 40)
        text = f"not an answer of {what}: {start!r}"
        return None, msgspec.structs.replace(answer, problem=text, state=UNKNOWN)
