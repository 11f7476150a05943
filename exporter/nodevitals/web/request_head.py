"""Checks that a request's head has one meaning only, for this server and any proxy before it, and
reads the requested format.

In: the lines of a head as they were received, or a header. The standard library accepts more than
RFC 9112: lines that end with LF alone, folded lines, names with spaces, two lengths. Where a proxy
reads such a head differently, a client could hide a request in a body.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

MAX_HEAD_BYTES = 16 * 1024

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TARGET = rb"[\x21-\x7e]+"
_HTTP_09 = rb"GET " + _TARGET
_REQUEST_LINE = re.compile(
    rb"(?:%s %s HTTP/[0-9]\.[0-9]|%s)\r\n" % (_TOKEN, _TARGET, _HTTP_09),
)
_HEADER_LINE = re.compile(rb"(%s):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n" % _TOKEN)
# Headers for the routing, the length or the user of a request: where one occurs twice, one reader
# may use the first, another the second.
_SINGLE = (b"host", b"content-length", b"transfer-encoding", b"authorization")


class HeadTooLargeError(Exception):
    """The head of a request exceeds its limit."""


class HeadReader:
    """The request stream, with a limit on the bytes of one head; `lines` are the head's lines."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self.begin()

    def begin(self) -> None:
        """Start the head of another request."""
        self.lines: list[bytes] = []
        self._left = MAX_HEAD_BYTES

    def readline(self, _limit: int = -1) -> bytes:
        """The next line of the head. Raises HeadTooLargeError at the limit."""
        line = self._stream.readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise HeadTooLargeError
        self.lines.append(line)
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


def problem_of(lines: Sequence[bytes]) -> str:
    """What is wrong with a head (the request line, the headers, the empty line); '' if nothing."""
    if not lines or lines[-1] != b"\r\n":
        return "incomplete head, or an empty line that does not end with CRLF"
    if not _REQUEST_LINE.fullmatch(lines[0]):
        return "malformed request line"
    values: dict[bytes, bytes] = {}
    for line in lines[1:-1]:
        header = _HEADER_LINE.fullmatch(line)
        if header is None:
            return "malformed header line"
        name = header[1].lower()
        if name in _SINGLE and name in values:
            return f"more than one {name.decode().title()} header"
        values[name] = header[2].strip(b" \t")
    return _body_problem(values, is_http_11=lines[0].endswith(b"/1.1\r\n"))


def _body_problem(values: dict[bytes, bytes], is_http_11: bool) -> str:
    length, coding = values.get(b"content-length"), values.get(b"transfer-encoding")
    if length is not None and not re.fullmatch(rb"[0-9]+", length):
        return "malformed Content-Length"
    if coding is None:
        return ""
    if length is not None:
        return "Content-Length beside Transfer-Encoding"
    if not is_http_11 or coding.lower() != b"chunked":
        return "Transfer-Encoding other than chunked, or not in HTTP/1.1"
    return ""


def has_body(content_length: str | None, transfer_encoding: str | None) -> bool:
    """Whether a body follows a head without a problem."""
    return transfer_encoding is not None or bool((content_length or "0").strip("0"))


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header prefers OpenMetrics to the text format."""
    quality = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        values = dict(item.split("=", 1) for item in parameters if "=" in item)
        if kind in quality and values.get("version", "1.0.0") in ("1.0.0", "0.0.1", "0.0.4"):
            quality[kind] = max(quality[kind], _quality(values.get("q", "1")))
    preferred, plain = quality.values()
    return preferred > 0 and preferred >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header takes gzip."""
    for part in accept_encoding.split(","):
        name, _, parameter = part.strip().lower().partition(";")
        if name.strip() == "gzip":
            return _quality(parameter.strip().removeprefix("q=") or "1") > 0
    return False


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
