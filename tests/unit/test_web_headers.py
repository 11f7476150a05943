"""Content negotiation by request headers, and listen addresses."""

from __future__ import annotations

import socket

import pytest

from nodevitals.quantities import parse_listen_address
from nodevitals.web.request_head import accepts_gzip, prefers_openmetrics


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text", True),
        # Prometheus 2.42
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
        # Prometheus 3 configured to prefer the text format
        ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", False),
        ("application/openmetrics-text;q=0,text/plain;q=0", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=x", False),
        (";;;,,,q=", False),
    ],
)
def test_prefers_openmetrics(accept: str, openmetrics: bool) -> None:
    assert prefers_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("", False),
        ("br", False),
    ],
)
def test_accepts_gzip(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected


def test_parse_listen_address() -> None:
    assert parse_listen_address("127.0.0.1:1") == (socket.AF_INET, ("127.0.0.1", 1))
    assert parse_listen_address("[::1]:2") == (socket.AF_INET6, ("::1", 2))
    assert parse_listen_address(":3")[1][1] == 3
    for wrong in ("", "localhost", ":", ":x", ":70000"):
        with pytest.raises(ValueError, match="listen address"):
            parse_listen_address(wrong)
