"""The HTTP server of a real hub: slow, many and hostile clients, TLS, logins, reloads."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import msgspec
import pytest
import trustme
import yaml

from nodevitals_hub.store.check_store import Store
from nodevitals_hub.web.access import Tokens
from nodevitals_hub.web.gate import HEADERS
from testbed.hub import HubProcess
from testbed.hubpages import keep, matrix_check
from testbed.node import SOURCES, wait_until

IDENTITY = "20260101-000000-abcdef"
NODES = {"static": [{"targets": [f"gpu-{number}" for number in range(8)]}]}
HEAD = b"GET /api/v1/me HTTP/1.1\r\nHost: hub\r\n"


class Web(HubProcess):
    """A hub with a client of its own."""

    authority: trustme.CA | None = None

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """One request on a connection of its own."""
        if self.authority is None:
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        else:
            context = ssl.create_default_context()
            self.authority.configure_trust(context)
            link = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=context)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            link.request(method, path, body, sent)
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            link.close()

    def status(self, path: str, **headers: str) -> int:
        """The status of a GET; 0 where there is no answer."""
        try:
            return self.ask(path, "GET", None, **headers)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A bare connection."""
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(30)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def send(self, data: bytes) -> bytes:
        """Send bytes, and return what comes until the end."""
        with self.connect() as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return everything(sock)

    def signal(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)


def everything(sock: socket.socket) -> bytes:
    """What comes until the end of the connection."""
    found = b""
    try:
        while part := sock.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def seed(state: Path, count: int) -> None:
    """Store a check of so many nodes before the hub starts."""

    async def whole() -> None:
        store = Store(str(state))
        check, results = matrix_check(count, "gpu-7", IDENTITY, "x" * 600)
        await keep(store, msgspec.structs.replace(check, created=time.time()), results)
        await store.close()

    state.mkdir(parents=True, exist_ok=True)
    asyncio.run(whole())


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A hub for all tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("hub")
    seed(folder / "hub", 100)
    found = Web(folder, simulated=True, nodes=NODES, access={"anonymous": "run"})
    times = ("REQUEST_SECONDS", "STALLED_SECONDS", "HEAD_SECONDS")
    found.environment = {**dict.fromkeys(times, "2"), "REST_SECONDS": "0.2"}
    with found:
        wait_until(lambda: found.status("/healthz") == 200)
        yield found
    assert "Traceback" not in found.log.read_text()


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"GET / HT",
        HEAD,
        HEAD + b"\r\n" + HEAD,
    ],
)
def test_a_slow_head_is_ended_and_others_are_answered(hub: Web, part: bytes) -> None:
    with hub.connect() as slow:
        slow.sendall(part)
        assert hub.status("/healthz") == 200
        assert everything(slow).count(b"HTTP/1.1") == part.count(b"\r\n\r\n")


@pytest.mark.parametrize(
    "part",
    [
        b"Content-Length: 100\r\n\r\nkind",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nki",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nk\r\n" * 5000,
    ],
)
def test_a_slow_body_is_refused_and_others_are_answered(hub: Web, part: bytes) -> None:
    for path in (b"/checks/new", b"/nothing/./here"):
        with hub.connect() as slow:
            slow.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: hub\r\n" + part)
            assert hub.status("/healthz") == 200
            head = everything(slow).splitlines()[0]
            assert head.split()[1] == (b"408" if path == b"/checks/new" else b"404")


def test_a_client_that_does_not_read_is_disconnected(hub: Web) -> None:
    with hub.connect(receive_bytes=4096) as stalled:
        stalled.sendall(
            b"GET /api/v1/checks/" + IDENTITY.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        )
        stalled.recv(1000)
        port = stalled.getsockname()[1]
        wait_until(lambda: not _is_established(hub.port, port), 20)


def _is_established(port: int, peer: int) -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    pair = (f":{port:04X}", f":{peer:04X}")
    return any(
        line.split()[1].endswith(pair[0])
        and line.split()[2].endswith(pair[1])
        and line.split()[3] == "01"
        for line in lines
    )


@pytest.mark.parametrize("part", [b"", HEAD, HEAD + b"Content-Length: 100\r\n\r\n"])
def test_500_idle_connections_keep_no_other_client_out(hub: Web, part: bytes) -> None:
    idle = [hub.connect() for _ in range(500)]
    try:
        for sock in idle:
            sock.sendall(part)
        for path in ("/healthz", "/", "/api/v1/checks", "/metrics"):
            assert hub.status(path) == 200
    finally:
        for sock in idle:
            sock.close()


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (400, b"nonsense\r\n\r\n"),
        (400, HEAD + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"),
        (400, HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        (501, HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        (501, HEAD + b"Transfer-Encoding: identity\r\n\r\n"),
        (400, HEAD + b"Content-Length: -1\r\n\r\n"),
        (400, HEAD + b"Content-Length: 0x10\r\n\r\n"),
        (400, HEAD + b"Host: other\r\n\r\n"),
        (400, HEAD + b"Authorization: a\r\nAuthorization: b\r\n\r\n"),
        (400, b"GET / HTTP/1.1\r\n\r\n"),
        (400, HEAD + b"A b: c\r\n\r\n"),
        (400, HEAD + b"A : c\r\n\r\n"),
        (505, b"GET / HTTP/3.0\r\nHost: hub\r\n\r\n"),
        (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
        (431, HEAD + b"A: " + b"x" * 40_000 + b"\r\n\r\n"),
        (414, b"GET /?" + b"x" * 5000 + b" HTTP/1.1\r\nHost: hub\r\n\r\n"),
        (413, b"POST /api/v1/checks HTTP/1.1\r\nHost: hub\r\nContent-Length: 999999999\r\n\r\n"),
    ],
)
def test_a_request_with_two_meanings_gets_one_refusal(hub: Web, status: int, data: bytes) -> None:
    """What follows is not taken for a request. What is no HTTP gets no text."""
    answer = hub.send(data + b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [str(status).encode()], answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    if not body:
        assert status in (400, 431, 501)
        return
    assert set(json.loads(body)) == {"error"}
    for name in HEADERS:
        assert f"{name}:".encode() in head.lower()


def test_bare_line_feeds_and_chunks_hide_no_second_request(hub: Web) -> None:
    hidden = b"GET /metrics HTTP/1.1\r\nHost: hub\r\n\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(hidden), hidden)
    for head in (
        b"POST /checks/new HTTP/1.1\nHost: hub\nTransfer-Encoding: chunked\n\n",
        b"POST /checks/new HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        answer = hub.send(head + body)
        assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"422"]
        assert b"nodevitals_" not in answer


def test_a_chunked_body_is_bounded(hub: Web) -> None:
    chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
    for path in (b"/checks/new", b"/api/v1/checks"):
        head = b"POST %s HTTP/1.1\r\nHost: hub\r\nTransfer-Encoding: chunked\r\n" % path
        head += b"Content-Type: application/json\r\n\r\n"
        assert b" 413 " in hub.send(head + chunk * 5 + b"0\r\n\r\n").splitlines()[0]


@pytest.mark.parametrize(
    "path",
    [
        "/static/../server.py",
        "/static/%2e%2e/server.py",
        "/static/..%2fserver.py",
        "/static/style.css/../../access.py",
        "//api/v1/me",
        "/api//v1/me",
        "/./api/v1/me",
        "/api/v1/checks/..%2f..%2fetc%2fpasswd",
        "/checks/%00",
        "/%ff%fe",
        "/%zz",
        "/%",
        "/etc/passwd",
        "*",
    ],
)
def test_a_strange_path_is_no_page(hub: Web, path: str) -> None:
    status, _, body = hub.ask(path)
    assert status == 404
    assert "error" in json.loads(body)


def test_other_protocols_get_no_page(hub: Web) -> None:
    with httpx.Client(http1=False, http2=True) as client:
        assert client.get(f"http://127.0.0.1:{hub.port}/healthz").status_code == 505
    switch = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    found = hub.ask("/", "GET", None, **switch, sec_websocket_key="MTIzNDU2Nzg5MDEyMzQ1Ng==")
    assert found[0] == 403
    answer = hub.send(HEAD + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert b'"role"' not in answer


def test_head_and_other_methods(hub: Web) -> None:
    for path in ("/", "/healthz", "/metrics", "/static/style.css", "/api/v1/checks", "/nothing"):
        status, headers, body = hub.ask(path, "HEAD")
        got = hub.ask(path)
        assert (status, body) == (got[0], b"")
        assert headers["content-type"] == got[1]["content-type"]
    for method in ("PUT", "TRACE", "PROPFIND", "BREW"):
        status, headers, body = hub.ask("/", method)
        assert status == 405
        assert "\n" not in json.loads(body)["error"]
        assert "GET" in headers["allow"]
    assert hub.ask("/", "OPTIONS")[0] == 204


def test_a_connection_is_used_again(hub: Web) -> None:
    two = HEAD + b"\r\n" + HEAD + b"Connection: close\r\n\r\n"
    with hub.connect() as sock:
        sock.sendall(two)
        assert everything(sock).count(b"HTTP/1.1 200") == 2


def test_every_response_has_the_security_headers(hub: Web) -> None:
    for path in ("/", "/metrics", "/healthz", "/static/style.css", "/nothing", "/api/v1/checks"):
        _, headers, _ = hub.ask(path)
        for name, value in HEADERS.items():
            if (path, name) != ("/static/style.css", "cache-control"):
                assert headers[name] == value, (path, name)
        assert "server" not in headers


def test_an_address_in_use_ends_the_start_with_one_line(hub: Web, tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text(f"state_directory: {tmp_path}\n")
    argv = [sys.executable, "-m", "nodevitals", "hub", f"--config.file={tmp_path / 'hub.yaml'}"]
    for listen, text in ((f"127.0.0.1:{hub.port}", "in use"), ("nonsense", "listen-address")):
        done = subprocess.run(
            [*argv, f"--web.listen-address={listen}"],
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, "PYTHONPATH": SOURCES},
            check=False,
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert text in done.stderr


def test_a_store_that_cannot_be_read_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "hub.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    (tmp_path / "hub.yaml").write_text(f"state_directory: {tmp_path}\n")
    argv = [sys.executable, "-m", "nodevitals", "hub", f"--config.file={tmp_path / 'hub.yaml'}"]
    done = subprocess.run(
        [*argv, "--web.listen-address=127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": SOURCES},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "hub.db: written by a newer version" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_hub_with_tls_answers_behind_connections_without_a_handshake(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate(tmp_path, authority)
    files = {"cert_file": "tls.crt", "key_file": "tls.key"}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({"tls_server_config": files}))
    hub = Web(tmp_path, simulated=True, nodes=NODES)
    hub.options = [f"--web.config.file={tmp_path / 'web.yaml'}"]
    hub.environment = {"HANDSHAKE_SECONDS": "2"}
    with hub, ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", hub.port)))
            for _ in range(500)
        ]
        digest_of(hub)
        assert idle[0].recv(1) == b""


def certificate(folder: Path, authority: trustme.CA) -> None:
    """Write a new certificate for the hub."""
    made = authority.issue_cert("127.0.0.1")
    made.private_key_pem.write_to_path(folder / "tls.key")
    made.cert_chain_pems[0].write_to_path(folder / "tls.crt")


def under_way(hub: Web) -> ssl.SSLSocket:
    """A request, but for the end of its body."""
    assert hub.authority is not None
    context = ssl.create_default_context()
    hub.authority.configure_trust(context)
    request = context.wrap_socket(hub.connect(), server_hostname="127.0.0.1")
    request.sendall(b"POST /checks/new HTTP/1.1\r\nHost: hub\r\nContent-Length: 8\r\n\r\nkind")
    return request


def digest_of(hub: Web) -> str:
    """The fingerprint of the certificate that the hub shows."""
    text = ssl.get_server_certificate(("127.0.0.1", hub.port), timeout=30)
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_certificate_is_replaced_at_sighup_and_a_broken_file_is_not(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate(tmp_path, authority)
    web = tmp_path / "web.yaml"
    tls: dict[str, Any] = {"cert_file": "tls.crt", "key_file": "tls.key"}
    web.write_text(yaml.safe_dump({"tls_server_config": tls}))
    hub = Web(tmp_path, simulated=True, nodes=NODES)
    hub.authority = authority
    hub.options = [f"--web.config.file={web}"]
    with hub:
        wait_until(lambda: hub.status("/healthz") == 200)
        assert b"HTTP/1.1 200" not in hub.send(HEAD + b"\r\n")
        first = digest_of(hub)
        certificate(tmp_path, authority)
        with under_way(hub) as request:
            hub.signal(signal.SIGHUP)
            wait_until(lambda: digest_of(hub) != first)
            request.sendall(b"kind")
            assert b"HTTP/1.1 4" in everything(request)
        second = digest_of(hub)
        (tmp_path / "tls.key").write_text("nonsense\n")
        hub.signal(signal.SIGHUP)
        wait_until(lambda: "certificate or key not usable" in hub.log.read_text())
        assert digest_of(hub) == second
        assert hub.status("/healthz") == 200
        certificate(tmp_path, authority)
        authority.cert_pem.write_to_path(tmp_path / "ca.crt")
        more = {"client_ca_file": "ca.crt", "client_auth_type": "RequireAndVerifyClientCert"}
        web.write_text(yaml.safe_dump({"tls_server_config": {**tls, **more}}))
        hub.signal(signal.SIGHUP)
        wait_until(lambda: hub.status("/healthz") == 0)
        assert "Traceback" not in hub.log.read_text()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_users_have_roles_and_wrong_passwords_delay_no_one(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(11)).decode()
    web = tmp_path / "web.yaml"
    web.write_text(yaml.safe_dump({"basic_auth_users": {"alice": hashed, "bob": hashed}}))
    access = {"anonymous": None, "users": {"alice": "act"}}
    hub = Web(tmp_path, simulated=True, nodes=NODES, access=access)
    hub.options = [f"--web.config.file={web}"]
    with hub:
        wait_until(lambda: hub.status("/healthz") == 200)
        for user, role in (("alice", "act"), ("bob", "read")):
            _, _, body = hub.ask("/api/v1/me", authorization=basic(user, "secret"))
            assert json.loads(body) == {"name": user, "role": role}
        for wrong in (basic("alice", "a\0b"), basic("alice", "x" * 500), "Basic", "Digest x"):
            assert hub.status("/api/v1/me", authorization=wrong) == 401
        found: list[int] = []

        def guess(number: int) -> None:
            found.append(hub.status("/api/v1/me", authorization=basic("alice", f"no {number}")))

        threads = [threading.Thread(target=guess, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        health = [hub.status("/healthz") for _ in range(20)]
        known = hub.status("/api/v1/me", authorization=basic("alice", "secret"))
        for thread in threads:
            thread.join()
        assert (set(health), known) == ({200}, 200)
        assert set(found) == {401, 429}
        assert len(found) == 20


TOKEN = "0123456789abcdef-a-token"


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "name: ci",
        "- {name: ci, role: run}",
        "- {name: ci, role: king, token: %s}",
        "- {name: ci, role: run, token: %s, sha256: aa}",
        "- {name: '', role: run, token: %s}",
        "- [",
        "\xff\x00",
    ],
)
def test_a_wrong_tokens_file_is_one_line_without_the_token(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.yaml"
    path.write_bytes(text.replace("%s", TOKEN).encode("latin-1"))
    path.chmod(0o600)
    tokens = Tokens()
    tokens.refresh(str(path))
    assert tokens.find(TOKEN) is None
    [record] = caplog.records
    assert str(path) in record.getMessage()
    assert "\n" not in record.getMessage()
    assert TOKEN not in record.getMessage()


def test_a_token_stays_valid_while_its_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"
    others = "".join(f"- {{name: n{n}, role: run, sha256: {'a' * 64}}}\n" for n in range(100))
    path.write_text(f"- {{name: ci, role: run, token: {TOKEN}}}\n{others}")
    path.chmod(0o600)
    tokens = Tokens()
    tokens.refresh(str(path))
    stop = threading.Event()

    def again() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            os.utime(path, ns=(number, number))
            tokens.refresh(str(path))

    thread = threading.Thread(target=again)
    thread.start()
    try:
        assert all(tokens.find(TOKEN) for _ in range(2000))
    finally:
        stop.set()
        thread.join()


def test_a_replaced_token_works_and_a_removed_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "tokens.yaml"

    def write(*tokens: str, mode: int = 0o600) -> None:
        text = "".join(f"- {{name: ci, role: act, token: {one}}}\n" for one in tokens)
        new = tmp_path / "new"
        new.write_text(text or "[]\n")
        new.chmod(mode)
        new.replace(path)

    write(TOKEN)
    access = {"anonymous": None, "tokens_file": str(path)}
    hub = Web(tmp_path, simulated=True, nodes=NODES, access=access)
    with hub:

        def answers(token: str, status: int) -> None:
            wait_until(lambda: hub.status("/api/v1/me", authorization=f"Bearer {token}") == status)

        answers(TOKEN, 200)
        write(TOKEN[::-1])
        answers(TOKEN[::-1], 200)
        answers(TOKEN, 401)
        write(TOKEN, mode=0o644)
        answers(TOKEN[::-1], 401)
        assert hub.status("/api/v1/me", authorization=f"Bearer {TOKEN}") == 401
        wait_until(lambda: "chmod 600" in hub.log.read_text())
        write(TOKEN)
        answers(TOKEN, 200)
        write()
        answers(TOKEN, 401)
