"""The configuration of probe `peers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Optional, Union

import msgspec

from nodevitals.probe import ProbeSettings, Problem, Seconds
from nodevitals.probes.common.addresses import TcpPort
from nodevitals.probes.common.discovery import FileSource, NameSource, path_problems

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
    """`tcp`: a connection is enough; `ssh`: the peer must send an SSH banner."""


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
    file_sd: tuple[Union[str, PeerFileSource], ...] = ()
    """Files that list peers: paths or patterns, or `files` with a port and a protocol.
    Example: `[{files: ["/etc/nodevitals/peers/*.yaml"], port: 22, protocol: ssh}]`"""
    dns_sd: tuple[Union[str, PeerNameSource], ...] = ()
    """DNS names of peers: names, or `names` with a port and a protocol.
    Example: `[{names: [workers.train.svc], port: 9855}]`"""
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
