"""Heads of requests that a proxy before the server could read in another way."""

from __future__ import annotations

import io

import pytest

from nodevitals.web.request_head import HeadReader, HeadTooLargeError, has_body, problem_of

LINE = b"GET /metrics HTTP/1.1\r\n"


@pytest.mark.parametrize(
    "head",
    [
        LINE,
        LINE + b"Host: node:9855\r\nAccept: text/plain;q=0.5,*/*\r\nX-Empty:\r\n",
        LINE + b"X-Bytes: caf\xe9 \tx\r\nX: a\r\nX: b\r\n",
        LINE + b"content-length: \t0 \r\n",
        LINE + b"Content-Length: 00012\r\n",
        LINE + b"Transfer-Encoding: Chunked\r\n",
        b"GET http://node:9855/metrics?collect[]=node HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.0\r\n",
        b"GET /metrics\r\n",
    ],
)
def test_unambiguous_head(head: bytes) -> None:
    assert problem_of([*head.splitlines(keepends=True), b"\r\n"]) == ""


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (b"Content-Length: 0\r\nContent-Length: 30\r\n", "more than one Content-Length"),
        (b"Content-Length: 5\r\ncontent-LENGTH: 5\r\n", "more than one Content-Length"),
        (b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", "beside Transfer-Encoding"),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "beside Transfer-Encoding"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", "more than one Transfer-Enc"),
        (b"Transfer-Encoding: x, chunked\r\n", "other than chunked"),
        (b"Transfer-Encoding: \x0bchunked\r\n", "malformed header line"),
        (b"Transfer-Encoding:\r\n", "other than chunked"),
        *(
            (b"Content-Length:%s\r\n" % value, "malformed Content-Length")
            for value in (b"", b" +5", b" -1", b" 0x5", b" 5, 5", b" 5 5", b" 5_0", b" \xb2")
        ),
        (b"Host: a\r\nHost: b\r\n", "more than one Host"),
        (b"Authorization: a\r\nAuthorization: b\r\n", "more than one Authorization"),
        *(
            (line, "malformed header line")
            for line in (
                b"X: a\r\n Content-Length: 5\r\n",  # folded
                b"X: a\r\n\tContent-Length: 5\r\n",
                b" X: a\r\n",
                b"Content-Length : 5\r\n",
                b"Content Length: 5\r\n",
                b"X\r\nContent-Length: 5\r\n",
                b": a\r\n",
                b"X\xe9: a\r\n",
                b"X\x00: a\r\n",
                b"X: a\x00b\r\n",
                b"X: a\rContent-Length: 5\r\n",
                b"X: a\r\r\n",
                b"X: a\nContent-Length: 5\r\n",
                b"X: a\n",
                b"From a\r\n",
            )
        ),
    ],
)
def test_ambiguous_headers(head: bytes, problem: str) -> None:
    lines = io.BytesIO(LINE + head + b"\r\n").readlines()
    assert problem in problem_of(lines)


@pytest.mark.parametrize(
    "line",
    [
        b"GET /metrics HTTP/1.1\n",
        b"GET  /metrics HTTP/1.1\r\n",
        b" GET /metrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1 \r\n",
        b"GET\t/metrics HTTP/1.1\r\n",
        b"GET /metrics\xa0HTTP/1.1\r\n",
        b"GET /m\x85etrics HTTP/1.1\r\n",
        b"GET /metrics HTTP/1.1\r\r\n",
        b"GET /metrics HTTP/01.1\r\n",
        b"GET /metrics HTTP/1.\xb2\r\n",
        b"G(T /metrics HTTP/1.1\r\n",
        b"POST /metrics\r\n",
    ],
)
def test_malformed_request_line(line: bytes) -> None:
    assert problem_of([line, b"\r\n"]) == "malformed request line"


def test_transfer_encoding_before_http_1_1() -> None:
    head = [b"GET / HTTP/1.0\r\n", b"Transfer-Encoding: chunked\r\n", b"\r\n"]
    assert "not in HTTP/1.1" in problem_of(head)


@pytest.mark.parametrize("end", [b"", b"\n", b"X: a\r\n", b"Content-Le"])
def test_head_that_does_not_end(end: bytes) -> None:
    assert problem_of([LINE, end]).startswith("incomplete head")
    assert problem_of([]).startswith("incomplete head")


def test_has_body() -> None:
    assert not has_body(None, None)
    assert not has_body("0", None)
    assert not has_body("000", None)
    assert has_body("10", None)
    assert has_body(None, "chunked")


def test_head_reader_limits_each_head_and_keeps_its_lines() -> None:
    reader = HeadReader(io.BufferedReader(io.BytesIO(b"a\r\n\r\n" + b"b" * 20_000)))
    assert [reader.readline(), reader.readline()] == reader.lines == [b"a\r\n", b"\r\n"]
    reader.begin()
    assert reader.lines == []
    with pytest.raises(HeadTooLargeError):
        reader.readline()
