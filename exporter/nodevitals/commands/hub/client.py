"""A client of the hub's REST API. In: the hub's URL, a token, requests. Out: checks.

Any invalid answer (none, garbage, an endless one, a redirect) is an error of one line, within a
time limit and a size limit.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any, Optional, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import requests

from nodevitals.checks.model import Check, CheckDetail, CheckRequest
from nodevitals.commands.doctor.http import Jobs, reason_of
from nodevitals.commands.terminal import CommandError, printable
from nodevitals.document import DocumentError, read_file

CHECKS_PATH = "/api/v1/checks"
ANSWER_SECONDS = 30.0
MIN_ANSWER_SECONDS = 0.1
# A matrix of 10,000 nodes with its raw output is below this.
MAX_ANSWER_BYTES = 256 << 20
TOKEN_VARIABLE = "NODEVITALS_TOKEN_FILE"  # noqa: S105 # the name of a variable
_CHUNK_BYTES = 1 << 16
_SHOWN_CHARACTERS = 300
_Shape = TypeVar("_Shape")


class HubError(CommandError):
    """The hub gave no usable answer; `status` 2. `http_status` is 0 where it gave none."""

    def __init__(self, text: str, http_status: int = 0) -> None:
        super().__init__(text)
        self.http_status = http_status


class NoAnswerError(HubError):
    """The hub could not be reached, or gave no complete answer in time. It may have received the
    request.
    """


class HubRefusal(msgspec.Struct, frozen=True):
    """The body of an error."""

    detail: str = ""
    error: str = ""


def add_hub_options(parser: Any, needed: bool = False) -> None:
    """Add --hub, --token-file and --ca-file."""
    url = "address of the hub, such as https://hub.example.org"
    default = "(needed)" if needed else "(default: none, this machine tests by ssh)"
    parser.add_argument("--hub", metavar="URL", required=needed, help=f"{url} {default}")
    token = f"file with a token of the hub (default: that of {TOKEN_VARIABLE}, or none)"
    parser.add_argument("--token-file", metavar="FILE", help=token)
    authority = "certificates of the authorities to trust (default: those of the machine)"
    parser.add_argument("--ca-file", metavar="FILE", help=authority)


class HubClient:
    """One hub."""

    def __init__(self, url: str, token: str = "", ca_file: Optional[str] = None) -> None:
        self.url = _address(url)
        self._session = requests.Session()
        # No proxies and passwords from the environment: the token is for this server only.
        self._session.trust_env = False
        self._session.headers["Accept"] = "application/json"
        self._session.headers["Accept-Encoding"] = "identity"
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.verify = ca_file or True
        self.deadline: Optional[float] = None
        """When no answer is waited for any more (monotonic); each has ANSWER_SECONDS besides."""

    def submit(self, request: CheckRequest, key: str) -> Check:
        """Start a check. Without an answer it is sent once more: with the same key, the hub starts
        it once. Raises HubError.
        """
        headers = {"Idempotency-Key": key}
        try:
            return self.call("POST", CHECKS_PATH, Check, request, headers)
        except NoAnswerError:
            if self.deadline is not None and time.monotonic() >= self.deadline:
                raise
            return self.call("POST", CHECKS_PATH, Check, request, headers)

    def get(self, identity: str) -> CheckDetail:
        """A check with its results. Raises HubError."""
        return self.call("GET", f"{CHECKS_PATH}/{quote(identity, safe='')}", CheckDetail)

    def cancel(self, identity: str) -> None:
        """End a check. Raises HubError."""
        self.call("DELETE", f"{CHECKS_PATH}/{quote(identity, safe='')}", msgspec.Raw)

    def link(self, identity: str) -> str:
        """The page of a check."""
        return f"{self.url}/checks/{identity}"

    def call(
        self,
        method: str,
        path: str,
        shape: type[_Shape],
        body: Any = None,
        headers: Optional[dict[str, str]] = None,
    ) -> _Shape:
        """The answer to one request. Raises HubError."""
        seconds = ANSWER_SECONDS
        if self.deadline is not None:
            seconds = min(seconds, max(self.deadline - time.monotonic(), MIN_ANSWER_SECONDS))
        jobs = Jobs(time.monotonic() + seconds)
        jobs.start("call", lambda: self._exchange(method, path, body, headers or {}, seconds))
        # In a thread: requests limits each read only, and a server may send one byte per second.
        late = NoAnswerError(f"{self.url}: no complete answer within {seconds:.0f} s")
        status, content = jobs.result("call", (0, b""))
        if status == 0:
            raise late
        if status >= 400:
            # While the hub restarts, a proxy answers with such a status.
            error = NoAnswerError if status >= 500 else HubError
            raise error(f"{self.url}: HTTP {status}: {_refusal(status, content)}", status)
        try:
            return msgspec.json.decode(content or b"null", type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise HubError(f"{self.url}: not an answer of a hub: {_beginning(content)!r}") from None

    def _exchange(
        self, method: str, path: str, body: Any, headers: dict[str, str], seconds: float
    ) -> tuple[int, bytes]:
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        try:
            with self._session.request(
                method,
                self.url + path,
                data=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=seconds,
                stream=True,
                allow_redirects=False,  # the token is for this address
            ) as response:
                if 300 <= response.status_code < 400:
                    where = printable(response.headers.get("Location", "nowhere"))
                    text = f"it redirects to {where[:_SHOWN_CHARACTERS]}; write --hub with"
                    raise HubError(f"{self.url}: {text} the address of the hub itself")
                return response.status_code, _content(self.url, response)
        except HubError:
            raise
        # Three libraries parse the server's bytes; their possible exceptions are not documented.
        except Exception as error:  # noqa: BLE001
            raise NoAnswerError(f"{self.url}: {reason_of(error)}") from None


def client_of(options: argparse.Namespace) -> HubClient:
    """The client that the options describe. Raises CommandError."""
    path = options.token_file or os.environ.get(TOKEN_VARIABLE)
    if options.ca_file:
        _read(options.ca_file)
    return HubClient(options.hub, _token(path) if path else "", options.ca_file)


def _token(path: str) -> str:
    text = _read(path).decode("latin-1").strip()
    if not (text.isascii() and text.isprintable() and text):  # a header's error would show it
        raise CommandError(f"{path}: not one line of ASCII: write only the token into it")
    return text


def _read(path: str) -> bytes:
    try:
        return read_file(str(Path(path)))
    except DocumentError as error:
        raise CommandError(f"{path}: {error.problems[0].message}") from None


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError(f"--hub: {printable(url)} is no URL: write https://HOST")
    if "@" in parts.netloc:
        raise CommandError("--hub: the URL has a password: write a token into --token-file")
    if parts.query or parts.fragment:
        raise CommandError("--hub: write the URL without ? and #")
    return url.rstrip("/")


def _content(url: str, response: requests.Response) -> bytes:
    parts, size = [], 0
    while part := response.raw.read(_CHUNK_BYTES, decode_content=False):
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise HubError(f"{url}: an answer of over {MAX_ANSWER_BYTES >> 20} MiB")
    return b"".join(parts)


def _refusal(status: int, content: bytes) -> str:
    """The hub's reason, in one line."""
    try:
        body = msgspec.json.decode(content, type=HubRefusal)
        text = body.detail or body.error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = ""
    hint = "; give a token with --token-file" if status == 401 else ""
    return (printable(text)[:_SHOWN_CHARACTERS] or _beginning(content) or "no reason given") + hint


def _beginning(content: bytes) -> str:
    return printable(content[:60].decode("utf-8", "replace"))
