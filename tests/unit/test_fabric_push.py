"""`fabric collective --push`: what is sent, and one line for each way in which it can fail."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import generate_latest

from nodevitals.checks.requests.collective import Collective
from nodevitals.commands.fabric.push import PushError, metrics, push
from nodevitals.probes.fabric.tools.report import Report, ResultRow

ROW = ResultRow(message_bytes=1024, operation="all_reduce", bus_bandwidth_bytes_per_second=2e9)
GOOD = Report(outcome="ok", rows=(ROW,))
FAILED = Report(outcome="failed", rows=())


@contextmanager
def gateway(answer: bytes) -> Iterator[str]:
    """A server that reads one request, answers with these bytes and hangs up.

    It reads the body as well: else the kernel resets the connection, and the answer may be lost.
    """

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as request:
            length = 0
            while (line := request.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            request.read(length)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def wanted() -> Collective:
    return Collective(backend="nccl", operation="all_reduce", nodes=("a", "b"), devices_per_node=8)


def test_a_failure_has_no_bandwidth() -> None:
    good = generate_latest(metrics(wanted(), GOOD)).decode()
    assert 'nodevitals_fabric_bus_bandwidth_bytes_per_second{message_bytes="1024"' in good
    assert 'collective_success{operation="all_reduce",tool="nccl"} 1.0' in good
    failed = generate_latest(metrics(wanted(), FAILED)).decode()
    assert "bus_bandwidth" not in failed
    assert 'collective_success{operation="all_reduce",tool="nccl"} 0.0' in failed


# urllib leaves the socket of a garbled answer to the garbage collector: it is collected here,
# not while another test runs.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 9\r\n\r\nno\nlabels", "HTTP 400: no labels"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 9999\r\n\r\nfull", "HTTP 500: full"),
        (b"HTTP/1.1 307 There\r\nLocation: file:///etc/passwd\r\n\r\n", "HTTP 307"),
        (b"\x16\x03\x01 garbage\nand more", "garbage"),
        (b"", "closed connection without response"),
    ],
)
def test_an_answer_that_is_no_success_is_one_line(answer: bytes, words: str) -> None:
    with gateway(answer) as url, pytest.raises(PushError) as raised:
        push(url, wanted(), GOOD)
    text = str(raised.value)
    del raised
    gc.collect()
    assert text.startswith(f"{url}: ")
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "url",
    [
        "gateway:9091",
        "file:///etc/passwd",
        "http://",
        "http://a b/",
        "http://[::1",
        "http://\udcff/",
    ],
)
def test_what_is_no_url_is_one_line(url: str) -> None:
    with pytest.raises(PushError) as raised:
        push(url, wanted(), GOOD)
    assert str(raised.value).startswith(url)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["http://lin:hunter2@gateway:9091", "http://lin:hunter2@[::1"])
def test_a_password_in_the_url_is_not_printed(url: str) -> None:
    """It would be taken for the name of the host."""
    with pytest.raises(PushError) as raised:
        push(url, wanted(), GOOD)
    assert "hunter2" not in str(raised.value)
    assert "password" in str(raised.value)
