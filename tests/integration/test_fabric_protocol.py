"""The protocol between two agents under arbitrary bytes: from a client, and from a server."""

from __future__ import annotations

import json
import logging
import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nodevitals.linux.host import Host
from nodevitals.probes.fabric.admission import Meter, Occupancy
from nodevitals.probes.fabric.members import MemberLists
from nodevitals.probes.fabric.order_book import OrderBook
from nodevitals.probes.fabric.orders import OrderRefused, OrderStatus
from nodevitals.probes.fabric.protocol import (
    MAX_BODY_BYTES,
    Closed,
    FabricClient,
    Opened,
    OpenRequest,
    Refused,
    TransportError,
)
from nodevitals.probes.fabric.secrets import HubToken, Secrets
from nodevitals.probes.fabric.server import FabricServer
from nodevitals.probes.fabric.server_side import Guard, ServerSide
from nodevitals.probes.fabric.settings import (
    FabricSettings,
    FabricTlsSettings,
    HubSettings,
    StaticSource,
    TestSettings,
)
from testbed.fabricport import PATH, TEST_KEY, FabricPort
from testbed.loopback import DEVICE, TOKEN
from testbed.ordering import HUB_TOKEN, ORDERS

HOST = "127.0.0.1"
ORDER = "order-fuzz"
IMPOSSIBLE = ("a..b", "a" * 70, "a b", "a\0b", ".a", "é" * 300)
REQUEST = OpenRequest(id="x", source=HOST, slot=1, test=TEST_KEY)
EXAMPLES = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
numbers = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 1 << 63, -1, 10**19])
)
values = st.one_of(
    st.none(), st.booleans(), numbers, st.text(), st.lists(st.integers(), max_size=3)
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "id": values,
        "source": st.one_of(values, st.just(HOST)),
        "slot": values,
        "test": st.one_of(values, st.just(TEST_KEY)),
        "other": values,
    },
)


tests = st.fixed_dictionaries(
    {},
    optional={
        "tool": st.one_of(values, st.sampled_from(["perftest", "iperf3"])),
        "operation": st.one_of(values, st.sampled_from(["write_bw", "tcp"])),
        **dict.fromkeys(
            ("device", "ib_port", "message_bytes", "iterations", "queue_pairs"), values
        ),
        **dict.fromkeys(("seconds", "gid_index", "traffic_class", "expected", "timeout"), values),
    },
)


def as_json(body: Mapping[str, object]) -> bytes:
    """As Python's module writes it, with NaN, Infinity and integers of any size."""
    return json.dumps(body).encode()


heads = st.lists(
    st.one_of(
        st.just(f"Authorization: Bearer {TOKEN}".encode()),
        st.sampled_from([b"Content-Length: " + b"9" * 5000, b"Transfer-Encoding: chunked"]),
        st.integers().map(lambda n: f"Content-Length: {n}".encode()),
        st.binary(max_size=64),
    ),
    max_size=6,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of one node."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = authority.issue_cert(HOST)
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    for number, blob in enumerate(certificate.cert_chain_pems):
        blob.write_to_path(str(folder / "cert.pem"), append=number > 0)
    (folder / "token").write_text(TOKEN)
    (folder / "hub-token").write_text(HUB_TOKEN)
    return folder


@pytest.fixture(scope="module")
def secrets(folder: Path) -> Secrets:
    names = ("cert_file", "cert.pem"), ("key_file", "key.pem"), ("ca_file", "ca.pem")
    files = {name: str(folder / file) for name, file in names}
    return Secrets(str(folder / "token"), FabricTlsSettings(**files))


@pytest.fixture(scope="module")
def port(folder: Path, secrets: Secrets) -> Iterator[FabricPort]:
    """A server whose lists are not read: it plans no test, and accepts no order, so that each
    request gets a response without a tool.
    """
    test = TestSettings(tool="perftest", operation="write_bw", device=DEVICE)
    options = FabricSettings(static=(StaticSource(targets=(HOST,)),), tests=(test,), slot=60.0)
    host = Host()
    guard = Guard(options, host, Meter(options.budget))
    lists = MemberLists(options, host)
    queues = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    side = ServerSide(options, host, guard, lists, Occupancy(), *queues)
    hub = HubSettings(token_file=str(folder / "hub-token"), names=(HOST,))
    orders = OrderBook(hub, lists, Occupancy(), *queues)
    token = HubToken(hub.token_file, secrets)
    server = FabricServer(f"{HOST}:0", secrets, side, orders, token, hub.names)
    thread = server.start()
    yield FabricPort(HOST, server.server_port, folder / "ca.pem", folder)
    server.shutdown()
    thread.join()
    server.server_close()


def assert_response(port: FabricPort, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A well-formed response of the protocol, and nothing in the log. What follows the data ends
    the head, and the body.
    """
    status, text = port.send(data + b"\r\n\r\n" + b" " * MAX_BODY_BYTES)
    expected = {200: Closed, 409: Refused}.get(status)
    if expected is not None:
        msgspec.json.decode(text, type=expected)
    else:
        assert status in set(HTTPStatus)
        assert text.startswith(f"{status} ")
        assert text.endswith("\n")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@EXAMPLES
@example(body={"id": "x", "source": HOST, "slot": 10**400, "test": TEST_KEY})
@example(body={"id": "x", "source": HOST, "slot": 1, "test": TEST_KEY})
@given(body=fields)
def test_every_field_gets_a_response(
    port: FabricPort, caplog: pytest.LogCaptureFixture, body: dict[str, object]
) -> None:
    text = as_json(body)
    head = f"POST {PATH} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    data = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
    assert_response(port, data, caplog)


orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.one_of(values, st.just(ORDER)),
        "issued": values,
        "node": st.one_of(values, st.just(HOST)),
        "source": st.one_of(values, st.just(HOST)),
        "target": st.one_of(values, st.just("127.0.0.2")),
        "force": values,
        "tests": st.one_of(values, st.lists(tests, max_size=40)),
        "other": values,
    },
)


@EXAMPLES
@example(body={"id": ORDER, "issued": 1e308, "node": "", "source": "", "target": "x", "tests": []})
@given(body=orders)
def test_every_order_gets_a_refusal(port: FabricPort, body: dict[str, object]) -> None:
    """In one line, whatever its fields are; the book has none of them."""
    text = as_json(body)
    head = f"PUT {ORDERS}/{ORDER} HTTP/1.1\r\nAuthorization: Bearer {HUB_TOKEN}\r\n"
    data = f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text
    status, answer = port.send(data)
    assert status in (409, 403)
    assert "\n" not in msgspec.json.decode(answer, type=OrderRefused).message


@EXAMPLES
@given(
    method=st.sampled_from(["PUT", "GET", "DELETE", "POST"]),
    path=st.one_of(
        st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=60),
        st.integers().map(lambda seconds: f"{ORDER}?wait={seconds}"),
    ),
    body=st.binary(max_size=300),
)
def test_every_request_for_an_order_gets_a_response(
    port: FabricPort, method: str, path: str, body: bytes
) -> None:
    head = f"{method} {ORDERS}/{path} HTTP/1.1\r\nAuthorization: Bearer {HUB_TOKEN}\r\n"
    status, text = port.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    if text.startswith("{"):
        msgspec.json.decode(text, type=OrderStatus if status == 200 else OrderRefused)
    else:
        assert text.startswith(f"{status} ")
    assert status in (400, 401, 404, 409, 414)


@EXAMPLES
@example(head=[], body=b"", method=b"", path=b"")
@example(
    head=[f"Authorization: Bearer {TOKEN}".encode(), b"Content-Length: 3000"],
    body=b"[" * 3000,
    method=b"POST",
    path=PATH.encode(),
)
@example(
    head=[f"Authorization: Bearer {TOKEN}".encode(), b"Content-Length: 16"],
    body=b'{"source":"\xff"  }',
    method=b"POST",
    path=PATH.encode(),
)
@given(
    head=heads,
    body=st.binary(max_size=300),
    method=st.sampled_from([b"POST", b"DELETE", b"GET", b"", b"\xff"]),
    path=st.one_of(st.sampled_from([PATH.encode(), PATH.encode() + b"/x"]), st.binary(max_size=40)),
)
def test_every_request_gets_a_response(
    port: FabricPort,
    caplog: pytest.LogCaptureFixture,
    head: list[bytes],
    body: bytes,
    method: bytes,
    path: bytes,
) -> None:
    lines = [b"%s %s HTTP/1.1" % (method, path), *head, b"", body]
    assert_response(port, b"\r\n".join(lines), caplog)


@EXAMPLES
@example(data=b"\r\n")
@example(data=b"\x1c\r\n")
@example(data=b"x" * 20_000)
@example(data=b"POST /\r\n\r\n")
@given(data=st.binary(min_size=1, max_size=2000))
def test_any_bytes_get_a_response(
    port: FabricPort, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    assert_response(port, data, caplog)


@EXAMPLES
@example(data=b'HTTP/1.0 200 OK\r\n\r\n{"port": 1' + b"0" * 400 + b"}")
@example(data=b'HTTP/1.0 409 No\r\n\r\n{"refusal": "\xff"}')
@example(data=b"HTTP/1.0 200 OK\r\n\r\n" + b'{"a":' * 700)
@example(data=b"HTTP/1.0 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n{}")
@example(data=b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\xff\r\n")
@given(
    data=st.one_of(
        st.binary(max_size=500),
        st.builds(
            b"HTTP/1.0 %d X\r\n\r\n%s".__mod__,
            st.tuples(st.sampled_from([200, 409]), fields.map(as_json)),
        ),
    )
)
def test_any_response_is_a_result_or_a_failure(secrets: Secrets, data: bytes) -> None:
    """The client returns a message of the protocol, or raises TransportError and nothing else."""
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=_reply, args=(listener, secrets, data))
        thread.start()
        with suppress(TransportError):
            answer = FabricClient(secrets).open(HOST, listener.getsockname()[1], REQUEST, 5.0)
            assert isinstance(answer, Opened | Refused)
        thread.join()


def _reply(listener: socket.socket, secrets: Secrets, data: bytes) -> None:
    with suppress(OSError):
        sock, _ = listener.accept()
        with secrets.server_context.wrap_socket(sock, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(data)


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_name_is_unreachable(secrets: Secrets, name: str) -> None:
    with pytest.raises(TransportError, match="no address") as caught:
        FabricClient(secrets).open(name, 9856, REQUEST, 1.0)
    assert (caught.value.reason, caught.value.connected) == ("unreachable", False)
