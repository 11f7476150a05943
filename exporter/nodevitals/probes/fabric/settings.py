"""The configuration of fabric tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal, Optional, Union

import msgspec
from msgspec.structs import replace

from nodevitals.document.local import LocalFile, LocalFiles
from nodevitals.probe import BytesPerSecond, ProbeSettings, Problem, Seconds
from nodevitals.probes.common.discovery import FileSource, NameSource, path_problems
from nodevitals.probes.fabric.admission import BudgetSettings, GateSettings
from nodevitals.probes.fabric.tools.report import BANDWIDTH, LATENCY
from nodevitals.quantities import parse_listen_address, shown

DEFAULT_PORT = 9856
TOOLS = ("perftest", "iperf3")
OPERATIONS = (*BANDWIDTH, *LATENCY, "tcp")
DEVICE_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}")
MAX_GID_INDEX = 64
"""perftest refuses a larger index (MAX_GID_IX in its perftest_parameters.h)."""
MessageBytes = Annotated[int, msgspec.Meta(ge=1, le=2**30)]
ToolPort = Annotated[int, msgspec.Meta(ge=1024, le=65535)]


class TestSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One test. Both nodes of a pair must have the same settings, or they refuse to test."""

    __test__ = False  # not for pytest

    tool: Literal["perftest", "iperf3"]
    """Program that runs the test: perftest or iperf3. Example: `perftest`"""
    operation: str
    """perftest: write_bw, read_bw, send_bw, send_lat, write_lat or read_lat; iperf3: tcp.
    Example: `write_bw`"""
    device: str
    """RDMA device; for iperf3 the network interface, whose addresses it uses and whose traffic
    counts as use of the link. Example: `mlx5_0`"""
    peer_device: str = ""
    """Device of the node that runs the server side, where it differs from `device`: rails crossed,
    or nodes that name their devices differently. Example: `mlx5_1`"""
    ib_port: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    """Port of the RDMA device."""
    message_bytes: MessageBytes = 65536
    """Size of one message in bytes."""
    iterations: Annotated[int, msgspec.Meta(ge=5, le=100_000_000)] = 1000
    """Number of messages."""
    queue_pairs: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Number of queue pairs, or of iperf3's parallel streams."""
    seconds: Optional[Annotated[int, msgspec.Meta(ge=1, le=600)]] = None
    """Duration of the test, in place of the number of messages; for bandwidths."""
    gid_index: Optional[Annotated[int, msgspec.Meta(ge=0, le=255)]] = None
    """Index of the GID on this node; by default chosen before each test."""
    traffic_class: Optional[Annotated[int, msgspec.Meta(ge=0, le=255)]] = None
    """Traffic class of the packets (perftest's --tclass, iperf3's --tos)."""
    expected: Optional[BytesPerSecond] = None
    """Bandwidth of a healthy link with messages of this size; by default 0.9 of the link's rate for
    messages from 1 MiB on. Example: `380Gb/s`"""
    timeout: Seconds = 20.0
    """Time that one test may take."""

    @property
    def is_latency(self) -> bool:
        """Whether the test measures latency."""
        return self.operation in LATENCY

    @property
    def total_bytes(self) -> int:
        """Number of bytes that the test moves if it has no duration."""
        return self.message_bytes * self.iterations

    @property
    def key(self) -> str:
        """Everything that must be equal on both nodes, as one word. Unset values are left out, so
        that earlier versions produce the same word.
        """
        sizes = (self.message_bytes, self.iterations, self.queue_pairs)
        words = [self.tool, self.operation, self.device, self.ib_port, *sizes]
        if self.seconds is not None:
            words.append(f"{self.seconds}s")
        if self.traffic_class is not None:
            words.append(f"tc{self.traffic_class}")
        if self.peer_device:
            words.append(f"to:{self.peer_device}")
        return "-".join(map(str, words))

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """The labels tool, operation, device and message_bytes of its samples."""
        return (self.tool, self.operation, self.device, str(self.message_bytes))

    def on_target(self) -> TestSettings:
        """The test as its target runs it: on the target's device."""
        return replace(self, device=self.peer_device or self.device)

    def problems(self) -> Iterator[Problem]:
        """Report settings that the tool does not support or that contradict each other."""
        known = (*BANDWIDTH, *LATENCY) if self.tool == "perftest" else ("tcp",)
        if self.operation not in known:
            yield Problem(
                "operation",
                f"{self.tool} has no {shown(self.operation)}: choose {', '.join(known)}",
            )
        if self.peer_device and not DEVICE_NAME.fullmatch(self.peer_device):
            yield Problem("peer_device", f"{shown(self.peer_device)} is no name of a device")
        if self.tool == "iperf3" and self.gid_index is not None:
            yield Problem("gid_index", "iperf3 has none: remove it")
        if self.tool == "perftest" and (self.gid_index or 0) > MAX_GID_INDEX:
            yield Problem("gid_index", f"perftest has at most {MAX_GID_INDEX}: choose another")
        if self.is_latency and self.queue_pairs != 1:
            yield Problem("queue_pairs", "a latency test has one queue pair: remove it")
        if self.seconds is not None and self.is_latency:
            yield Problem("seconds", "latencies are measured by a number of messages: remove it")
        if self.seconds is not None and self.timeout <= self.seconds:
            yield Problem("timeout", "is not over the duration of the test: choose a longer one")


class StaticSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peers in the format of Prometheus' static_configs."""

    targets: tuple[str, ...]
    """Names or addresses, with or without a port. Example: `[node-1, "node-2:9856"]`"""
    labels: dict[str, str] = {}
    """Labels of all these peers. Example: `{leaf: a}`"""


class FabricTlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates, as PEM files. Nodes verify each other: as servers and as clients."""

    cert_file: LocalFile
    """Certificate for server and client authentication. The subjectAltName of an agent's has the
    node's name or address on the lists, that of the hub's a name of `probes.fabric.hub.names`.
    Example: `/etc/nodevitals/tls.crt`"""
    key_file: LocalFile
    """Its private key. Example: `/etc/nodevitals/tls.key`"""
    ca_file: LocalFile
    """Certificate of the authority that signed the certificates of all nodes.
    Example: `/etc/nodevitals/ca.crt`"""


class HubSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hub, which may order tests in any slot."""

    token_file: LocalFile
    """File with the hub's token, of at least 16 characters; another one than the agents' own.
    Example: `/etc/nodevitals/hub-token`"""
    names: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Names or addresses in the hub's certificate (subjectAltName), of which it must have one; no
    wildcard covers them. Example: `[nodevitals-hub.monitoring.svc]`"""
    force: bool = False
    """Whether the hub may test while jobs use this node; never during maintenance."""


# Interval if the hub may order tests: a run passes the hub's requests to the agent.
HUB_INTERVAL_SECONDS = 5.0
HUB_STALE_SECONDS = 45.0


class FabricSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Off unless `enabled` is true or auto; then a token and certificates are needed."""

    interval: Optional[Seconds] = None
    """Time between two runs, which report the results; tests follow the slots."""
    timeout: Optional[Seconds] = 5.0
    """Time that a run may take; at most the interval."""
    name: str = ""
    """Name of this node on the lists; by default the node's name, or an address of this node.
    Example: `node-1`"""
    listen_address: str = f":{DEFAULT_PORT}"
    """Address and port on which the agent listens for other agents."""
    static: tuple[StaticSource, ...] = ()
    """Peers, listed in the configuration."""
    file_sd: tuple[Union[LocalFiles, FileSource], ...] = ()
    """Files that list peers: paths or patterns, or `files` with a port.
    Example: `["/etc/nodevitals/fabric/*.yaml"]`"""
    dns_sd: tuple[Union[str, NameSource], ...] = ()
    """DNS names of peers: names, or `names` with a port.
    Example: `[nodevitals-fabric.monitoring.svc]`"""
    group_by: str = ""
    """Label of the peers, such as leaf or rail, whose value divides them into groups.
    Example: `leaf`"""
    across_pairs: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1
    """Number of tests at a time between two groups."""
    slot: Seconds = 600.0
    """Duration of a slot; in most slots a node is tested with one peer."""
    tests: tuple[TestSettings, ...] = ()
    """Tests to run with each peer, the same on all nodes; none are needed where `hub` is set."""
    token_file: LocalFile = ""
    """File with the token that all nodes share, of at least 16 characters.
    Example: `/etc/nodevitals/fabric-token`"""
    tls: Optional[FabricTlsSettings] = None
    """Certificates for the connections between agents."""
    hub: Optional[HubSettings] = None
    """The hub, which may order tests in any slot; without it, no test is ordered. With it, the
    probe runs every 5s where `interval` is not set: what the hub asks of the agent waits for it."""
    governor: Literal["unchanged", "performance"] = "unchanged"
    """Frequency governor of all processors while a test runs here. Example: `performance`"""
    tool_ports: tuple[ToolPort, ToolPort] = (18600, 18699)
    """First and last TCP port on which test tools listen."""
    gate: GateSettings = GateSettings()
    """What keeps tests from running."""
    budget: BudgetSettings = BudgetSettings()
    """Limits of all tests on this node in any hour."""

    def __post_init__(self) -> None:
        """Run more often if the hub may order tests and no interval is set."""
        if self.hub is not None and self.interval is None:
            msgspec.structs.force_setattr(self, "interval", HUB_INTERVAL_SECONDS)
            stale_after = self.stale_after or HUB_STALE_SECONDS
            msgspec.structs.force_setattr(self, "stale_after", stale_after)

    def problems(self) -> Iterator[Problem]:
        """Report contradictions and, if the probe is on, missing settings."""
        for number, test in enumerate(self.tests):
            for problem in test.problems():
                yield Problem(f"tests[{number}].{problem.path}", problem.message)
        yield from path_problems(self.file_sd)
        if self.tool_ports[0] > self.tool_ports[1]:
            yield Problem("tool_ports", "the first is over the last: write [FIRST, LAST]")
        try:
            parse_listen_address(self.listen_address)
        except ValueError as error:
            yield Problem("listen_address", str(error))
        if self.enabled is not False:
            yield from self._missing()

    def _missing(self) -> Iterator[Problem]:
        if not self.token_file:
            yield Problem(
                "token_file", "missing: without it any client could start tests; name a file"
            )
        if self.tls is None:
            yield Problem("tls", "missing: write it, a token must not be sent in the clear")
        if not self.tests and self.hub is None:
            yield Problem("tests", "no tests: write at least one")
        if len({test.labels for test in self.tests}) < len(self.tests):
            text = "two have the same tool, operation, device and message_bytes"
            yield Problem("tests", f"{text}: remove one, results are stored by these")
        if not (self.static or self.file_sd or self.dns_sd):
            yield Problem("static", "no peers: list them here, in file_sd or in dns_sd")
        if self.slot < 3 * sum(test.timeout for test in self.tests):
            yield Problem(
                "slot", "under three times the timeouts of all tests: choose a longer one"
            )
