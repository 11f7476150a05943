"""Finds parameters of a check that do not fit together, for each kind and tool.

In: a resolved request. Out: problems, each with the path of its field and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nodevitals.checks.model import CheckRequest, Kind, TestRequest
from nodevitals.checks.requests import devices
from nodevitals.checks.requests.allowed_variables import ENVIRONMENT, MCA, VARIABLES, problem_of
from nodevitals.checks.requests.runs import series_of, words_of
from nodevitals.checks.requests.sizes import MAX_BYTES, parse_sizes, spelled_size
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals.probes.fabric.orders import MAX_TESTS
from nodevitals.probes.fabric.settings import MAX_GID_INDEX
from nodevitals.probes.fabric.tools import hccl, nccl
from nodevitals.probes.fabric.tools.report import BANDWIDTH, COLLECTIVES, LATENCY, REDUCING
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
    "hccl": tuple(name for name in COLLECTIVES if name not in ("sendrecv", "gather", "hypercube")),
}
TOOLS: dict[Kind, tuple[str, ...]] = {
    "pair": ("perftest", "iperf3"),
    "matrix": ("perftest", "iperf3"),
    "collective": ("nccl", "hccl"),
    "node": (),
}
_DEFAULT = TestRequest()
_ONLY = {
    "device": ("perftest", "iperf3", "nccl"),
    "crossed": ("perftest", "iperf3"),
    "port": ("perftest", "nccl"),
    "seconds": ("perftest", "iperf3"),
    "gid_index": ("perftest", "nccl"),
    "devices_per_node": ("nccl", "hccl"),
    "devices_per_process": ("nccl",),
    "data_type": ("nccl", "hccl"),
    "reduction": ("nccl", "hccl"),
    "warm_up_iterations": ("nccl", "hccl"),
    "environment": ("nccl", "hccl"),
    "mca": ("nccl", "hccl"),
}
"""Fields that not all tools have, with those that do."""


def problems(request: CheckRequest) -> Iterator[Problem]:
    """The problems of a resolved request."""
    yield from _problems_of_nodes(request)
    yield from _problems_of_kind(request)
    test = request.test
    if request.kind == "node":
        for name in given(test):
            text = Wording("a check of the kind node has no test: remove it")
            yield Problem(f"test.{name}", text)
        return
    if test.tool not in TOOLS[request.kind]:
        yield Problem("test.tool", _no_such(request.kind, test.tool, TOOLS[request.kind]))
        return
    yield from _problems_of_test(test)
    yield from _problems_of_expected(request)


def _no_such(tool: str, value: object, known: Sequence[str]) -> Wording:
    words = ", ".join(known)
    return Wording(
        "{tool} has no {name}: choose {words}", tool=tool, name=shown(value), words=words
    )


def _without(tool: str, name: str) -> Wording:
    return Wording("{tool} has no {name}: remove it", tool=tool, name=name)


def _problems_of_nodes(request: CheckRequest) -> Iterator[Problem]:
    count = len(set(request.nodes))
    wordings: list[Wording] = []
    if count > MAX_NODES:
        wordings.append(
            Wording("{count} nodes: choose at most {most}", count=count, most=MAX_NODES)
        )
    if request.kind == "pair" and count != 2:
        wordings.append(
            Wording("a pair takes two nodes, and there are {count}: name two", count=count)
        )
    if request.kind == "matrix" and count < 2:
        wordings.append(
            Wording(
                "a matrix takes two nodes or more, and there are {count}: add some", count=count
            )
        )
    if request.kind in ("collective", "node") and count < 1:
        wordings.append(Wording("no nodes: name some, or choose them by `where`"))
    yield from (Problem("nodes", wording) for wording in wordings)
    if len(request.where) > MAX_LABELS:
        yield Problem("where", Wording("over {most} labels: remove some", most=MAX_LABELS))
    texts = [text for pair in request.where.items() for text in pair]
    if any(len(text) > MAX_LABEL_CHARACTERS for text in texts):
        text = Wording("a label has over {most} characters: shorten it", most=MAX_LABEL_CHARACTERS)
        yield Problem("where", text)


def _problems_of_kind(request: CheckRequest) -> Iterator[Problem]:
    count = len(set(request.nodes))
    if request.rounds is not None and request.kind != "matrix":
        yield Problem("rounds", _without(request.kind, "rounds"))
    if request.kind == "matrix" and request.rounds is None and count > MAX_NODES_OF_ALL_PAIRS:
        text = Wording(
            "all pairs of {count} nodes are too many: choose rounds, such as 8, or at most {most}"
            " nodes",
            count=count,
            most=MAX_NODES_OF_ALL_PAIRS,
        )
        yield Problem("rounds", text)
    expected = request.expected_bytes_per_second
    if expected is not None and request.kind == "node":
        yield Problem("expected_bytes_per_second", Wording("node has no rate: remove it"))
    if request.expected_latency_seconds is not None and request.kind not in ("pair", "matrix"):
        text = _without(request.kind, "expected_latency_seconds")
        yield Problem("expected_latency_seconds", text)
    if expected is not None and not LEAST_RATE <= expected <= LARGEST_RATE:
        text = Wording(
            "{value} is outside {low} to {high}: choose a rate within",
            value=f"{expected:g}",
            low=f"{LEAST_RATE:g}",
            high=f"{LARGEST_RATE:g}",
        )
        yield Problem("expected_bytes_per_second", text)


def _problems_of_test(test: TestRequest) -> Iterator[Problem]:
    tool = str(test.tool)
    operations = words_of(test.operation) if tool == "perftest" else (test.operation,)
    for operation in operations:
        if operation not in OPERATIONS[tool]:
            yield Problem("test.operation", _no_such(tool, operation, OPERATIONS[tool]))
            return
    for name in given(test):
        if tool not in _ONLY.get(name, (tool,)):
            yield Problem(f"test.{name}", _without(tool, name))
    yield from _problems_of_device(test)
    yield from _problems_of_amount(test)
    latency = all(operation in LATENCY for operation in operations)
    if latency and test.queue_pairs != 1:
        text = Wording("a latency test has one queue pair: remove it")
        yield Problem("test.queue_pairs", text)
    if latency and test.seconds is not None:
        text = Wording("a latency test counts messages: write iterations instead")
        yield Problem("test.seconds", text)
    if tool in ENVIRONMENT:
        yield from problems_of_values(test)
        yield from _problems_of_variables(test)


def _problems_of_device(test: TestRequest) -> Iterator[Problem]:
    wrong = devices.problem_of(test.device, test.tool != "nccl") if test.device else None
    if wrong is not None:
        yield Problem("test.device", wrong)
    if test.tool == "perftest" and not test.device:
        text = Wording("missing: which RDMA device, as in /sys/class/infiniband, or all?")
        yield Problem("test.device", text)
    if test.tool == "iperf3" and test.device == devices.ALL:
        text = Wording("a node has too many interfaces: write a list, or a pattern such as eth*")
        yield Problem("test.device", text)
    if test.crossed and not test.device:
        yield Problem("test.crossed", Wording("which devices? write test.device, or remove it"))
    if test.tool == "nccl" and test.port != 1 and not test.device:
        text = Wording("a port of which device? write test.device, or remove it")
        yield Problem("test.port", text)
    if test.tool == "perftest" and (test.gid_index or 0) > MAX_GID_INDEX:
        text = Wording("perftest has at most {most}: choose another", most=MAX_GID_INDEX)
        yield Problem("test.gid_index", text)


def _problems_of_expected(request: CheckRequest) -> Iterator[Problem]:
    """A rate is for bandwidths, a latency for latencies."""
    latencies = {operation in LATENCY for operation in words_of(request.test.operation)}
    if request.expected_bytes_per_second is not None and latencies == {True}:
        text = Wording("a latency test has no rate: write expected_latency_seconds instead")
        yield Problem("expected_bytes_per_second", text)
    if request.expected_latency_seconds is not None and True not in latencies:
        text = Wording("no latency is tested: write expected_bytes_per_second instead")
        yield Problem("expected_latency_seconds", text)


def _problems_of_amount(test: TestRequest) -> Iterator[Problem]:
    try:
        sizes = parse_sizes(test.sizes)
    except ValueError as error:
        yield Problem("test.sizes", error.args[0])
        return
    if test.tool in TOOLS["pair"] and devices.is_complete(test.device):
        count = sum(len(series.sizes) for series in series_of(test))
        if count > MAX_TESTS:
            text = Wording(
                "{count} tests of each pair, over {most}: choose fewer devices, operations or"
                " sizes",
                count=count,
                most=MAX_TESTS,
            )
            yield Problem("test.device", text)
    most = MAX_MESSAGE[str(test.tool)]
    if sizes[-1] > most:
        text = Wording(
            "{size} is over {most}, the largest of {tool}: choose a smaller one",
            size=spelled_size(sizes[-1]),
            most=spelled_size(most),
            tool=test.tool,
        )
        yield Problem("test.sizes", text)
    if test.iterations is not None and test.seconds is not None:
        yield Problem("test.seconds", Wording("either iterations or seconds: remove one"))
    if sizes[-1] * (test.iterations or 1) > MAX_BYTES_PER_SIZE:
        text = Wording("over 4 TiB of one size: choose fewer, or a smaller size")
        yield Problem("test.iterations", text)


def problems_of_values(test: TestRequest) -> Iterator[Problem]:
    """The problems of a collective's data type, operator, and devices of a process."""
    tool, reduces = str(test.tool), test.operation in REDUCING
    types = nccl.DATA_TYPES if tool == "nccl" else hccl.DATA_TYPES
    if tool == "hccl" and reduces:
        types = hccl.REDUCED_DATA_TYPES
    if test.data_type and test.data_type not in types:
        yield Problem("test.data_type", _no_such(test.operation, test.data_type, types))
    operators = nccl.REDUCTIONS if tool == "nccl" else hccl.REDUCTIONS
    if test.reduction and not reduces:
        yield Problem("test.reduction", _without(test.operation, "reduction"))
    elif test.reduction and test.reduction not in operators:
        yield Problem("test.reduction", _no_such(tool, test.reduction, operators))
    if (test.devices_per_node or 8) % (test.devices_per_process or 1):
        text = Wording("devices per node are no multiple of it: choose a divisor")
        yield Problem("test.devices_per_process", text)


def _problems_of_variables(test: TestRequest) -> Iterator[Problem]:
    tool = str(test.tool)
    for name, value in test.environment.items():
        problem = problem_of(name, value, ENVIRONMENT[tool])
        if problem is not None:
            yield Problem("test.environment", problem)
    for field, variable in VARIABLES[tool].items():
        if field in given(test) and variable in test.environment:
            text = Wording("{name} is test.{field} too: remove one", name=variable, field=field)
            yield Problem("test.environment", text)
    if tool == "hccl" and test.queue_pairs > 32:
        text = Wording("HCCL has at most {most}: choose fewer", most=32)
        yield Problem("test.queue_pairs", text)
    if tool == "hccl" and (test.traffic_class or 0) % 4:
        text = Wording("HCCL's is a multiple of {step}: choose another", step=4)
        yield Problem("test.traffic_class", text)
    for name, value in test.mca.items():
        problem = problem_of(name, value, MCA)
        if problem is not None:
            yield Problem("test.mca", problem)


def given(test: TestRequest) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    values = {name: getattr(test, name) for name in test.__struct_fields__}
    return {name: value for name, value in values.items() if value != getattr(_DEFAULT, name)}
