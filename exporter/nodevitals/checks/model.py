"""The model of a check: its request, its state, its results and its verdict.

These records are the bodies of the REST API, the `spec` and `status` of the custom resource, the
rows of the store, and what the command line prints with `--json`. Times are seconds since the
epoch, sizes bytes, rates bytes per second.
"""

from __future__ import annotations

from typing import Annotated, Literal, Optional, get_args

import msgspec

from nodevitals.probes.fabric.tools.report import Report

Kind = Literal["pair", "matrix", "collective", "node"]
"""pair: two nodes. matrix: all pairs of some nodes, or a tournament of them. collective: NCCL or
HCCL over all of them together. node: each node's own checks."""
Tool = Literal["perftest", "iperf3", "nccl", "hccl"]
Phase = Literal["queued", "running", "done", "canceled"]
Outcome = Literal["ok", "bad", "unknown"]
"""bad: a node, a rail or a link is named. unknown: the check could not tell, also where nothing
says how fast it should have been."""
Reason = Literal["hardware", "threshold", "harness", "workload"]
"""hardware: a device, a link or a mount failed, or is far below the rate of its port. threshold:
it works, but slower than it should; of an unknown outcome, whether it is slower is unknown.
harness: the test itself failed (a tool, ssh, an agent). workload: jobs use the nodes."""
Trigger = Literal["page", "rest", "command", "resource", "schedule", "alert", "job"]
Role = Literal["read", "run", "act"]
"""read: see everything. run: also start and cancel checks, and leases. act: also force a check on
nodes in use, and what else acts on the cluster."""

KINDS: tuple[Kind, ...] = get_args(Kind)
ROLES: tuple[Role, ...] = get_args(Role)

NodeName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,252})\Z")]
PresetName = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,62})\Z")]
CheckId = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{8}-[0-9]{6}-[a-z0-9]{6}\Z")]


class TestRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What is measured, and how. A field that its tool does not have is refused, never ignored."""

    __test__ = False  # not for pytest

    tool: Optional[Tool] = None
    """By default perftest for pairs, nccl for collectives."""
    operation: str = ""
    """perftest: write_bw, read_bw, send_bw, send_lat, write_lat, read_lat; iperf3: tcp; pairs take
    several: `write_bw,read_lat`. Collectives: all_reduce, all_gather, reduce_scatter, broadcast,
    reduce, scatter, alltoall; of nccl also gather, hypercube, sendrecv. By default write_bw, tcp,
    all_reduce."""
    device: str = ""
    """RDMA device such as mlx5_0; for iperf3 a network interface. Pairs take several: a list
    `mlx5_0,mlx5_1`, a pattern `mlx5_*`, or `all`. Needed for perftest."""
    crossed: bool = False
    """Test each device with every device of the other node; by default with the one of the same
    name (rail to rail)."""
    port: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    """Port of the RDMA device."""
    sizes: str = ""
    """Sizes of a message: `64KiB`, `8B,64KiB,1MiB`, or a sweep `8B..8GiB x2`."""
    iterations: Optional[Annotated[int, msgspec.Meta(ge=5, le=100_000_000)]] = None
    """Messages per size. Either these or `seconds`."""
    seconds: Optional[Annotated[int, msgspec.Meta(ge=1, le=600)]] = None
    """Seconds per size (perftest's -D, iperf3's -t)."""
    queue_pairs: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    """Queue pairs, or parallel streams of iperf3."""
    gid_index: Optional[Annotated[int, msgspec.Meta(ge=0, le=255)]] = None
    """GID index; by default chosen on each node."""
    traffic_class: Optional[Annotated[int, msgspec.Meta(ge=0, le=255)]] = None
    """Traffic class of the packets (perftest's --tclass, NCCL_IB_TC, iperf3's --tos)."""
    devices_per_node: Optional[Annotated[int, msgspec.Meta(ge=1, le=64)]] = None
    """Ranks per node of a collective; 8 by default."""
    devices_per_process: Optional[Annotated[int, msgspec.Meta(ge=1, le=64)]] = None
    """Devices that one process of nccl-tests drives (-g); 1 by default."""
    data_type: str = ""
    """Type of a collective's values (-d): float, half, bfloat16, ... of nccl-tests; fp32, fp16,
    bfp16, ... of the HCCL test. By default float, fp32."""
    reduction: str = ""
    """Operator of all_reduce, reduce and reduce_scatter (-o): sum, prod, min, max; of nccl also avg
    and mulsum. By default sum."""
    warm_up_iterations: Optional[Annotated[int, msgspec.Meta(ge=0, le=10_000)]] = None
    """Iterations of a collective before those that are timed (-w); 5 by default."""
    environment: dict[str, str] = {}
    """Variables of a collective's ranks; names and values from an allow-list."""
    mca: dict[str, str] = {}
    """MCA parameters of Open MPI; names and values from an allow-list."""


class CheckRequest(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A request for a check, as a client sends it."""

    kind: Kind
    """pair, matrix, collective or node."""
    nodes: tuple[NodeName, ...] = ()
    """Names of nodes."""
    where: dict[str, str] = {}
    """Labels of the nodes to choose, such as `{pool: train, leaf: a}`; together with `nodes`, all
    of both."""
    preset: str = ""
    """Name of a preset; fields of `test` that are given override it."""
    test: TestRequest = msgspec.field(default_factory=TestRequest)
    """What is measured, and how."""
    rounds: Optional[Annotated[int, msgspec.Meta(ge=1, le=1000)]] = None
    """matrix: rounds of a tournament, in each of which every node has one partner; by default all
    pairs."""
    expected_bytes_per_second: Optional[Annotated[float, msgspec.Meta(gt=0)]] = None
    """Rate of a healthy link; by default the nodes are compared with each other."""
    expected_latency_seconds: Optional[Annotated[float, msgspec.Meta(gt=0)]] = None
    """Latency of a healthy link; by default the nodes are compared with each other."""
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    """Slow is below this share of the expected rate or of the median; latencies are inverted."""
    isolate: bool = True
    """collective: where it fails or is slow, bisect until a node, a rail or a link is named."""
    limit_seconds: Optional[Annotated[float, msgspec.Meta(ge=1, le=86400)]] = None
    """Longest time of the whole check; by default from its cost."""
    force: bool = False
    """Test nodes in use too; needs the role `act`."""
    note: Annotated[str, msgspec.Meta(max_length=500)] = ""
    """Why, for people."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a check will cost, at most."""

    nodes: int
    runs: int
    """Tests of a pair, or collectives."""
    node_seconds: float
    """Sum over the nodes of the seconds in which a test runs there."""
    seconds: float
    """Time of the whole check."""
    bytes: float
    """Bytes over the network."""


class Requester(msgspec.Struct, frozen=True, kw_only=True):
    """Who or what asked for a check."""

    trigger: Trigger
    name: str = ""
    """User or token, name of the resource, the schedule, the alert or the job."""
    role: Role = "run"


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A finding on a node, a rail (one device on all nodes) or a link; `suspects` are the parts of
    the node that may be bad.
    """

    subject: str
    """Name of the node, `A - B` of a link, `mlx5_3` of a rail."""
    scope: Literal["node", "link", "rail"]
    reason: Reason
    message: str
    """For people: `41 % of the median`."""
    ratio: Optional[float] = None
    """Figure over the usual one; below 1 is slow, also for latencies."""
    suspects: tuple[str, ...] = ()
    """Such as `port mlx5_3`."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a check. Equal results give an equal verdict."""

    outcome: Outcome
    reason: Optional[Reason] = None
    """The reason of the gravest finding; None where the outcome is ok."""
    message: str = ""
    """One line for people."""
    findings: tuple[NodeVerdict, ...] = ()


class BusExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """The bus bandwidth of a healthy collective, from facts about its nodes (verdicts/bus.py)."""

    bytes_per_second: float
    basis: str
    """For people: `8 ports of 400 Gb/s per node, 90 %`."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test of a pair, one collective, or one node's own checks."""

    number: int
    """Place in the plan, from 0."""
    nodes: tuple[str, ...]
    """Source and target of a pair; all nodes of a collective."""
    reports: tuple[Report, ...] = ()
    """One per test, in the order of the tests; fewer where it was stopped."""
    series: tuple[str, ...] = ()
    """Names of the operations and devices that a repetition tested; none where it tested all."""
    skipped: str = ""
    """Why it did not run: a reason of the gate, `peer_busy`, `canceled`, ..."""
    started: float = 0.0
    seconds: float = 0.0
    commands: tuple[str, ...] = ()
    """The command lines of each report's test, below the node's name; '' where none ran."""
    outputs: tuple[str, ...] = ()
    """The output of each report's test, its beginning and its end where it is long; that of the
    target where the test failed. Without a report: why there is none."""
    versions: dict[str, str] = {}
    """Version of each tool and agent involved."""
    rails: tuple[str, ...] = ()
    """RDMA devices that a collective used on all nodes, as far as they are known."""
    ports_bytes_per_second: tuple[Optional[tuple[float, float]], ...] = ()
    """Rates of the ports of source and target of each report's test; None where one of them is
    unknown, or is not that of a physical port."""
    port_limits: tuple[tuple[str, str], ...] = ()
    """What kept these ports from their rate, such as a PCIe link below what is possible; '' for
    nothing."""
    governors: tuple[str, ...] = ()
    """Frequency governors of source and target while the tests ran; '' where unknown."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check without its results, as lists show it."""

    id: str
    request: CheckRequest
    """As resolved: preset and defaults filled in, `nodes` complete, `where` as asked for."""
    requester: Requester
    cost: Cost
    created: float
    phase: Phase = "queued"
    started: Optional[float] = None
    ended: Optional[float] = None
    runs_done: int = 0
    verdict: Optional[Verdict] = None
    baseline: Optional[float] = None
    """Figure of the last like check that was ok (same kind, nodes, test); where none was, of the
    last one that only had no reference."""
    baselines: dict[str, float] = {}
    """The same for each operation and device, where there are several: `figures` of that check."""
    baseline_ok: bool = True
    """Whether that check was ok."""
    bus: Optional[BusExpectation] = None
    """collective: what its nodes should reach; None where that is unknown."""
    figure: Optional[float] = None
    """Median of the results: bytes per second (of the bus for collectives), seconds for latencies;
    of the largest size, the first operation and the first device."""
    figures: dict[str, float] = {}
    """The same for each operation and device, where there are several: `write_bw mlx5_0`."""

    @property
    def runs(self) -> int:
        """Number of runs as far as it is known: repetitions and a collective's smaller groups come
        on top of the planned ones.
        """
        return max(self.cost.runs, self.runs_done)


class CheckDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A check with its results."""

    check: Check
    results: tuple[RunResult, ...]
