"""The HTTP server against slow, silent, malformed, oversized and unauthorized requests."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import bcrypt
import pytest
import requests
import trustme

from testbed.node import PATIENCE_SECONDS, Node, run, wait_until

CONFIG = {"probes": {"misbehave": {"behaviours": ["healthy"], "series": 200}}}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return one agent for all tests of this module."""
    with Node(tmp_path_factory.mktemp("web"), CONFIG) as running:
        wait_until(lambda: running.get("/readyz").status_code == 200)
        yield running


def connect(node: Node) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=60)


def exchange(node: Node, data: bytes) -> bytes:
    """Send bytes; return the response until the server closes the connection."""
    with closing(connect(node)) as sock:
        sock.sendall(data)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer


def test_format_follows_the_accept_headers(node: Node) -> None:
    text = node.get(Accept="text/plain")
    assert text.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    metrics = node.get(Accept="application/openmetrics-text; version=1.0.0")
    assert metrics.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert metrics.text.endswith("# EOF\n")
    assert "Content-Encoding" not in node.get(**{"Accept-Encoding": "identity"}).headers
    packed = node.session.get(
        node.url + "/metrics",
        headers={"Accept-Encoding": "gzip"},
        stream=True,
        timeout=PATIENCE_SECONDS,
    )
    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"nodevitals_" in gzip.decompress(packed.raw.read())


def test_collect_limits_a_scrape_to_the_named_probes(node: Node) -> None:
    text = node.get("/metrics?collect[]=node").text
    assert "nodevitals_node_cpus " in text
    assert 'nodevitals_probe_success{probe="node"' in text
    assert "misbehave" not in text
    refused = node.get("/metrics?collect[]=gpu")
    assert refused.status_code == 400
    assert refused.text.startswith("collect[]: unknown probe 'gpu'; known: ")
    assert refused.text.endswith(" scripts, selfcheck, services, switches, transceivers\n")


def test_landing_page_and_unknown_paths(node: Node) -> None:
    assert node.get("/").headers["Content-Type"] == "text/html; charset=utf-8"
    assert 'href="./metrics"' in node.get("/").text
    assert node.get("/nothing").status_code == 404
    assert node.session.head(node.url + "/metrics", timeout=60).text == ""
    assert node.session.delete(node.url + "/metrics", timeout=60).status_code == 501


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /metrics\r\n\r\n", b"nodevitals_"),  # HTTP/0.9
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /metrics HTTP/1.1 x y\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 20000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(3000)), b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(200)) + b"\r\n", b"431"),
        (b"GET /metrics?" + b"a=b&" * 500 + b" HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
    ],
)
def test_malformed_request_gets_an_error_status(node: Node, data: bytes, status: bytes) -> None:
    assert status in exchange(node, data).partition(b"\n")[0] + exchange(node, data)[:200]


def test_request_body_is_not_read_and_cannot_smuggle_a_request(node: Node) -> None:
    smuggled = b"GET /-/reload HTTP/1.1\r\n\r\n"
    data = b"GET /healthz HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(smuggled), smuggled)
    answer = exchange(node, data)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in answer


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 35\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\n Content-Length: 35\r\n\r\n",
        b"GET / HTTP/1.1\r\nX y: z\r\nContent-Length: 35\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: y\rContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\nX: y\n\n",
        b"GET / HTTP/1.1\r\nContent-Length: +0\r\n\r\n",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: identity\r\n\r\n",
        b"GET\x0b/ HTTP/1.1\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
    ],
)
def test_ambiguous_request_is_refused_and_ends_the_connection(node: Node, head: bytes) -> None:
    """The request that follows on the connection could be the body of the first to a proxy."""
    response = exchange(node, head + b"GET /healthz HTTP/1.1\r\nX: 1\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in response


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nConnection: keep-alive, Close\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"GET http://node:9855/healthz HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_response_that_ends_the_connection(node: Node, head: bytes) -> None:
    response = exchange(node, head + b"GET /healthz HTTP/1.1\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 200 ")
    assert response.count(b"HTTP/1.1 ") == 1
    assert b"Connection: close" in response


def test_absolute_target_and_empty_body_keep_the_connection(node: Node) -> None:
    again = b"GET http://node:9855/healthz HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert exchange(node, again * 3 + last).count(b"HTTP/1.1 200 ") == 4


def test_pipelined_requests_on_one_connection(node: Node) -> None:
    with closing(connect(node)) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" * 3)
        answer = b""
        while answer.count(b"\r\n\r\nok\n") < 3:
            answer += sock.recv(65536)


def test_silent_clients_do_not_block_scrapes(node: Node) -> None:
    """Three times the limit of connections, and more all the time; each scrape has a new one."""
    stop, at_limit = threading.Event(), threading.Event()

    def open_connections() -> None:
        with ExitStack() as held:
            for _ in range(400):
                held.enter_context(closing(connect(node)))
            at_limit.set()
            while not stop.wait(0.01):
                held.enter_context(closing(connect(node)))

    clients = threading.Thread(target=open_connections)
    clients.start()
    try:
        assert at_limit.wait(60)
        for _ in range(100):
            assert requests.get(node.url + "/metrics", timeout=60).status_code == 200
    finally:
        stop.set()
        clients.join()
    evicted = "nodevitals_web_connections_evicted_total"
    wait_until(lambda: (node.value(evicted, reason="cap") or 0) >= 272)


def test_clients_that_do_not_read_responses_do_not_block_scrapes(node: Node) -> None:
    with ExitStack() as held:
        for _ in range(20):
            sock = held.enter_context(closing(connect(node)))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 200)
        for _ in range(20):
            assert node.get().status_code == 200


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def web_config(folder: Path, authority: trustme.CA, **more: object) -> Path:
    """Write a web configuration file with a server certificate beside it."""
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    tls = {"cert_file": "cert.pem", "key_file": "key.pem", **more}
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(10)).decode()
    path = folder / "web.yaml"
    path.write_text(
        json.dumps({"tls_server_config": tls, "basic_auth_users": {"prometheus": hashed}})
    )
    return path


def test_tls_and_basic_auth(tmp_path: Path, authority: trustme.CA) -> None:
    path = web_config(tmp_path, authority)
    with Node(tmp_path, CONFIG, f"--web.config.file={path}") as node:
        url = f"https://127.0.0.1:{node.port}"
        session = requests.Session()
        session.trust_env, session.verify = False, str(tmp_path / "ca.pem")
        assert session.get(url + "/healthz", timeout=60).status_code == 200
        for path_asked in ("/metrics", "/", "/nothing"):
            refused = session.get(url + path_asked, timeout=60)
            assert refused.status_code == 401
            assert refused.headers["WWW-Authenticate"].startswith("Basic ")
        for login in (("prometheus", "wrong"), ("unknown", "right"), ("", "")):
            assert session.get(url + "/metrics", auth=login, timeout=60).status_code == 401
        right = ("prometheus", "right")
        assert session.get(url + "/metrics", auth=right, timeout=60).status_code == 200
        assert session.post(url + "/-/reload", timeout=60).status_code == 401
        for header in ("Basic", "Basic !!!", "Basic " + "A" * 9, "Bearer x"):
            answer = session.get(url + "/metrics", headers={"Authorization": header}, timeout=60)
            assert answer.status_code == 401
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(url + "/healthz", timeout=60)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(tmp_path / "ca.pem")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with closing(connect(node)) as sock, pytest.raises((ssl.SSLError, OSError)):
            old.wrap_socket(sock, server_hostname="127.0.0.1")


def test_unfinished_handshakes_do_not_block_other_clients(
    tmp_path: Path, authority: trustme.CA
) -> None:
    path = web_config(tmp_path, authority)
    with Node(tmp_path, CONFIG, f"--web.config.file={path}") as node, ExitStack() as held:
        for number in range(300):
            sock = held.enter_context(closing(connect(node)))
            if number % 2:
                sock.sendall(b"\x16\x03\x01\x02\x00\x01")  # the head of a ClientHello
        url = f"https://127.0.0.1:{node.port}/healthz"
        for _ in range(20):
            answer = requests.get(url, verify=str(tmp_path / "ca.pem"), timeout=60)
            assert answer.status_code == 200


def test_client_without_a_certificate_is_rejected(tmp_path: Path, authority: trustme.CA) -> None:
    path = web_config(
        tmp_path,
        authority,
        client_auth_type="RequireAndVerifyClientCert",
        client_ca_file="ca.pem",
    )
    mine = authority.issue_cert("scraper")
    mine.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    with Node(tmp_path, CONFIG, f"--web.config.file={path}") as node:
        url = f"https://127.0.0.1:{node.port}/healthz"
        verify = str(tmp_path / "ca.pem")
        client = str(tmp_path / "client.pem")
        assert requests.get(url, verify=verify, cert=client, timeout=60).status_code == 200
        with pytest.raises((requests.exceptions.SSLError, requests.exceptions.ConnectionError)):
            requests.get(url, verify=verify, timeout=60)


def test_certificates_are_reloaded(tmp_path: Path, authority: trustme.CA) -> None:
    path = web_config(tmp_path, authority)
    with Node(tmp_path, CONFIG, f"--web.config.file={path}") as node:
        url = f"https://127.0.0.1:{node.port}/healthz"
        other = trustme.CA()
        web_config(tmp_path, other)
        node.hang_up()

        def trusted() -> bool:
            try:
                return requests.get(url, verify=str(tmp_path / "ca.pem"), timeout=60).ok
            except requests.exceptions.SSLError:
                return False

        wait_until(trusted)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{tls_server_config: {cert_file: a}}", "tls_server_config.key_file: missing"),
        ("{tls_server_config: {cert_file: a, key_file: b}}", "tls_server_config.cert_file: "),
        ("{tls_server_config: {cipher_suites: [x]}}", "cipher_suites: unknown key"),
        ("{basic_auth_users: {a: plain}}", "basic_auth_users.a: not a bcrypt hash"),
        ("{http_server_config: {headers: {'X y': z}}}", "headers.X y: not a header"),
        ("[]", "is a list: write a mapping"),
    ],
)
def test_agent_does_not_start_with_an_invalid_web_config(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "web.yaml").write_text(text)
    done = run("serve", f"--web.config.file={tmp_path / 'web.yaml'}")
    assert done.returncode == 1
    assert message in done.stderr
