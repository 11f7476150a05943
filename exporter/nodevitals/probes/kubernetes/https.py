"""One GET with a token over HTTPS: bounded in time and in bytes, without redirects.

In: a URL, a token file, the authorities. Out: the body of a 200, or a CallError that says what is
missing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from typing import NamedTuple, Optional

from nodevitals.probe import ProbeError
from nodevitals.probes.common.https import Connection, tls_context
from nodevitals.probes.kubernetes.kubelet import CallError

MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_TOKEN_BYTES = 64 * 1024
MAX_RETRY_SECONDS = 600.0
_SHOWN_CHARACTERS = 160


class GoneError(Exception):
    """410: the list that a `continue` token belongs to has expired. Start over."""


class ThrottledError(CallError):
    """429 or 503 with Retry-After: not before so many seconds."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__("throttled", "throttled", message)
        self.seconds = seconds


class Server(NamedTuple):
    """An HTTPS server and how to authenticate. `ca_file` None: its certificate is not verified."""

    url: str
    token_file: str
    ca_file: Optional[str]
    name: str
    """For messages: `API server` or `kubelet`."""


def get(server: Server, path: str, seconds: float, needed: str) -> bytes:
    """The body of a 200. Raises GoneError, CallError; `needed` names the permission that a 403
    lacks.
    """
    token = read_token(server.token_file)
    context = tls_context(server.ca_file, verify=server.ca_file is not None)
    connection = Connection(server.url, context, MAX_BODY_BYTES)
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    what = f"{server.name} at {server.url}: GET {path.partition('?')[0]}"
    deadline = time.monotonic() + seconds
    try:
        answer = connection.get(path, {**headers, "Connection": "close"}, deadline)
    except ssl.SSLCertVerificationError as error:
        text = f"{what}: {error.verify_message}: is ca_file right?"
        raise CallError("error", "tls", text) from None
    except ssl.SSLError as error:
        if _is_over(deadline):
            raise _late(what, seconds) from None
        raise CallError("error", "tls", f"{what}: {error.reason or error}") from None
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, TimeoutError) or _is_over(deadline):
            raise _late(what, seconds) from None
        text = f"{what}: {getattr(error, 'strerror', None) or error or type(error).__name__}"
        raise CallError("unavailable", "api", text) from None
    finally:
        connection.close()
    if _is_over(deadline):
        raise _late(what, seconds)
    if answer.status != 200:
        raise _failure(answer.status, answer.headers, answer.body, what, needed)
    if len(answer.body) > MAX_BODY_BYTES:
        raise CallError("error", "too_large", f"{what}: over {MAX_BODY_BYTES} bytes")
    return answer.body


def read_token(path: str) -> str:
    """The token. Raises ProbeError."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{path}: {getattr(error, 'strerror', None) or 'not in ASCII'}: no token"
        raise ProbeError("no_token", text) from None
    if not token or not token.isprintable():
        raise ProbeError("no_token", f"{path}: no token")
    return token


def _is_over(deadline: float) -> bool:
    return time.monotonic() >= deadline


def _late(what: str, seconds: float) -> CallError:
    return CallError("timeout", "timeout", f"{what}: no complete answer within {seconds:.1f} s")


def _failure(
    status: int, headers: http.client.HTTPMessage, body: bytes, what: str, needed: str
) -> Exception:
    text = f"{what}: {status}: {_message(body)}"
    if status == 410:
        return GoneError(text)
    if status == 401:
        return CallError("denied", "unauthorized", f"{text}: the token is not accepted")
    if status == 403:
        return CallError("denied", "forbidden", f"{text}: the agent's role needs {needed}")
    retry = headers.get("Retry-After", "")
    if status == 429 or (status == 503 and retry):
        seconds = min(float(retry), MAX_RETRY_SECONDS) if _is_number(retry) else 1.0
        return ThrottledError(text, seconds)
    return CallError("error" if status < 500 else "unavailable", "api", text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _message(body: bytes) -> str:
    """The message of a Status object, else the beginning of the body, in one line."""
    text = body[:4096].decode("utf-8", "replace")
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        text = str(json.loads(text).get("message", text))
    return " ".join(text.split())[:_SHOWN_CHARACTERS]
