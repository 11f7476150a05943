"""What the configuration says of fabric tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from nodevitals.config import ProbeSettings
from nodevitals.connections import parse_listen_address
from nodevitals.document import BytesPerSecond, Problem, Seconds
from nodevitals.probes.fabric.budget import BudgetSettings
from nodevitals.probes.fabric.gate import GateSettings
from nodevitals.probes.fabric.report import BANDWIDTH, LATENCY

DEFAULT_PORT = 9856
TOOLS = ("perftest", "iperf3")
OPERATIONS = (*BANDWIDTH, *LATENCY, "tcp")
Positive = Annotated[int, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=1024, le=65535)]


class TestSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test. Both sides must be configured alike; who is not is told so, and not tested.

    `device` is an RDMA device, for iperf3 a network interface (which tells who is busy).
    `expected` is what a sound link reaches with this size of messages; without it 0.9 of the line
    rate, from 1 MiB on.
    """

    __test__ = False  # not one of pytest's

    tool: Literal["perftest", "iperf3"]
    operation: str
    device: str
    ib_port: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    message_bytes: Positive = 65536
    iterations: Annotated[int, msgspec.Meta(ge=5)] = 1000
    queue_pairs: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    expected: BytesPerSecond | None = None
    timeout: Seconds = 20.0

    @property
    def is_latency(self) -> bool:
        """Whether it measures time."""
        return self.operation in LATENCY

    @property
    def total_bytes(self) -> int:
        """What it moves."""
        return self.message_bytes * self.iterations

    @property
    def key(self) -> str:
        """What both sides know it by: all that must be equal."""
        sizes = (self.message_bytes, self.iterations, self.queue_pairs)
        return "-".join(map(str, (self.tool, self.operation, self.device, self.ib_port, *sizes)))

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """What its figures are told by."""
        return (self.tool, self.operation, self.device, str(self.message_bytes))

    def problems(self) -> Iterator[Problem]:
        """What does not go together."""
        known = (*BANDWIDTH, *LATENCY) if self.tool == "perftest" else ("tcp",)
        if self.operation not in known:
            yield Problem("operation", f"{self.operation!r}: {self.tool} has {', '.join(known)}")


class StaticPeers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As in Prometheus' static_configs: `node-1` or `node-1:9856`, and labels of them all."""

    targets: tuple[str, ...]
    labels: dict[str, str] = {}


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates as PEM files: this node's, and the authority that signed everybody's."""

    cert_file: str
    key_file: str
    ca_file: str


class FabricSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Off until somebody turns it on; then there must be a token and certificates."""

    enabled: Literal["auto"] | bool = False
    interval: Seconds | None = 5.0
    timeout: Seconds | None = 5.0
    name: str = ""
    """Ours on the lists; '' for the node's name, or an address of this node."""
    listen_address: str = f":{DEFAULT_PORT}"
    static: tuple[StaticPeers, ...] = ()
    file_sd: tuple[str, ...] = ()
    dns_sd: tuple[str, ...] = ()
    group_by: str = ""
    """A label of the peers, such as leaf or rail: those who share it test each other."""
    across_pairs: Annotated[int, msgspec.Meta(ge=0, le=64)] = 1
    slot: Seconds = 600.0
    tests: tuple[TestSettings, ...] = ()
    token_file: str = ""
    tls: TlsSettings | None = None
    tool_ports: tuple[Port, Port] = (18600, 18699)
    gate: GateSettings = GateSettings()
    budget: BudgetSettings = BudgetSettings()

    def problems(self) -> Iterator[Problem]:
        """Where it is on, what it cannot do without."""
        for number, test in enumerate(self.tests):
            for problem in test.problems():
                yield Problem(f"tests[{number}].{problem.path}", problem.message)
        for number, file in enumerate(self.file_sd):
            if not os.path.isabs(file):
                yield Problem(f"file_sd[{number}]", "not an absolute path")
        if self.tool_ports[0] > self.tool_ports[1]:
            yield Problem("tool_ports", "write [FIRST, LAST]")
        try:
            parse_listen_address(self.listen_address)
        except ValueError as error:
            yield Problem("listen_address", str(error))
        if self.enabled is False:
            return
        if not self.token_file:
            yield Problem("token_file", "needed: nobody may start tests here without a token")
        if self.tls is None:
            yield Problem("tls", "needed: a token must not be sent in the clear")
        if not self.tests:
            yield Problem("tests", "none")
        if len({test.labels for test in self.tests}) < len(self.tests):
            text = "two have the same tool, operation, device and message_bytes"
            yield Problem("tests", f"{text}: their figures could not be told apart")
        if not (self.static or self.file_sd or self.dns_sd):
            yield Problem("static", "no peers: name them here, in file_sd or in dns_sd")
        if self.slot < 3 * sum(test.timeout for test in self.tests):
            yield Problem("slot", "under three times the timeouts of all tests")
