"""The bus bandwidth of a healthy collective, from facts about its nodes.

In: the test, and what the agents report of each node. Out: an expectation, or None where a fact or
a published figure is missing: then the outcome stays unknown.

Within a node the links between the devices limit it, between nodes the ports of a node; the lower
of both holds. A bus bandwidth compares with the rate of the hardware whatever the number of ranks:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

import msgspec

from nodevitals.checks.model import BusExpectation, TestRequest
from nodevitals.checks.requests.sizes import MAX_BYTES, parse_sizes
from nodevitals.probes.fabric.tools.report import REDUCING


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node; None or nothing where it is not."""

    devices: Optional[int] = None
    """Number of its accelerators."""
    model: str = ""
    """Their model, where all have the same."""
    links: Optional[int] = None
    """NVLinks that each of them should have."""
    ports: Mapping[str, float] = {}
    """Rates of the physical ports for RDMA by device, bytes per second."""


class Links(NamedTuple):
    """The links between the devices of a node, and what collectives reach over them."""

    model: str
    """A regular expression for the beginning of a model's name."""
    kind: str
    rate: float
    """Of one link in one direction, bytes per second."""
    share: float
    """Of the rate of all links that a healthy collective reaches."""
    share_of_sum: float
    """The same of all_reduce by the switch (NVLink SHARP), with eight devices."""


LINKS = (
    # 25 GB/s per link: NVIDIA A100 (600 GB/s over 12 links, both directions). Azure's health check
    # demands 228 of 300 GB/s on ND A100 v4 (Azure/azurehpc-health-checks, conf/nd96asr_v4.conf);
    # eight A800 (8 links) reach 156 of 200 GB/s.
    Links(r"(NVIDIA )?A[18]00-SXM4", "NVLink", 25e9, 0.76, 0.76),
    # H100: 900 GB/s over 18 links. NVIDIA: 370 of 450 GB/s by rings, 480 with NVLink SHARP
    # (NVIDIA/nccl-tests, issue 212); Azure demands 460 on ND H100 v5 and 431 on ND H200 v5. H800
    # (8 links) has 215 of 200 GB/s (NVIDIA/nccl, issue 1374).
    Links(
        r"NVIDIA H(100 80GB HBM3|100 SXM|200|800|20)\b(?! (NVL|PCIe))", "NVLink", 25e9, 0.82, 0.95
    ),
    # 1,800 GB/s over 18 links. Without a figure of NVIDIA: the share of A100.
    Links(r"NVIDIA G?B[23]00\b", "NVLink", 50e9, 0.75, 0.75),
    # Each with each other by one link of 56 GB/s in both directions (392 GB/s in all). Measured
    # with 2, 4 and 8 of them: 18, 45 and 126 GB/s of all_reduce, 0.54 to 0.64
    # (gameofdimension/limulidae).
    Links(r"(Ascend ?)?910B[1-4]?\b", "HCCS", 28e9, 0.6, 0.6),
)
PORT_SHARE = 0.9
"""Of the ports' rate. NVIDIA: 24 of 25 GB/s per port on perfect systems, 20 not too bad
(NVIDIA/nccl-tests, issue 160); of 400 GB/s over 380 only with more channels (issue 309). The limit
of perftest is the same (Mellanox/ngc_multinode_perf)."""
BAD_SHARE = 0.5
"""Below this share of the expectation it is slow. A healthy one that is configured badly (one port
of two, no GPUDirect) may have less than 0.8; nothing but a fault or a wrong path leaves a half."""
BYTES_PER_RANK = 32 << 20
"""With smaller messages a collective may be slow without a fault: 256 MB do not reach the peak of
eight GPUs (nccl-tests, issue 212), and each rank sends its part of them."""
SWITCHED = 8
"""Boards with fewer devices have no switch: some of them have only some of the links."""
_SLOWER = {
    *("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_PROTO"),
    *("NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"),
    *("NCCL_BUFFSIZE", "NCCL_NTHREADS", "CUDA_VISIBLE_DEVICES", "HCCL_TEST_USE_DEVS"),
    *("HCCL_INTRA_PCIE_ENABLE", "HCCL_INTRA_ROCE_ENABLE", "HCCL_INTER_HCCS_DISABLE"),
    *("HCCL_ALGO", "HCCL_BUFFSIZE"),
}
"""Variables by which a request may choose to be slower."""
_WITHOUT_SWITCH = {"NCCL_ALGO", "NCCL_NVLS_ENABLE"}


def expected(test: TestRequest, machines: Sequence[Machine]) -> Optional[BusExpectation]:
    """What a resolved collective over these nodes should reach with its largest messages."""
    own = test.devices_per_node or 8
    ranks = own * len(machines)
    if ranks < 2 or test.operation == "hypercube" or _SLOWER & test.environment.keys():
        return None
    parts = []
    if own > 1:
        parts.append(_within(test, own, machines))
    if len(machines) > 1:
        parts.append(_between(test, own, machines))
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    return min(known, key=lambda part: part.bytes_per_second)


def is_large(test: TestRequest, nodes: int) -> bool:
    """Whether the largest message is large enough to call a collective slow."""
    return parse_sizes(test.sizes)[-1] >= least_size(test, nodes)


def least_size(test: TestRequest, nodes: int) -> int:
    """The smallest message by which a collective can be called slow."""
    return min(BYTES_PER_RANK * nodes * (test.devices_per_node or 8), MAX_BYTES)


def _within(test: TestRequest, own: int, machines: Sequence[Machine]) -> Optional[BusExpectation]:
    """What the links between the devices of a node allow."""
    models = {machine.model for machine in machines}
    model = models.pop() if len(models) == 1 else ""
    row = next((row for row in LINKS if model and re.match(row.model, model)), None)
    if row is None:
        return None
    if row.kind == "HCCS":
        links: Optional[int] = own - 1
    else:
        known = [machine.links for machine in machines if machine.links]
        links = min(known) if len(known) == len(machines) else None
        boards = {machine.devices for machine in machines}
        if any(size is None or (size < SWITCHED and size != own) for size in boards):
            return None
    if not links:
        return None
    by_switch = own >= SWITCHED and test.operation == "all_reduce"
    by_switch = by_switch and not _WITHOUT_SWITCH & test.environment.keys()
    share = row.share_of_sum if by_switch else row.share
    text = f"{links} {row.kind} links of {row.rate / 1e9:g} GB/s, {100 * share:.0f} %"
    return BusExpectation(bytes_per_second=share * links * row.rate, basis=text)


def _between(test: TestRequest, own: int, machines: Sequence[Machine]) -> Optional[BusExpectation]:
    """What the ports of the node with the slowest ones allow."""
    rates = [_ports_of(test, machine) for machine in machines]
    # Each device has its part of the ports, and all share the port that the request names.
    parts = [
        sum(ports) * (1.0 if test.device else min(1.0, own / machine.devices))
        for ports, machine in zip(rates, machines)
        if ports and machine.devices
    ]
    if len(parts) < len(machines):
        return None
    slowest = min(range(len(parts)), key=parts.__getitem__)
    node, ports = parts[slowest], rates[slowest]
    ranks = own * len(machines)
    if test.operation in (*REDUCING, "all_gather", "broadcast"):
        bus = node  # a ring enters and leaves each node once per port
    elif test.operation == "sendrecv":
        bus = node / own
    else:  # each rank sends to each other one, of which `own` are on its node
        bus = node / own * (ranks - 1) / (ranks - own)
    text = f"{len(ports)} ports of {ports[0] * 8 / 1e9:g} Gb/s per node, {100 * PORT_SHARE:.0f} %"
    return BusExpectation(bytes_per_second=PORT_SHARE * bus, basis=text)


def _ports_of(test: TestRequest, machine: Machine) -> list[float]:
    """The rates of the ports that a collective uses: the one that it names, otherwise the fastest
    ones, of which each device has one at most; slower ones are for storage and logins.
    """
    if "NCCL_IB_HCA" in test.environment:
        return []
    if test.device:
        return [rate for name, rate in machine.ports.items() if name == test.device]
    fastest = max(machine.ports.values(), default=0.0)
    count = sum(rate == fastest for rate in machine.ports.values())
    return [fastest] * min(count, machine.devices or 0)
