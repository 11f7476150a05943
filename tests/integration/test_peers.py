"""Probe `peers`, with real sockets between network namespaces."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings
from nodevitals.probes.common.targets import Peer
from nodevitals.probes.peers import probe as module
from nodevitals.probes.peers.dial import dial
from nodevitals.probes.peers.probe import PeerSettings, PeersProbe, PeersSettings
from testbed.namespaces import Namespace, Network
from testbed.node import Node, run, wait_until

BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"


def send(text: bytes) -> object:
    """Return a server that says this, and closes when the client does."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(text)
        connection.recv(1)

    return serve


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture(scope="module")
def node_2(network: Network) -> Namespace:
    return network.add("node-2")


@pytest.fixture(scope="module")
def node_3(network: Network) -> Namespace:
    """Return a node that is there and answers nothing."""
    made = network.add("node-3")
    made.drop()
    return made


def test_reasons(node_2: Namespace, node_3: Namespace) -> None:
    """Each way in which a peer can fail, and each in which it does not."""
    here, gone = node_2.address, node_3.address
    listening = {
        "tcp": node_2.listen(None),  # the kernel takes the connection, nobody serves it
        "ssh": node_2.listen(send(BANNER)),  # type: ignore[arg-type]
        "greeting": node_2.listen(send(b"No entry.\r\nBeware.\r\n" + BANNER)),  # type: ignore[arg-type]
        "silent": node_2.listen(None),
        "web": node_2.listen(send(b"HTTP/1.1 400 Bad Request\r\n\r\n")),  # type: ignore[arg-type]
        "noise": node_2.listen(send(b"x" * 20_000)),  # type: ignore[arg-type]
        "closes": node_2.listen(lambda connection: None),
        "resets": node_2.listen(reset),
    }
    wanted = {
        (here, listening["tcp"], "tcp"): None,
        (here, listening["ssh"], "ssh"): None,
        (here, listening["greeting"], "ssh"): None,
        (here, listening["silent"], "ssh"): "silent",
        (here, listening["web"], "ssh"): "protocol",
        (here, listening["noise"], "ssh"): "protocol",
        (here, listening["closes"], "ssh"): "closed",
        (here, listening["resets"], "ssh"): "closed",
        (here, 1, "tcp"): "refused",
        (gone, 22, "tcp"): "timeout",
        ("192.0.2.1", 22, "tcp"): "unreachable",
        ("2001:db8::1", 22, "ssh"): "unreachable",
        ("no-such-host.invalid", 22, "ssh"): "name",
    }
    targets = tuple(
        PeerSettings(host=host, port=port, protocol=protocol)  # type: ignore[arg-type]
        for host, port, protocol in wanted
    )
    found = look(targets=targets, connect_timeout=1.0)
    for (host, port, protocol), reason in wanted.items():
        labels = (host, str(port), protocol)
        assert value(found, "reachable", *labels) == (reason is None), labels
        failures = [
            s.labels[3]
            for s in found.samples
            if s.family == "nodevitals_peer_failure" and s.labels[:3] == labels
        ]
        assert failures == [reason] * (reason is not None), labels
    round_trip = value(found, "round_trip_seconds", here, str(listening["ssh"]), "ssh")
    assert round_trip is not None
    assert 0 < round_trip < 0.5
    # It was there, whatever it said then; who never took the connection has no round trip.
    assert value(found, "round_trip_seconds", here, str(listening["silent"]), "ssh")
    assert value(found, "round_trip_seconds", gone, "22", "tcp") is None
    states = {condition.device: condition.state for condition in found.conditions}
    assert states[f"{gone}:22"] == "timeout"
    assert states["[2001:db8::1]:22"] == "unreachable"


def look(carry: bytes = b"", **settings: object) -> Readings:
    readings = Readings(carry)
    PeersProbe(Host(), PeersSettings(**settings), "peers").run(readings)  # type: ignore[arg-type]
    return readings


def value(readings: Readings, family: str, *labels: str) -> float | None:
    found = {s.labels: s.value for s in readings.samples if s.family == f"nodevitals_peer_{family}"}
    return found.get(labels)


def test_many_dead_peers_wait_at_once_and_not_one_after_the_other(node_3: Namespace) -> None:
    targets = tuple(PeerSettings(host=node_3.address, port=port) for port in range(1, 65))
    began = time.monotonic()
    found = look(targets=targets, connect_timeout=0.5, concurrency=64)
    assert time.monotonic() - began < 5  # one after the other: 32 s
    assert sum(s.family == "nodevitals_peer_reachable" for s in found.samples) == 64


def test_no_more_connections_at_once_than_allowed(node_2: Namespace) -> None:
    ports = [node_2.listen(None) for _ in range(12)]
    peers = [(Peer(node_2.address, port, "ssh"), node_2.address) for port in ports]
    before, most, answers = own_sockets(), 0, []
    for _, answer in dial(peers, 0.3, 4, time.monotonic() + 10):
        answers.append(answer.reason)
        most = max(most, own_sockets() - before)
    assert answers == ["silent"] * 12
    assert most <= 4
    assert own_sockets() == before


def own_sockets() -> int:
    """Count the sockets of this process."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(link).startswith("socket:") for link in links)


def test_of_a_long_list_each_has_its_turn(node_2: Namespace) -> None:
    port = node_2.listen(None)
    targets = tuple(PeerSettings(host=node_2.address, port=port + n) for n in range(-3, 7))
    found = look(targets=targets, peers_per_run=4)
    tested = [sum(s.family == "nodevitals_peer_reachable" for s in found.samples)]
    for _ in range(2):
        found = look(found.carry, targets=targets, peers_per_run=4)
        tested.append(sum(s.family == "nodevitals_peer_reachable" for s in found.samples))
    assert tested == [4, 8, 10]  # and what was learnt is kept until the next turn
    rounds = [s.value for s in found.samples if s.family == "nodevitals_peer_round_seconds"]
    assert rounds == [45]


def test_what_was_not_tested_for_three_rounds_is_unknown(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = node_2.listen(None)
    targets = tuple(PeerSettings(host=node_2.address, port=port + n) for n in range(2))
    found = look(targets=targets)
    later = time.time() + 46
    monkeypatch.setattr(time, "time", lambda: later)
    found = look(found.carry, targets=targets, peers_per_run=1)
    assert sum(s.family == "nodevitals_peer_reachable" for s in found.samples) == 2
    later += 180
    found = look(found.carry, targets=targets, peers_per_run=1)
    assert sum(s.family == "nodevitals_peer_reachable" for s in found.samples) == 1


def test_each_node_calls_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes with one list must not all call the same peer at once."""
    peers = {Peer(f"10.0.0.{n}", 22, "ssh") for n in range(50)}
    orders = set()
    for name in ("node-1", "node-2", "node-3"):
        monkeypatch.setenv("NODE_NAME", name)
        orders.add(tuple(module._turn(peers, {}, 50)))
    assert len(orders) == 3


def test_lists_from_files(tmp_path: Path, node_2: Namespace) -> None:
    port = node_2.listen(None)
    (tmp_path / "a.json").write_text(
        json.dumps([{"targets": [f"{node_2.address}:{port}"], "labels": {"rack": "r1"}}])
    )
    (tmp_path / "b.yaml").write_text(f"- targets: ['{node_2.address}']\n")
    source = module.FileSettings(files=(f"{tmp_path}/*.json", f"{tmp_path}/b.yaml"), port=1)
    found = look(file_sd=(source,))
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    assert value(found, "reachable", node_2.address, "1", "tcp") == 0


def test_a_half_written_file_keeps_what_it_had(tmp_path: Path, node_2: Namespace) -> None:
    port = node_2.listen(None)
    file = tmp_path / "peers.yaml"
    file.write_text(f"- targets: ['{node_2.address}:{port}']\n")
    source = module.FileSettings(files=(str(file),))
    found = look(file_sd=(source,))
    file.write_text("- targets: ['10.0.0.1:22', '10.0.")
    readings = Readings(found.carry)
    with pytest.raises(ProbeError) as error:
        PeersProbe(Host(), PeersSettings(file_sd=(source,)), "peers").run(readings)
    assert error.value.reason == "file_sd"
    assert "the 1 peers it had before are tested" in error.value.message
    assert value(readings, "reachable", node_2.address, str(port), "tcp") == 1
    file.write_text("- targets: ['10.0.0.1:99999']\n")
    with pytest.raises(ProbeError) as error:
        look(file_sd=(source,))
    assert "[0].targets[0]: '10.0.0.1:99999': '99999' is no port" in error.value.message


def test_every_address_of_a_name_is_a_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = module.NameSettings(names=("localhost",), port=port)
        found = look(dns_sd=(source,))
        assert value(found, "reachable", "127.0.0.1", str(port), "tcp") == 1
        source = module.NameSettings(names=("localhost", "no-such-host.invalid"), port=port)
        readings = Readings(found.carry)
        with pytest.raises(ProbeError) as error:
            PeersProbe(Host(), PeersSettings(dns_sd=(source,)), "peers").run(readings)
        assert error.value.message == "the name service knows no address of no-such-host.invalid"
        assert value(readings, "reachable", "127.0.0.1", str(port), "tcp") == 1


def test_peers_of_a_name_stay_while_the_name_service_is_away(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = node_2.listen(None)
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (node_2.address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    source = module.NameSettings(names=("workers.example",), port=port)
    found = look(dns_sd=(source,))
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1

    def away(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    later = time.time() + module.NAME_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    readings = Readings(found.carry)
    with pytest.raises(ProbeError, match=r"no address of workers\.example"):
        PeersProbe(Host(), PeersSettings(dns_sd=(source,)), "peers").run(readings)
    assert value(readings, "reachable", node_2.address, str(port), "tcp") == 1


def test_a_name_service_that_hangs_keeps_nobody_from_addresses(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver is the C library's; here only its answer is late."""
    port = node_2.listen(None)
    late = threading.Event()
    real = socket.getaddrinfo

    def hangs(host: str, *rest: object, **more: object) -> object:
        late.wait(20)
        return real("127.0.0.1", None)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    names = tuple(PeerSettings(host=f"node-{n}.example", port=port) for n in range(40))
    known = PeerSettings(host=node_2.address, port=port)
    found = look(targets=(*names, known), timeout=3.0, connect_timeout=1.0)
    late.set()
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    reasons = [s.labels[3] for s in found.samples if s.family == "nodevitals_peer_failure"]
    # Those that could not even be asked for are unknown, not unreachable.
    assert reasons == ["name"] * 32


def test_a_link_is_cut_and_mended(tmp_path: Path, network: Network) -> None:
    peer = network.add("node-4")
    port = peer.listen(send(BANNER))  # type: ignore[arg-type]
    target = {"host": peer.address, "port": port, "protocol": "ssh"}
    probe = {"interval": "500ms", "timeout": "500ms", "stale_after": "5s", "targets": [target]}
    reachable, failure = "nodevitals_peer_reachable", "nodevitals_peer_failure"
    with Node(tmp_path, {"probes": {"peers": probe}}) as node:
        wait_until(lambda: node.value(reachable) == 1)
        peer.down()
        wait_until(lambda: node.value(reachable) == 0)
        assert node.value(failure, reason="timeout") or node.value(failure, reason="unreachable")
        peer.up()
        wait_until(lambda: node.value(reachable) == 1)
        assert node.value(failure) is None
        assert node.value("nodevitals_probe_success", probe="peers") == 1
        text = run("history", f"--config.file={node.config_file}", "--csv").stdout
        rows = [line for line in text.splitlines() if f",{peer.address}:{port}," in line]
        assert len(rows) >= 3


def test_without_a_list_there_is_no_target_and_errors_have_their_path(tmp_path: Path) -> None:
    assert PeersProbe.targets(PeersSettings()) == ()
    assert PeersProbe.targets(PeersSettings(enabled=True)) == ("peers",)
    config = tmp_path / "c.yaml"
    config.write_text(
        "probes: {peers: {targets: [{host: a, port: 70000}, {host: b, protocol: udp}], "
        "file_sd: [{files: [peers.yaml]}]}}"
    )
    done = run("check-config", str(config))
    assert done.returncode == 1
    for text in (
        "probes.peers.targets[0].port: ",
        "probes.peers.targets[1].protocol: 'udp' is none of tcp, ssh",
    ):
        assert text in done.stderr
    config.write_text("probes: {peers: {file_sd: [{files: [peers.yaml]}]}}")
    done = run("check-config", str(config))
    assert "probes.peers.file_sd[0].files[0]: not an absolute path" in done.stderr
