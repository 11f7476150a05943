"""Probe `peers`: can this node reach the others, and how long is the way there and back.

In: lists of peers (in the configuration, in file_sd files, from a name service), and the network.
Out: `nodevitals_peer_*`. Of a long list each run takes those whose turn it is: who was not tested
for longest, and each node in an order of its own, so that nobody is called by all at once. Of an
SSH server the banner is read; no login is tried.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec.msgpack import encode

from nodevitals.config import ProbeSettings
from nodevitals.document import DocumentError, Problem, Seconds
from nodevitals.linux.host import node_name, stable_fraction
from nodevitals.probe import Family, Probe, ProbeError, Readings
from nodevitals.probes.common.names import resolve
from nodevitals.probes.common.targets import PROTOCOLS, Peer, Protocol, is_address, parse_file
from nodevitals.probes.peers.dial import REASONS, Answer, LocalError, dial

MAX_PEERS = 2000
# A name that is asked for by every node in every run is a load on the name service.
NAME_SECONDS = 300.0
STALE_ROUNDS = 3
_LABELS = ("peer", "port", "protocol")
_CLOSED = {"protocol": PROTOCOLS}

REACHABLE = Family(
    name="nodevitals_peer_reachable",
    kind="gauge",
    help="Whether the peer took a connection and, where it should speak SSH, sent its banner.",
    labels=_LABELS,
    closed=_CLOSED,
)
ROUND_TRIP = Family(
    name="nodevitals_peer_round_trip_seconds",
    kind="gauge",
    help="From SYN to SYN-ACK, by the kernel's measure; missing where a packet was lost.",
    labels=_LABELS,
    closed=_CLOSED,
)
FAILURE = Family(
    name="nodevitals_peer_failure",
    kind="gauge",
    help="Always 1; why a peer could not be reached. Missing while it can.",
    labels=(*_LABELS, "reason"),
    closed={**_CLOSED, "reason": REASONS},
)
LISTED = Family(name="nodevitals_peers_listed", kind="gauge", help="Peers on all lists.")
ROUND = Family(
    name="nodevitals_peer_round_seconds",
    kind="gauge",
    help="How long a round takes in which every peer has its turn once.",
)

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One peer."""

    host: str
    port: Port = 22
    protocol: Protocol = "tcp"


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of Prometheus' file_sd; the port is for targets that name none."""

    files: tuple[str, ...]
    port: Port = 22
    protocol: Protocol = "tcp"


class NameSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names of which every address is a peer, such as a headless service's."""

    names: tuple[str, ...]
    port: Port = 22
    protocol: Protocol = "tcp"


class PeersSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who the peers are, and how hard they are looked at."""

    interval: Seconds | None = 15.0
    timeout: Seconds | None = 10.0
    targets: tuple[PeerSettings, ...] = ()
    file_sd: tuple[FileSettings, ...] = ()
    dns_sd: tuple[NameSettings, ...] = ()
    connect_timeout: Seconds = 2.0
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32
    peers_per_run: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100

    def problems(self) -> Iterator[Problem]:
        """The lists must be bounded, and files absolute."""
        if len(self.targets) > MAX_PEERS:
            yield Problem("targets", f"over {MAX_PEERS} peers")
        for number, source in enumerate(self.file_sd):
            for index, file in enumerate(source.files):
                if not os.path.isabs(file):
                    yield Problem(f"file_sd[{number}].files[{index}]", "not an absolute path")


class Result(msgspec.Struct, frozen=True, array_like=True):
    """What came of a peer's last test, and when that was (seconds since the epoch)."""

    peer: Peer
    answer: Answer
    time: float


class Name(msgspec.Struct, frozen=True, array_like=True):
    """A name's addresses, and when they were asked for."""

    addresses: tuple[str, ...]
    time: float


class Memory(msgspec.Struct):
    """From run to run: results, addresses, and the last good state of each file."""

    results: list[Result] = []
    names: dict[str, Name] = {}
    files: dict[str, list[Peer]] = {}


class PeersProbe(Probe):
    """Other nodes."""

    name: ClassVar[str] = "peers"
    families: ClassVar[tuple[Family, ...]] = (REACHABLE, ROUND_TRIP, FAILURE, LISTED, ROUND)
    Settings: ClassVar[type[ProbeSettings]] = PeersSettings
    settings: PeersSettings

    @classmethod
    def targets(cls, settings: PeersSettings) -> tuple[str, ...]:
        """One, where there is a list at all."""
        listed = settings.targets or settings.file_sd or settings.dns_sd
        return (cls.name,) if listed or settings.enabled is True else ()

    def run(self, readings: Readings) -> None:
        """Test those whose turn it is, and tell of all."""
        settings = self.settings
        interval, allowed = settings.interval or 15.0, settings.timeout or 10.0
        began = time.monotonic()
        # The last connection begun must end, and the results be told, before the deadline; a
        # name service that hangs must not keep us from those whose address is known.
        self._connect_timeout = min(settings.connect_timeout, allowed / 2)
        self._start_until = began + allowed * 0.9 - self._connect_timeout
        self._names_until = began + (self._start_until - began) * 0.8
        self._troubles: list[ProbeError] = []
        memory = readings.recalled(Memory) or Memory()
        peers = self._listed(memory)
        runs = -(-len(peers) // settings.peers_per_run)
        round_seconds = runs * interval
        oldest = time.time() - STALE_ROUNDS * max(round_seconds, interval)
        known = {r.peer: r for r in memory.results if r.peer in peers and r.time >= oldest}
        chosen = _turn(peers, known, settings.peers_per_run)
        self._look_up([peer.host for peer in chosen], memory)
        for peer, answer in self._test(chosen, memory):
            known[peer] = Result(peer, answer, time.time())
        named = {peer.host for peer in peers} | set(self._service_names())
        memory.names = {host: name for host, name in memory.names.items() if host in named}
        memory.results = list(known.values())
        readings.add(LISTED, len(peers))
        readings.add(ROUND, round_seconds)
        for result in memory.results:
            _tell(result, readings)
        readings.carry = encode(memory)
        for trouble in self._troubles:
            raise trouble

    def _listed(self, memory: Memory) -> set[Peer]:
        """All peers of all lists."""
        settings = self.settings
        peers = {Peer(one.host, one.port, one.protocol) for one in settings.targets}
        files: dict[str, list[Peer]] = {}
        for source in settings.file_sd:
            for path in _expand(source.files):
                files[path] = self._read(path, source, memory.files.get(path, []))
                peers.update(files[path])
        memory.files = files
        before = dict(memory.names)
        self._look_up(self._service_names(), memory)
        for service in settings.dns_sd:
            for name in service.names:
                found = memory.names.get(name)
                if found is None or not found.addresses:
                    text = f"the name service knows no address of {name}"
                    self._troubles.append(ProbeError("name", text))
                    found = before.get(name)  # those that it had are still somewhere
                if found is not None:
                    memory.names[name] = found
                    addresses = found.addresses
                    peers.update(Peer(one, service.port, service.protocol) for one in addresses)
        if len(peers) > MAX_PEERS:
            text = f"{len(peers)} peers on the lists; only {MAX_PEERS} are tested"
            self._troubles.append(ProbeError("too_many", text))
            peers = set(sorted(peers, key=_order)[:MAX_PEERS])
        return peers

    def _read(self, path: str, source: FileSettings, last_good: list[Peer]) -> list[Peer]:
        """A file's peers; where it is half written or gone, those it last had."""
        try:
            with open(path, "rb") as handle:
                return parse_file(handle.read(), source.port, source.protocol)
        except OSError as error:
            what = str(error.strerror)
        except DocumentError as error:
            what = str(error)
        kept = f"; the {len(last_good)} peers it had before are tested" if last_good else ""
        self._troubles.append(ProbeError("file_sd", f"{path}: {what}{kept}"))
        return last_good

    def _service_names(self) -> list[str]:
        return [name for service in self.settings.dns_sd for name in service.names]

    def _look_up(self, hosts: list[str], memory: Memory) -> None:
        """Ask for names that are new, or were asked for long ago."""
        now = time.time()
        fresh = {h for h, n in memory.names.items() if now - n.time < NAME_SECONDS and n.addresses}
        names = {host for host in hosts if not is_address(host)} - fresh
        found = resolve(names, self._names_until)
        memory.names.update({host: Name(addresses, now) for host, addresses in found.items()})

    def _test(self, peers: list[Peer], memory: Memory) -> Iterator[tuple[Peer, Answer]]:
        ready = []
        for peer in peers:
            name = memory.names.get(peer.host)
            if is_address(peer.host):
                ready.append((peer, peer.host))
            elif name is not None and name.addresses:
                ready.append((peer, name.addresses[0]))
            elif name is not None:
                yield peer, Answer("name")
        settings = self.settings
        try:
            yield from dial(ready, self._connect_timeout, settings.concurrency, self._start_until)
        except LocalError as error:
            self._troubles.append(ProbeError("local", f"this node cannot connect: {error}"))


def _order(peer: Peer) -> float:
    return stable_fraction(node_name(), peer.host, str(peer.port), peer.protocol)


def _turn(peers: set[Peer], known: dict[Peer, Result], count: int) -> list[Peer]:
    """Whose turn it is: who was not tested for longest, and among equals in this node's order."""

    def key(peer: Peer) -> tuple[float, float]:
        return (known[peer].time if peer in known else 0.0, _order(peer))

    return sorted(peers, key=key)[:count]


def _expand(patterns: tuple[str, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield from sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]


def _tell(result: Result, readings: Readings) -> None:
    peer, answer = result.peer, result.answer
    labels = (peer.host, str(peer.port), peer.protocol)
    readings.add(REACHABLE, not answer.reason, *labels)
    readings.add(ROUND_TRIP, answer.round_trip_seconds, *labels)
    if answer.reason:
        readings.add(FAILURE, 1, *labels, answer.reason)
    readings.condition(str(peer), answer.reason or "ok", peer.protocol)
