"""What does not fit together in the request for a check, for each kind and tool.

In: a resolved request. Out: problems, each with the path of its field and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodevitals.checks.model import CheckRequest, Kind, TestRequest
from nodevitals.checks.requests.allowed_variables import ENVIRONMENT, MCA, VARIABLES, problem_of
from nodevitals.checks.requests.sizes import MAX_BYTES, parse_sizes, spelled_size
from nodevitals.document import Problem
from nodevitals.probes.fabric.settings import MAX_GID_INDEX
from nodevitals.probes.fabric.tools.report import BANDWIDTH, COLLECTIVES, LATENCY
from nodevitals.quantities import shown

MAX_NODES = 10_000
MAX_NODES_OF_ALL_PAIRS = 256
MAX_BYTES_PER_SIZE = 1 << 42
LEAST_RATE, LARGEST_RATE = 1.0, 1e15
"""Bytes per second. Not bounds of the type: stored checks must stay readable."""
MAX_LABELS = 16
MAX_LABEL_CHARACTERS = 256
# iperf3 refuses a larger -l (MAX_BLOCKSIZE); perftest's pairs are bounded by TestSettings.
MAX_MESSAGE = {"perftest": 1 << 30, "iperf3": 1 << 20, "nccl": MAX_BYTES, "hccl": 1 << 36}
OPERATIONS: dict[str, tuple[str, ...]] = {
    "perftest": (*BANDWIDTH, *LATENCY),
    "iperf3": ("tcp",),
    "nccl": COLLECTIVES,
    "hccl": tuple(name for name in COLLECTIVES if name != "sendrecv"),
}
TOOLS: dict[Kind, tuple[str, ...]] = {
    "pair": ("perftest", "iperf3"),
    "matrix": ("perftest", "iperf3"),
    "collective": ("nccl", "hccl"),
    "node": (),
}
_DEFAULT = TestRequest()
_DEVICE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}")
_ONLY = {
    "device": ("perftest", "iperf3", "nccl"),
    "port": ("perftest", "nccl"),
    "seconds": ("perftest", "iperf3"),
    "gid_index": ("perftest", "nccl"),
    "devices_per_node": ("nccl", "hccl"),
    "environment": ("nccl", "hccl"),
    "mca": ("nccl",),
}
"""Fields that not all tools have, with those that do."""


def problems(request: CheckRequest) -> Iterator[Problem]:
    """What does not fit together in a resolved request."""
    yield from _problems_of_nodes(request)
    yield from _problems_of_kind(request)
    test = request.test
    if request.kind == "node":
        for name in given(test):
            yield Problem(f"test.{name}", "a check of the kind node has no test: remove it")
        return
    if test.tool not in TOOLS[request.kind]:
        known = ", ".join(TOOLS[request.kind])
        yield Problem("test.tool", f"{request.kind} has no {shown(test.tool)}: choose {known}")
        return
    yield from _problems_of_test(test)
    if request.expected_bytes_per_second is not None and test.operation in LATENCY:
        yield Problem(
            "expected_bytes_per_second", "a latency test has no rate: nodes are compared, remove it"
        )


def _problems_of_nodes(request: CheckRequest) -> Iterator[Problem]:
    count = len(set(request.nodes))
    if count > MAX_NODES:
        yield Problem("nodes", f"{count} nodes: choose at most {MAX_NODES}")
    if request.kind == "pair" and count != 2:
        yield Problem("nodes", f"a pair takes two nodes, and there are {count}: name two")
    if request.kind == "matrix" and count < 2:
        yield Problem("nodes", f"a matrix takes two nodes or more, and there are {count}: add some")
    if request.kind in ("collective", "node") and count < 1:
        yield Problem("nodes", "no nodes: name some, or choose them by `where`")
    if len(request.where) > MAX_LABELS:
        yield Problem("where", f"over {MAX_LABELS} labels: remove some")
    texts = [text for pair in request.where.items() for text in pair]
    if any(len(text) > MAX_LABEL_CHARACTERS for text in texts):
        yield Problem("where", f"a label has over {MAX_LABEL_CHARACTERS} characters: shorten it")


def _problems_of_kind(request: CheckRequest) -> Iterator[Problem]:
    count = len(set(request.nodes))
    if request.rounds is not None and request.kind != "matrix":
        yield Problem("rounds", f"{request.kind} has no rounds: remove it")
    if request.kind == "matrix" and request.rounds is None and count > MAX_NODES_OF_ALL_PAIRS:
        yield Problem(
            "rounds",
            f"all pairs of {count} nodes are too many: choose rounds, such as 8, or at most"
            f" {MAX_NODES_OF_ALL_PAIRS} nodes",
        )
    expected = request.expected_bytes_per_second
    if expected is not None and request.kind == "node":
        yield Problem("expected_bytes_per_second", "node has no rate: remove it")
    if expected is not None and not LEAST_RATE <= expected <= LARGEST_RATE:
        text = f"{expected:g} is outside {LEAST_RATE:g} to {LARGEST_RATE:g}: choose a rate within"
        yield Problem("expected_bytes_per_second", text)


def _problems_of_test(test: TestRequest) -> Iterator[Problem]:
    tool = str(test.tool)
    known = OPERATIONS[tool]
    if test.operation not in known:
        text = f"{tool} has no {shown(test.operation)}: choose {', '.join(known)}"
        yield Problem("test.operation", text)
    for name in given(test):
        if tool not in _ONLY.get(name, (tool,)):
            yield Problem(f"test.{name}", f"{tool} has no {name}: remove it")
    yield from _problems_of_device(test)
    yield from _problems_of_amount(test)
    latency = test.operation in LATENCY
    if latency and test.queue_pairs != 1:
        yield Problem("test.queue_pairs", "a latency test has one queue pair: remove it")
    if latency and test.seconds is not None:
        yield Problem("test.seconds", "a latency test counts messages: write iterations instead")
    if tool in ENVIRONMENT:
        yield from _problems_of_variables(test)


def _problems_of_device(test: TestRequest) -> Iterator[Problem]:
    if test.device and not _DEVICE.fullmatch(test.device):
        yield Problem("test.device", f"{shown(test.device)} is no device: write it like mlx5_0")
    if test.tool == "perftest" and not test.device:
        yield Problem("test.device", "missing: which RDMA device, as in /sys/class/infiniband?")
    if test.tool == "nccl" and test.port != 1 and not test.device:
        yield Problem("test.port", "a port of which device? write test.device, or remove it")
    if test.tool == "perftest" and (test.gid_index or 0) > MAX_GID_INDEX:
        yield Problem("test.gid_index", f"perftest has at most {MAX_GID_INDEX}: choose another")


def _problems_of_amount(test: TestRequest) -> Iterator[Problem]:
    try:
        sizes = parse_sizes(test.sizes)
    except ValueError as error:
        yield Problem("test.sizes", str(error))
        return
    most = MAX_MESSAGE[str(test.tool)]
    if sizes[-1] > most:
        text = f"{spelled_size(sizes[-1])} is over {spelled_size(most)}"
        yield Problem("test.sizes", f"{text}, the largest of {test.tool}: choose a smaller one")
    if test.iterations is not None and test.seconds is not None:
        yield Problem("test.seconds", "either iterations or seconds: remove one")
    if sizes[-1] * (test.iterations or 1) > MAX_BYTES_PER_SIZE:
        yield Problem("test.iterations", "over 4 TiB of one size: choose fewer, or a smaller size")


def _problems_of_variables(test: TestRequest) -> Iterator[Problem]:
    tool = str(test.tool)
    for name, value in test.environment.items():
        problem = problem_of(name, value, ENVIRONMENT[tool])
        if problem is not None:
            yield Problem("test.environment", problem)
    for field, variable in VARIABLES[tool].items():
        if field in given(test) and variable in test.environment:
            yield Problem("test.environment", f"{variable} is test.{field} too: remove one")
    if tool == "hccl" and test.queue_pairs > 32:
        yield Problem("test.queue_pairs", "HCCL has at most 32: choose fewer")
    if tool == "hccl" and (test.traffic_class or 0) % 4:
        yield Problem("test.traffic_class", "HCCL's is a multiple of 4: choose another")
    for name, value in test.mca.items():
        problem = problem_of(name, value, MCA)
        if problem is not None:
            yield Problem("test.mca", problem)


def given(test: TestRequest) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    values = {name: getattr(test, name) for name in test.__struct_fields__}
    return {name: value for name, value in values.items() if value != getattr(_DEFAULT, name)}
