"""`nodevitals fabric check --hub`: whatever the server does, one line and status 2."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from testbed.node import free_port, run

Answer = Callable[[socket.socket], None]
CHECK = ("fabric", "check", "--nodes", "gpu-1,gpu-2", "--device", "mlx5_0")


class Server:
    """Listens on loopback; each connection gets the same answer to what it sends first."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self.requests.append(connection.recv(65536))
            self._answer(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(closing(Server(answer)))


def says(status: str, body: str = "", *headers: str) -> Answer:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", *headers, "", body)
    return lambda connection: connection.sendall("\r\n".join(lines).encode())


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    stop = threading.Event()
    while not stop.wait(0.1):  # until the client closes the connection
        connection.sendall(b" ")


def flood(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    while True:
        connection.sendall(chunk)


def hang(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda connection: None, "not HTTP: Remote end closed connection without response"),
        (lambda connection: connection.sendall(b"\x00\xff" * 5000), "not HTTP: "),
        (says("200 OK", "<html>"), "not an answer of a hub: '<html>'"),
        (says("200 OK"), "not an answer of a hub: ''"),
        (says("200 OK", "[" * 100_000), "not an answer of a hub: '[[["),
        (says("200 OK", '{"id": "20260101-000000-aaaaaa"}'), "not an answer of a hub: "),
        (says("302 Found", "", "Location: http://other/"), "it redirects to http://other/; write"),
        (says("401 Unauthorized", '{"detail": "no token"}'), "HTTP 401: no token; give a token"),
        (says("422 Unprocessable", '{"detail": "a\\nb\\u001b[31m"}'), "HTTP 422: a\\nb\\x1b[31m"),
        (says("500 Error", "oh"), "HTTP 500: oh"),
    ],
)
def test_what_a_server_answers_is_one_line(
    serve: Callable[[Answer], Server], answer: Answer, problem: str
) -> None:
    server = serve(answer)
    done = run(*CHECK, "--hub", server.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{server.url}: {problem}"), done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("answer", [drip, hang])
def test_a_slow_server_is_not_waited_for(
    serve: Callable[[Answer], Server], answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, with a shorter wait."""
    from nodevitals.checks.model import CheckRequest
    from nodevitals.commands.hub import client as hub_client

    monkeypatch.setattr(hub_client, "ANSWER_SECONDS", 0.2)
    client = hub_client.HubClient(serve(answer).url)
    with pytest.raises(hub_client.NoAnswerError, match=r"no complete answer|timed out"):
        client.submit(CheckRequest(kind="matrix"), "key")


def test_an_endless_answer_is_not_read(
    serve: Callable[[Answer], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nodevitals.commands.hub import client as hub_client

    monkeypatch.setattr(hub_client, "MAX_ANSWER_BYTES", 1 << 20)
    with pytest.raises(hub_client.HubError, match="an answer of over 1 MiB"):
        hub_client.HubClient(serve(flood).url).get("20260101-000000-aaaaaa")


def test_without_an_answer_the_same_key_is_sent_once_more(
    serve: Callable[[Answer], Server],
) -> None:
    server = serve(lambda connection: None)
    run(*CHECK, "--hub", server.url)
    keys = [
        line
        for request in server.requests
        for line in request.split(b"\r\n")
        if line.lower().startswith(b"idempotency-key: ")
    ]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_the_token_is_sent_to_the_hub_only(
    serve: Callable[[Answer], Server], tmp_path: Path
) -> None:
    """Neither to where it redirects, nor to a proxy of the environment."""
    other = serve(says("200 OK"))
    hub = serve(says("307 Temporary Redirect", "", f"Location: {other.url}/"))
    token = tmp_path / "token"
    token.write_text("secret-of-the-hub\n")
    done = run(*CHECK, "--hub", hub.url, NODEVITALS_TOKEN_FILE=str(token), http_proxy=other.url)
    assert done.returncode == 2
    assert b"Authorization: Bearer secret-of-the-hub\r\n" in hub.requests[0]
    assert other.requests == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--hub", "hub.example.org"), "--hub: hub.example.org is no URL: write https://HOST"),
        (("--hub", "https://a:b@h"), "--hub: the URL has a password: write a token into"),
        (("--hub", "http://h", "--token-file", "/nowhere"), "/nowhere: "),
        (("--hub", "http://h", "--ca-file", "/nowhere"), "/nowhere: "),
        (("--hub", "http://h", "--timeout", "3"), "--timeout is for tests by ssh"),
        (("--hub", "http://h", "--queue-pairs", "65"), "Expected `int` <= 64"),
        (("--hub", "http://h", "--where", "pool"), "--where: 'pool' is not NAME=VALUE"),
        (("--limit", "3"), "--limit needs --hub"),
        (("--preset", "night"), "--preset: no 'night': choose hccl-all-reduce"),
    ],
)
def test_wrong_options_are_one_line(arguments: tuple[str, ...], problem: str) -> None:
    done = run(*CHECK, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(problem), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_server_is_one_line() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run(*CHECK, "--hub", url)
    assert (done.returncode, done.stderr) == (2, f"{url}: Connection refused\n")
