"""Probe `peers`, with real sockets between network namespaces."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings, Timing
from nodevitals.probes.common.discovery import NAME_SECONDS
from nodevitals.probes.fabric.members import load_members
from nodevitals.probes.fabric.settings import FabricSettings
from nodevitals.probes.peers.dial import Peer, dial
from nodevitals.probes.peers.probe import (
    PeerFileSource,
    PeerNameSource,
    PeerSettings,
    PeersProbe,
    PeersSettings,
    PeersState,
    least_recent,
)
from nodevitals.wire import decode, encode
from testbed.namespaces import Namespace, Network
from testbed.node import Node, run, wait_until

HOST = Host()
BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"


def send(text: bytes) -> Callable[[socket.socket], None]:
    """Return a server that sends this, and closes when the client does."""

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
    """Return a node whose packets are dropped."""
    made = network.add("node-3")
    made.drop()
    return made


def test_reason_of_each_failure(node_2: Namespace, node_3: Namespace) -> None:
    """Every way in which a peer can fail, and every way in which it is reachable."""
    here, gone = node_2.address, node_3.address
    listening = {
        "tcp": node_2.listen(None),  # the kernel accepts the connection, no process serves it
        "ssh": node_2.listen(send(BANNER)),
        "greeting": node_2.listen(send(b"No entry.\r\nBeware.\r\n" + BANNER)),
        "silent": node_2.listen(None),
        "web": node_2.listen(send(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
        "noise": node_2.listen(send(b"x" * 20_000)),
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
    found = Run(targets=targets, connect_timeout=4.0, timeout=60.0)
    for (host, port, protocol), reason in wanted.items():
        labels = (host, str(port), protocol)
        assert value(found, "reachable", *labels) == (reason is None), labels
        failures = [
            s.labels[3]
            for s in found.readings.samples
            if s.family == "nodevitals_peer_failure" and s.labels[:3] == labels
        ]
        assert failures == [reason] * (reason is not None), labels
    round_trip = value(found, "round_trip_seconds", here, str(listening["ssh"]), "ssh")
    assert round_trip is not None
    assert 0 < round_trip < 4.0  # in seconds
    # A round trip is measured once the connection is accepted, whatever the peer sends then.
    assert value(found, "round_trip_seconds", here, str(listening["silent"]), "ssh")
    assert value(found, "round_trip_seconds", gone, "22", "tcp") is None
    states = {condition.device: condition.state for condition in found.readings.conditions}
    assert states[f"{gone}:22"] == "timeout"
    assert states["[2001:db8::1]:22"] == "unreachable"


class Run:
    """One run of the probe: its readings, the error that it raised, and the state that it left."""

    state: PeersState

    def __init__(
        self, before: Run | None = None, host: Host = HOST, timeout: float = 10.0, **settings: Any
    ) -> None:
        timing = Timing(interval_seconds=15.0, timeout_seconds=timeout)
        probe = PeersProbe(host, PeersSettings(**settings), "peers", timing)
        if before is not None:
            probe.state = before.state
        self.readings = Readings()
        self.error: ProbeError | None = None
        try:
            probe.run(self.readings)
        except ProbeError as error:
            self.error = error
        self.state = decode(encode(probe.state), PeersState)

    def count(self) -> int:
        """Count the peers whose state is exposed."""
        return sum(one.family == "nodevitals_peer_reachable" for one in self.readings.samples)


def value(found: Run, family: str, *labels: str) -> float | None:
    samples = found.readings.samples
    return {s.labels: s.value for s in samples if s.family == f"nodevitals_peer_{family}"}.get(
        labels
    )


def test_dead_peers_are_waited_for_at_the_same_time(node_3: Namespace) -> None:
    targets = tuple(PeerSettings(host=node_3.address, port=port) for port in range(1, 65))
    """One after the other would take 128 s, far beyond the time of a run."""
    found = Run(targets=targets, connect_timeout=2.0, timeout=20.0, concurrency=64)
    assert found.count() == 64


def test_concurrency_limits_the_connections(node_2: Namespace) -> None:
    ports = [node_2.listen(None) for _ in range(12)]
    peers = [(Peer(node_2.address, port, "ssh"), node_2.address) for port in ports]
    before, most, reasons = own_sockets(), 0, []
    for _, result in dial(peers, 0.3, 4, time.monotonic() + 10):
        reasons.append(result.reason)
        most = max(most, own_sockets() - before)
    assert reasons == ["silent"] * 12
    assert most <= 4
    assert own_sockets() == before


def own_sockets() -> int:
    """Count the sockets of this process."""
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(link).startswith("socket:") for link in links)


def test_every_peer_of_a_long_list_is_tested_in_turn(node_2: Namespace) -> None:
    port = node_2.listen(None)
    targets = tuple(PeerSettings(host=node_2.address, port=port + n) for n in range(-3, 7))
    found = Run(targets=targets, peers_per_run=4)
    tested = [found.count()]
    for _ in range(2):
        found = Run(found, targets=targets, peers_per_run=4)
        tested.append(found.count())
    assert tested == [4, 8, 10]  # results are kept until the peer's next turn
    assert value(found, "round_seconds") == 45


def test_results_older_than_three_rounds_are_dropped(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = node_2.listen(None)
    targets = tuple(PeerSettings(host=node_2.address, port=port + n) for n in range(2))
    found = Run(targets=targets)
    later = time.time() + 46
    monkeypatch.setattr(time, "time", lambda: later)
    found = Run(found, targets=targets, peers_per_run=1)
    assert found.count() == 2
    later += 180
    found = Run(found, targets=targets, peers_per_run=1)
    assert found.count() == 1


def test_each_node_has_its_own_order_of_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes with one list must not all connect to the same peer at once."""
    peers = {Peer(f"10.0.0.{n}", 22, "ssh") for n in range(50)}
    orders = set()
    for name in ("node-1", "node-2", "node-3"):
        monkeypatch.setenv("NODE_NAME", name)
        orders.add(tuple(least_recent(peers, {}, 50)))
    assert len(orders) == 3


def test_peers_are_read_from_files(tmp_path: Path, node_2: Namespace) -> None:
    port = node_2.listen(None)
    (tmp_path / "a.json").write_text(
        json.dumps([{"targets": [f"{node_2.address}:{port}"], "labels": {"rack": "r1"}}])
    )
    (tmp_path / "b.yaml").write_text(f"- targets: ['{node_2.address}']\n")
    source = PeerFileSource(files=(f"{tmp_path}/*.json", f"{tmp_path}/b.yaml"), port=1)
    found = Run(file_sd=(source,))
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    assert value(found, "reachable", node_2.address, "1", "tcp") == 0
    found = Run(file_sd=(f"{tmp_path}/b.yaml",))
    assert value(found, "reachable", node_2.address, "22", "tcp") == 0


def test_both_probes_read_files_below_the_root_path(tmp_path: Path) -> None:
    """As in a container that has the node's / mounted elsewhere."""
    folder = tmp_path / "etc/peers"
    folder.mkdir(parents=True)
    (folder / "a.yaml").write_text("- targets: ['127.0.0.1:1', '127.0.0.2:1']\n")
    host = Host(rootfs=str(tmp_path))
    for pattern in ("/etc/peers/a.yaml", "/etc/peers/*.yaml"):
        found = Run(host=host, file_sd=(pattern,))
        assert (found.error, found.count()) == (None, 2)
        members = load_members(FabricSettings(file_sd=(pattern,)), host)
        assert set(members) == {"127.0.0.1", "127.0.0.2"}
    with pytest.raises(ProbeError, match=r"/etc/none\*: No such file"):
        load_members(FabricSettings(file_sd=("/etc/none*",)), host)


def test_half_written_file_keeps_its_last_good_list(tmp_path: Path, node_2: Namespace) -> None:
    port = node_2.listen(None)
    file = tmp_path / "peers.yaml"
    file.write_text(f"- targets: ['{node_2.address}:{port}']\n")
    source = PeerFileSource(files=(str(file),))
    good = Run(file_sd=(source,))
    file.write_text("- targets: ['10.0.0.1:22', '10.0.")
    found = Run(good, file_sd=(source,))
    assert found.error is not None
    assert found.error.reason == "file_sd"
    assert "the 1 targets of its last good content stay" in found.error.message
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    file.unlink()
    found = Run(found, file_sd=(source,))
    assert "No such file" in str(found.error)
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    file.write_text("- targets: ['10.0.0.1:99999']\n")
    message = str(Run(file_sd=(source,)).error)
    assert "[0].targets[0]: '10.0.0.1:99999': '99999' is no port" in message


def test_impossible_name_is_a_failure_of_its_peer_alone(tmp_path: Path) -> None:
    """In the configuration, and in a file."""
    names = ("a..b", "a" * 70, "a b", "a\0b", ".a")
    (tmp_path / "peers.yaml").write_text(json.dumps([{"targets": [f"{name}:1" for name in names]}]))
    targets = tuple(PeerSettings(host=name) for name in (*names, "127.0.0.1"))
    found = Run(targets=targets, file_sd=(str(tmp_path / "peers.yaml"),))
    assert found.error is None
    failures = [s for s in found.readings.samples if s.family == "nodevitals_peer_failure"]
    reasons = {(sample.labels[0], sample.labels[1]): sample.labels[3] for sample in failures}
    expected = {(name, port): "name" for name in names for port in ("22", "1")}
    assert reasons == {**expected, ("127.0.0.1", "22"): "refused"}


def test_every_address_of_a_name_is_a_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        source = PeerNameSource(names=("localhost",), port=port)
        good = Run(dns_sd=(source,))
        assert value(good, "reachable", "127.0.0.1", str(port), "tcp") == 1
        source = PeerNameSource(names=("localhost", "no-such-host.invalid"), port=port)
        found = Run(good, dns_sd=(source,))
        assert str(found.error) == "the name service returned no address of no-such-host.invalid"
        assert value(found, "reachable", "127.0.0.1", str(port), "tcp") == 1


def test_peers_of_a_name_stay_while_the_name_service_is_away(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = node_2.listen(None)
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (node_2.address, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: rows)
    source = PeerNameSource(names=("workers.example",), port=port)
    good = Run(dns_sd=(source,))
    assert value(good, "reachable", node_2.address, str(port), "tcp") == 1

    def away(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    later = time.time() + NAME_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    found = Run(good, dns_sd=(source,))
    assert "no address of workers.example" in str(found.error)
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1


def test_hanging_name_service_does_not_delay_peers_with_addresses(
    node_2: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver is the C library's; only its answer is late here."""
    port = node_2.listen(None)
    late = threading.Event()
    real = socket.getaddrinfo

    def hangs(host: str, *rest: object, **more: object) -> object:
        late.wait(20)
        return real("127.0.0.1", None)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    names = tuple(PeerSettings(host=f"node-{n}.example", port=port) for n in range(40))
    known = PeerSettings(host=node_2.address, port=port)
    found = Run(targets=(*names, known), timeout=3.0, connect_timeout=1.0)
    late.set()
    assert value(found, "reachable", node_2.address, str(port), "tcp") == 1
    samples = found.readings.samples
    reasons = [s.labels[3] for s in samples if s.family == "nodevitals_peer_failure"]
    # Names whose look-up could not start are unknown, not unreachable.
    assert reasons == ["name"] * 32


def test_cut_link_is_reported_until_it_is_repaired(tmp_path: Path, network: Network) -> None:
    peer = network.add("node-4")
    port = peer.listen(send(BANNER))
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
        wait_until(lambda: node.value("nodevitals_probe_success", probe="peers") == 1)
        wait_until(lambda: len(history_of(node, f"{peer.address}:{port}")) >= 3)


def history_of(node: Node, device: str) -> list[str]:
    text = run("history", f"--config.file={node.config_file}", "--csv").stdout
    return [line for line in text.splitlines() if f",{device}," in line]


def test_no_list_is_no_target_and_errors_have_paths(tmp_path: Path) -> None:
    required = PeersSettings(enabled=True)
    assert PeersProbe.targets(PeersSettings()) == []
    assert PeersProbe.targets(required) == [("peers", required)]
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
