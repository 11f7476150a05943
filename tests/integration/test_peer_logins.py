"""Probe `peers` logs in at Debian's sshd, and at servers that only claim to be one."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError, Readings, Timing
from nodevitals.probes.peers.dial import Peer
from nodevitals.probes.peers.login import (
    LoginResult,
    LoginSettings,
    PeerLogin,
    due_for_login,
    judge,
)
from nodevitals.probes.peers.probe import PeerSettings, PeersProbe, PeersSettings, PeersState
from nodevitals.wire import decode, encode
from testbed import sshd
from testbed.node import ROOT, Node, run, wait_until
from testbed.sshd import Sshd

BANNER = b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"
Bed = Callable[..., Sshd]


@pytest.fixture(autouse=True)
def debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's ssh."""
    for name, value in sshd.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return sshd.make_key(tmp_path / "key")


@pytest.fixture
def server(tmp_path: Path, key: Path) -> Iterator[Bed]:
    """Makes servers that let the key in, and are known."""
    with ExitStack() as stack:

        def make(address: str, **more: Any) -> Sshd:
            made = stack.enter_context(Sshd(tmp_path / address, address, **more))
            made.authorize(key)
            know(tmp_path, made)
            return made

        yield make


def know(folder: Path, made: Sshd) -> None:
    with open(folder / "known_hosts", "a", encoding="ascii") as file:
        file.write(made.known_host())


class Run:
    """One run of the probe at these peers."""

    def __init__(
        self, folder: Path, *peers: tuple[str, int], state: PeersState | None = None, **login: Any
    ) -> None:
        (folder / "known_hosts").touch()
        files = {"key_file": f"{folder}/key", "known_hosts_file": f"{folder}/known_hosts"}
        usual = {"user": sshd.USER, "per_run": 20, "timeout": 10.0, **files}
        targets = tuple(PeerSettings(host=host, port=port, protocol="ssh") for host, port in peers)
        settings = PeersSettings(targets=targets, login=LoginSettings(**{**usual, **login}))
        timing = Timing(interval_seconds=15.0, timeout_seconds=100.0)
        probe = PeersProbe(Host(), settings, "peers", timing)
        probe.state = state or PeersState()
        self.readings = Readings()
        self.error = ""
        try:
            probe.run(self.readings)
        except ProbeError as error:
            self.error = f"{error.reason}: {error.message}"
        self.state = decode(encode(probe.state), PeersState)

    def values(self, family: str) -> dict[str, Any]:
        """Values by peer; of `failure`, the reasons."""
        return {
            sample.labels[0]: sample.labels[3] if family == "failure" else sample.value
            for sample in self.readings.samples
            if sample.family == f"nodevitals_peer_{family}"
        }


class Fake:
    """A server that sends its text, then calls `then`."""

    def __init__(self, address: str, text: bytes, then: Callable[[socket.socket], None]) -> None:
        self._server = socket.create_server((address, 22))
        self._text, self._then = text, then
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(self._text)
            self._then(connection)

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._server, *self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def hold(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def drip(connection: socket.socket) -> None:
    """A byte now and then, for ever."""
    while True:
        connection.sendall(b"\0")
        time.sleep(0.05)


def pour(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"x" * 65536)


def test_each_step_of_a_login_has_its_own_reason(tmp_path: Path, server: Bed, key: Path) -> None:
    """Real servers, each with another fault; a tarpit that has only a banner."""
    server("127.0.0.2")
    refusing = server("127.0.0.3")
    refusing.authorize(sshd.make_key(tmp_path / "another"))
    server("127.0.0.4", more="ForceCommand sleep 600")
    server("127.0.0.5", more="ForceCommand false")
    changed = server("127.0.0.6")
    changed.kill()
    sshd.make_key(changed.folder / "host_key")
    changed.start()
    known = (tmp_path / "known_hosts").read_text().splitlines()
    unknown = server("127.0.0.7")
    (tmp_path / "known_hosts").write_text("\n".join(known) + "\n")
    assert unknown.accepts()
    other_port = server("127.0.0.8", port=2222)
    know(tmp_path, other_port)
    with Fake("127.0.0.9", BANNER, hold):
        addresses = [f"127.0.0.{number}" for number in (2, 3, 4, 5, 6, 7, 9, 10)]
        found = Run(
            tmp_path, *((address, 22) for address in addresses), ("127.0.0.8", 2222), timeout=5.0
        )
    assert found.error == ""
    assert found.values("failure") == {
        "127.0.0.3": "key_refused",
        "127.0.0.4": "slow",
        "127.0.0.5": "login",
        "127.0.0.6": "host_key",
        "127.0.0.7": "host_key",
        "127.0.0.9": "banner",
        "127.0.0.10": "refused",
    }
    good = {"127.0.0.2", "127.0.0.8"}
    assert {peer for peer, value in found.values("reachable").items() if value} == good
    assert len(found.values("reachable")) == 9
    seconds = found.values("login_seconds")
    assert set(seconds) == good
    assert all(value > 0 for value in seconds.values())
    assert found.values("round_trip_seconds").keys() >= {"127.0.0.3", "127.0.0.9"}


def test_hostile_servers_harm_nothing(tmp_path: Path, server: Bed) -> None:
    """Each is a failure of its own peer; the good one is logged in all the same."""
    server("127.0.0.2")
    server("127.0.0.3", more="ForceCommand cat /dev/zero")
    texts = {
        4: (BANNER, drip),
        5: (BANNER, pour),
        6: (BANNER + b"\xff" * 35000, hold),
        7: (b"SSH-2.0-" + b"x" * 20000 + b"\n", hold),
        8: (b"SSH-1.5-old\r\n", hold),
        9: (BANNER + b'Load key "x": bad permissions\r\nAuthenticated to y\r\n', hold),
    }
    with ExitStack() as stack:
        for number, (text, then) in texts.items():
            stack.enter_context(Fake(f"127.0.0.{number}", text, then))
        peers = [(f"127.0.0.{number}", 22) for number in range(2, 10)]
        found = Run(tmp_path, *peers, timeout=5.0)
    assert found.error == ""
    reasons = found.values("failure")
    assert "127.0.0.2" not in reasons
    assert reasons.keys() == {f"127.0.0.{number}" for number in range(3, 10)}
    assert reasons["127.0.0.3"] == "login"
    assert set(reasons.values()) <= {"banner", "login", "protocol"}
    assert own_children() == []


def own_children() -> list[str]:
    return [child.name() for child in psutil.Process().children() if child.name() == "ssh"]


def test_nothing_is_forwarded_and_no_configuration_is_read(
    tmp_path: Path, server: Bed, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would permit an agent, a display and a terminal."""
    made = server("127.0.0.2", more=f"ForceCommand env > {tmp_path}/environment")
    made.authorize(key, options="agent-forwarding")
    home = tmp_path / "home/.ssh"
    home.mkdir(parents=True)
    (home / "config").write_text("Host *\n  ProxyCommand false\n  ForwardAgent yes\n  SendEnv *\n")
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    monkeypatch.setenv("DISPLAY", ":0")
    found = Run(tmp_path, ("127.0.0.2", 22))
    assert (found.error, found.values("failure")) == ("", {})
    shown = (tmp_path / "environment").read_text()
    assert "SSH_CONNECTION=" in shown
    assert not any(word in shown for word in ("SSH_AUTH_SOCK", "DISPLAY", "SSH_TTY"))


def test_a_key_that_ssh_does_not_use_blames_no_peer(tmp_path: Path, server: Bed, key: Path) -> None:
    """Reachable is unknown then: it is neither 0 nor 1."""
    server("127.0.0.2")
    key.chmod(0o644)
    found = Run(tmp_path, ("127.0.0.2", 22), ("127.0.0.9", 22))
    assert found.error == f"key: login.key_file: ssh refuses it: chmod 0400 {key}"
    assert found.values("reachable") == {"127.0.0.9": 0}
    sshd.make_key(key, passphrase="secret")
    assert Run(tmp_path, ("127.0.0.2", 22)).error.startswith("key: login.key_file: it has a passph")
    key.write_text("nothing\n")
    assert "it begins as no private key does" in Run(tmp_path, ("127.0.0.2", 22)).error
    key.unlink()
    assert "No such file" in Run(tmp_path, ("127.0.0.2", 22)).error
    sshd.make_key(key)
    found = Run(tmp_path, ("127.0.0.2", 22), known_hosts_file=f"{tmp_path}/none")
    assert found.error.startswith("known_hosts: login.known_hosts_file: No such file")
    assert found.values("reachable") == {}


def test_without_ssh_no_peer_is_blamed(
    tmp_path: Path, server: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    server("127.0.0.2")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = Run(tmp_path, ("127.0.0.2", 22))
    assert found.error.startswith("missing: ssh")
    assert found.values("reachable") == {}


def test_ssh_that_fails_by_itself_is_no_answer_of_the_peer() -> None:
    text = "No user exists for uid 65532\r\n"
    with pytest.raises(ProbeError, match="ssh: status 255: No user exists for uid 65532"):
        judge(text, "10.0.0.2", 255)


def test_a_few_logins_per_run_and_the_last_result_of_the_others(
    tmp_path: Path, server: Bed
) -> None:
    peers = [("127.0.0.2", 22), ("127.0.0.3", 22), ("127.0.0.4", 22)]
    servers = [server(address) for address, _ in peers]
    found = Run(tmp_path, *peers, per_run=1)
    assert len(found.values("reachable")) == 1
    for expected in (2, 3):
        found = Run(tmp_path, *peers, per_run=1, state=found.state)
        assert len(found.values("reachable")) == expected
    servers[0].kill()
    found = Run(tmp_path, *peers, per_run=1, state=found.state)
    assert found.values("failure") == {"127.0.0.2": "refused"}
    assert len(found.values("reachable")) == 3
    servers[0].start()  # what it was before it failed says nothing about it now
    found = Run(tmp_path, *peers, per_run=1, state=found.state)
    assert found.values("failure") == {}
    assert len(found.values("reachable")) == 3


def test_a_failed_login_is_repeated_soon_and_starves_no_other() -> None:
    peers = [Peer(f"10.0.0.{number}", 22, "ssh") for number in range(10)]
    known: dict[Peer, PeerLogin] = {}
    failing, clock, order = set(peers[:3]), 1000.0, []
    for _ in range(100):
        clock += 15
        [peer, *_] = due_for_login(peers, known, 150.0)
        order.append(peer)
        result = LoginResult("slow") if peer in failing else LoginResult("", 0.1)
        known[peer] = PeerLogin(peer, result, clock)
    assert set(order[:10]) == set(peers)
    counts = {peer: order.count(peer) for peer in peers}
    assert min(counts[peer] for peer in failing) > max(
        count for peer, count in counts.items() if peer not in failing
    )
    assert min(counts.values()) >= 3


def test_an_agent_that_is_killed_leaves_no_ssh(tmp_path: Path, key: Path) -> None:
    (tmp_path / "known_hosts").touch()
    login = {"user": "monitor", "key_file": str(key), "timeout": "60s"}
    login["known_hosts_file"] = f"{tmp_path}/known_hosts"
    target = {"host": "127.0.0.9", "protocol": "ssh"}
    probe = {"interval": "5m", "timeout": "5m", "targets": [target], "login": login}

    def clients() -> list[int]:
        return [one.pid for one in psutil.process_iter(["name"]) if one.info["name"] == "ssh"]

    with Fake("127.0.0.9", BANNER, hold), Node(tmp_path, {"probes": {"peers": probe}}) as node:
        wait_until(clients)
        assert node.process is not None
        os.kill(node.process.pid, signal.SIGKILL)
        wait_until(lambda: not clients())


def test_the_shipped_unit_permits_logins(tmp_path: Path, server: Bed, key: Path) -> None:
    """Its system calls, capabilities and mounts are enough for ssh."""
    made = server("127.0.0.2")
    files = {"key_file": str(key), "known_hosts_file": f"{tmp_path}/known_hosts"}
    target = {"host": made.address, "protocol": "ssh"}
    probe = {"interval": "5s", "timeout": "5s", "targets": [target]}
    login = {"user": sshd.USER, **files, "timeout": "4s"}
    node = Node(tmp_path, {"probes": {"peers": {**probe, "login": login}}})
    unit = ROOT / "exporter/packaging/nodevitals.service"
    node.wrapper = [sys.executable, f"{ROOT}/tests/testbed/confinement.py", str(unit), "--"]
    with node:
        wait_until(lambda: node.value("nodevitals_peer_reachable", peer=made.address) == 1)
        assert node.value("nodevitals_peer_login_seconds", peer=made.address)


def test_check_config_names_a_key_that_every_user_may_read(tmp_path: Path, key: Path) -> None:
    (tmp_path / "known_hosts").touch()
    config = tmp_path / "agent.yaml"
    config.write_text(
        "probes: {peers: {targets: [{host: a, protocol: ssh}], login: {user: monitor, "
        f"key_file: {key}, known_hosts_file: {tmp_path}/known_hosts}}}}}}\n"
    )
    done = run("check-config", str(config))
    assert (done.returncode, "every user" in done.stderr) == (0, False)
    key.chmod(0o644)
    done = run("check-config", str(config))
    assert f"probes.peers.login.key_file: every user may read '{key}': chmod o= {key}" in (
        done.stdout + done.stderr
    )
    config.write_text(config.read_text().replace(str(key), "relative"))
    assert run("check-config", str(config)).returncode == 1
