"""Probe `peers`: whether this node can reach other nodes, and the round trip time to each.

In: lists of peers (in the configuration, in file_sd files, from a name service), and the network.
Out: `nodevitals_peer_*`. Of a long list each run tests the peers that were tested least recently,
in an order of this node's own, so that not all nodes connect to one peer at once. At an SSH server
that sends its banner, a login is tried where a key is configured, at a few servers in each run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Optional, Union

import msgspec

from nodevitals.document.local import LocalFiles
from nodevitals.linux.host import node_name, stable_fraction
from nodevitals.probe import Families, Probe, ProbeError, ProbeSettings, Problem, Readings, Seconds
from nodevitals.probes.common.addresses import TcpPort, is_address
from nodevitals.probes.common.discovery import (
    Discovery,
    DiscoveryState,
    FileSource,
    NameSource,
    Source,
    path_problems,
    service_names,
)
from nodevitals.probes.peers import login
from nodevitals.probes.peers.dial import REASONS, DialResult, LocalError, Peer, dial
from nodevitals.probes.peers.login import LoginResult, LoginSettings, PeerLogin, due_for_login

MAX_PEERS = 2000
DEFAULT_PORT = 22

Protocol = Literal["tcp", "ssh"]
PROTOCOLS: tuple[Protocol, ...] = ("tcp", "ssh")


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer."""

    host: str
    """Name or IP address of the peer. Example: `node-2`"""
    port: TcpPort = DEFAULT_PORT
    """TCP port to connect to."""
    protocol: Protocol = "tcp"
    """`tcp`: a connection is enough; `ssh`: the peer must send an SSH banner, and with `login` let
    this node log in."""


class PeerFileSource(FileSource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in the format of Prometheus' file_sd; without a port, 22."""

    protocol: Protocol = "tcp"
    """Protocol of all targets of these files."""


class PeerNameSource(NameSource, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """DNS names of which every address is a peer; without a port, 22."""

    protocol: Protocol = "tcp"
    """Protocol of all peers of these names."""


class PeersSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which peers to test, and how."""

    interval: Optional[Seconds] = 15.0
    """Time between two runs."""
    timeout: Optional[Seconds] = 10.0
    """Time that a run may take; at most the interval."""
    targets: tuple[PeerSettings, ...] = ()
    """Peers, listed one by one."""
    file_sd: tuple[Union[LocalFiles, PeerFileSource], ...] = ()
    """Files that list peers: paths or patterns, or `files` with a port and a protocol.
    Example: `[{files: ["/etc/nodevitals/peers/*.yaml"], port: 22, protocol: ssh}]`"""
    dns_sd: tuple[Union[str, PeerNameSource], ...] = ()
    """DNS names of peers: names, or `names` with a port and a protocol.
    Example: `[{names: [workers.train.svc], port: 9855}]`"""
    login: Optional[LoginSettings] = None
    """How to log in at the peers with the protocol ssh; without it, their banner is enough."""
    connect_timeout: Seconds = 2.0
    """Time that one peer has to accept the connection and to send its banner."""
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    """Maximum number of connections at the same time."""
    peers_per_run: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    """Maximum number of peers tested in one run; of a longer list, those tested least recently."""

    def problems(self) -> Iterator[Problem]:
        """Report too many peers, and paths that are not absolute."""
        if len(self.targets) > MAX_PEERS:
            yield Problem("targets", f"over {MAX_PEERS} peers: remove some")
        yield from path_problems(self.file_sd)


STALE_ROUNDS = 3

metrics = Families("peer", "peer", "port", protocol=PROTOCOLS)
REACHABLE = metrics.gauge(
    "reachable",
    "Whether the peer accepted a connection and, with protocol ssh, sent its banner and, where a"
    " login is configured, let this node log in; missing before the first login.",
)
ROUND_TRIP = metrics.gauge(
    "round_trip_seconds",
    "Time from SYN to SYN-ACK, measured by the kernel; missing where a packet was lost.",
)
FAILURE = metrics.gauge(
    "failure",
    "Always 1; why the peer could not be reached. Missing while it is reachable.",
    reason=(*REASONS, *login.REASONS),
)
LOGIN = metrics.gauge(
    "login_seconds", "Time of the last login by SSH, with a command that does nothing."
)
lists = Families("")
LISTED = lists.gauge("peers_listed", "Number of peers on all lists.")
ROUND = lists.gauge("peer_round_seconds", "Time in which every peer is tested once.")


class PeerResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a peer's last test, and when that was (seconds since the epoch)."""

    peer: Peer
    result: DialResult
    time: float


class PeersState(msgspec.Struct):
    """The last result and login of each peer, and the fallback of the discovery."""

    results: list[PeerResult] = []
    logins: list[PeerLogin] = []
    discovery: DiscoveryState = msgspec.field(default_factory=DiscoveryState)


class PeersProbe(Probe):
    """Connections to other nodes, by TCP or SSH (banner, or a login): round-trip time, reason of a
    failure. Off without a list of peers.
    """

    name = "peers"
    families = (*metrics, *lists)
    shared = True
    Settings = PeersSettings
    State = PeersState
    settings: PeersSettings
    state: PeersState

    needs = ("targets", "file_sd", "dns_sd")

    @classmethod
    def targets(cls, settings: PeersSettings) -> list[tuple[str, PeersSettings]]:
        """One target if any peer is listed or if the probe is required."""
        listed = settings.targets or settings.file_sd or settings.dns_sd
        return [(cls.name, settings)] if listed or settings.required else []

    def run(self, readings: Readings) -> None:
        """Test the peers that are due, and report the last result of every peer."""
        self._set_deadlines()
        state, count = self.state, self.settings.peers_per_run
        self._discovery = Discovery(self.host, state.discovery, DEFAULT_PORT)
        self._problems: list[ProbeError] = []
        peers = self._listed()
        interval = self.timing.interval_seconds
        round_seconds = -(-len(peers) // count) * interval
        oldest = time.time() - STALE_ROUNDS * max(round_seconds, interval)
        known = {r.peer: r for r in state.results if r.peer in peers and r.time >= oldest}
        due = least_recent(peers, known, count)
        self._discovery.look_up([peer.host for peer in due], self._names_until)
        for peer, result in self._test(due):
            known[peer] = PeerResult(peer, result, time.time())
        state.results = list(known.values())
        logins = self._logins()
        self._forget_names(peers)
        if self._discovery.complete:
            readings.add(LISTED, len(peers))
            readings.add(ROUND, round_seconds)
        for last in state.results:
            _report(last, logins, self.settings.login is not None, readings)
        for problem in (*self._discovery.problems, *self._problems):
            raise problem

    def _set_deadlines(self) -> None:
        """Set the deadlines: connections and the report must end before the run's deadline, and a
        name service that hangs must leave time for peers with known addresses.
        """
        started, allowed = time.monotonic(), self.timing.timeout_seconds
        self._connect_timeout = min(self.settings.connect_timeout, allowed / 2)
        self._end = started + allowed * 0.9
        self._start_until = self._end - self._connect_timeout
        self._names_until = started + (self._start_until - started) * 0.8

    def _listed(self) -> set[Peer]:
        """All peers of all lists."""
        settings = self.settings
        peers = {Peer(target.host, target.port, target.protocol) for target in settings.targets}
        for source, target in self._discovery.targets(
            settings.file_sd, settings.dns_sd, self._names_until
        ):
            peers.add(Peer(target.host, target.port, _protocol(source)))
        if len(peers) > MAX_PEERS:
            text = f"{len(peers)} peers on the lists; only {MAX_PEERS} are tested"
            self._problems.append(ProbeError("too_many", text))
            peers = set(sorted(peers, key=_order)[:MAX_PEERS])
        return peers

    def _test(self, peers: Iterable[Peer]) -> Iterator[tuple[Peer, DialResult]]:
        names, ready = self.state.discovery.names, []
        for peer in peers:
            if address := self._address(peer):
                ready.append((peer, address))
            elif peer.host in names:
                yield peer, DialResult("name")
        concurrency = self.settings.concurrency
        try:
            yield from dial(ready, self._connect_timeout, concurrency, self._start_until)
        except LocalError as error:
            self._problems.append(ProbeError("local", f"this node cannot connect: {error}"))

    def _logins(self) -> dict[Peer, LoginResult]:
        """The last login at each peer that sends its banner; some of them are new."""
        settings = self.settings.login
        open_peers = {
            last.peer
            for last in self.state.results
            if last.peer.protocol == "ssh" and not last.result.reason
        }
        if settings is None or not open_peers:
            self.state.logins = []
            return {}
        count = settings.per_run
        rounds = -(-len(open_peers) // count) * self.timing.interval_seconds
        oldest = time.time() - STALE_ROUNDS * rounds
        known = {
            last.peer: last
            for last in self.state.logins
            if last.peer in open_peers and last.time >= oldest
        }
        try:
            login.check_files(settings)
            for peer in due_for_login(sorted(open_peers, key=_order), known, rounds)[:count]:
                seconds = min(settings.timeout, self._end - time.monotonic())
                address = self._address(peer)
                if address and seconds > settings.timeout / 2:
                    result = login.log_in(peer, address, settings, seconds)
                    known[peer] = PeerLogin(peer, result, time.time())
        except ProbeError as error:
            self._problems.append(error)
        self.state.logins = list(known.values())
        return {last.peer: last.result for last in known.values()}

    def _address(self, peer: Peer) -> str:
        """An address of a peer; '' where its name has none."""
        name = self.state.discovery.names.get(peer.host)
        if is_address(peer.host):
            return peer.host
        return name.addresses[0] if name is not None and name.addresses else ""

    def _forget_names(self, peers: Iterable[Peer]) -> None:
        """Drop the names that are on no list any more."""
        listed = {peer.host for peer in peers} | set(service_names(self.settings.dns_sd))
        names = self.state.discovery.names
        self.state.discovery.names = {host: name for host, name in names.items() if host in listed}


def _protocol(source: Source) -> Protocol:
    return source.protocol if isinstance(source, (PeerFileSource, PeerNameSource)) else "tcp"


def _order(peer: Peer) -> float:
    return stable_fraction(node_name(), peer.host, str(peer.port), peer.protocol)


def least_recent(peers: set[Peer], known: dict[Peer, PeerResult], count: int) -> list[Peer]:
    """The peers that were tested least recently; equal ones in an order specific to this node."""

    def key(peer: Peer) -> tuple[float, float]:
        return (known[peer].time if peer in known else 0.0, _order(peer))

    return sorted(peers, key=key)[:count]


def _report(
    last: PeerResult, logins: dict[Peer, LoginResult], logs_in: bool, readings: Readings
) -> None:
    peer, result = last.peer, last.result
    labels = (peer.host, str(peer.port), peer.protocol)
    readings.add(ROUND_TRIP, result.round_trip_seconds, *labels)
    reason = result.reason
    if logs_in and peer.protocol == "ssh" and not reason:
        if peer not in logins:
            return
        reason = logins[peer].reason
        readings.add(LOGIN, logins[peer].seconds, *labels)
    readings.add(REACHABLE, not reason, *labels)
    if reason:
        readings.add(FAILURE, 1, *labels, reason)
    readings.condition(str(peer), reason or "ok", peer.protocol)
