"""A collective: the command line and the environment of its ranks, and the reports of its output.

In: a test request, or a Collective. Out: command lines, files, and one Report per size. Everything
that reaches a command line is checked here again. Raises CheckError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Optional

import msgspec

from nodevitals.checks import CheckError
from nodevitals.checks.model import TestRequest
from nodevitals.checks.requests.allowed_variables import ENVIRONMENT, MCA, VARIABLES, problem_of
from nodevitals.checks.requests.problems import OPERATIONS, problems_of_values
from nodevitals.checks.requests.runs import WARM_UP, warm_up_of
from nodevitals.checks.requests.sizes import parse_sizes
from nodevitals.probes.fabric.tools import PARSERS, hccl, nccl
from nodevitals.probes.fabric.tools.report import Report, ResultRow, failed, untagged
from nodevitals.quantities import shown

Backend = Literal["nccl", "hccl"]
_PROGRAM = re.compile(r"[a-zA-Z0-9_./+-]{1,255}")
_NODE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,252}")
_NCCL_TESTS = re.compile(r"^# nccl-tests version (\d[\w.]{0,20})", re.MULTILINE)
_NCCL = re.compile(r"^NCCL version (\d[\w.+-]{0,40})", re.MULTILINE)
_LIBRARY = re.compile(r"nccl-library=(\d{4,6})\b")
_OPEN_MPI = re.compile(r"\(Open MPI\) (\d[\w.]{0,20})")
_MPICH = re.compile(r"^ {0,20}Version: {1,80}(\d[\w.]{0,20})", re.MULTILINE)


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """A collective to run: `devices_per_node` ranks on each node, in processes with
    `devices_per_process` of them.
    """

    backend: Backend
    operation: str
    nodes: tuple[str, ...]
    devices_per_node: int = 8
    devices_per_process: int = 1
    sizes: tuple[int, ...] = (1 << 30,)
    """Bytes of a message, in ascending order."""
    iterations: int = 20
    warm_up_iterations: int = WARM_UP
    data_type: str = ""
    """'' for the tool's own: float, fp32."""
    reduction: str = ""
    program: str = ""
    """Path of the tool on the nodes; '' for its name, on PATH."""
    hca: str = ""
    """NCCL_IB_HCA."""
    interface: str = ""
    """Interface of the sockets."""
    gid_index: Optional[int] = None
    """The GID index where all nodes have the same; otherwise NCCL chooses."""
    traffic_class: Optional[int] = None
    queue_pairs: Optional[int] = None
    rdma: bool = False
    """Whether to fail where RDMA cannot be used, instead of using TCP. A device, a GID index, a
    traffic class or queue pairs ask for it as well."""
    environment: dict[str, str] = {}
    mca: dict[str, str] = {}

    @property
    def ranks(self) -> int:
        """Number of devices in all."""
        return len(self.nodes) * self.devices_per_node

    @property
    def processes_per_node(self) -> int:
        """Number of processes on each node."""
        return self.devices_per_node // self.devices_per_process


class Sweep(NamedTuple):
    """The sizes that one run of the tool measures: from `first` to `last`, each `factor` times the
    one before.
    """

    first: int
    last: int
    factor: int


def of_request(test: TestRequest, nodes: Sequence[str]) -> Collective:
    """The collective of a resolved request."""
    backend: Backend = "hccl" if test.tool == "hccl" else "nccl"
    try:
        sizes = parse_sizes(test.sizes or "1GiB")
    except ValueError as error:
        raise CheckError(f"sizes: {error}") from None
    wanted = Collective(
        backend=backend,
        operation=test.operation or "all_reduce",
        nodes=tuple(nodes),
        devices_per_node=test.devices_per_node or 8,
        devices_per_process=test.devices_per_process or 1,
        sizes=sizes,
        iterations=test.iterations or 20,
        warm_up_iterations=warm_up_of(test),
        data_type=test.data_type,
        reduction=test.reduction,
        # Without "=", NCCL would take mlx5_1 for mlx5_10 as well.
        hca=f"={test.device}:{test.port}" if test.device else "",
        gid_index=test.gid_index,
        traffic_class=test.traffic_class,
        queue_pairs=test.queue_pairs if test.queue_pairs > 1 else None,
        environment=dict(test.environment),
        mca=dict(test.mca),
    )
    verify(wanted)
    return wanted


def verify(wanted: Collective) -> None:
    """Refuse values that must not reach a command line."""
    if wanted.operation not in OPERATIONS[wanted.backend]:
        known = ", ".join(OPERATIONS[wanted.backend])
        raise CheckError(f"{wanted.backend} has no {shown(wanted.operation)}: choose {known}")
    if not wanted.sizes or list(wanted.sizes) != sorted(set(wanted.sizes)) or wanted.sizes[0] < 1:
        raise CheckError("sizes: write them in ascending order, each once")
    counts = (wanted.devices_per_node, wanted.devices_per_process, wanted.iterations)
    if min(counts) < 1 or wanted.warm_up_iterations < 0:
        raise CheckError("devices and iterations: at least 1")
    values = TestRequest(
        tool=wanted.backend,
        operation=wanted.operation,
        devices_per_node=wanted.devices_per_node,
        devices_per_process=wanted.devices_per_process,
        data_type=wanted.data_type,
        reduction=wanted.reduction,
    )
    if wrong := list(problems_of_values(values)):
        raise CheckError(*wrong)
    if wanted.program and not _PROGRAM.fullmatch(wanted.program):
        raise CheckError(f"program: {shown(wanted.program)} is no path of a program")
    for node in wanted.nodes:
        if not _NODE.fullmatch(node):
            raise CheckError(f"nodes: {shown(node)} is no name of a node")
    for what, pairs, rules in (
        ("environment", environment(wanted), ENVIRONMENT[wanted.backend]),
        ("mca", wanted.mca, MCA),
    ):
        for name, value in pairs.items():
            problem = problem_of(name, value, rules)
            if problem is not None:
                raise CheckError(f"{what}: {problem}")


def sweeps(sizes: Sequence[int]) -> list[Sweep]:
    """The sizes, in order, as the fewest sweeps with integer factors."""
    ranges: list[Sweep] = []
    for size in sizes:
        last = ranges[-1] if ranges else None
        factor = size // last.last if last and size % last.last == 0 else 0
        if last and factor > 1 and last.factor in (1, factor):
            ranges[-1] = Sweep(last.first, size, factor)
        else:
            ranges.append(Sweep(size, size, 1))
    return ranges


def sizes_of(swept: Sweep) -> list[int]:
    """The sizes of a sweep."""
    sizes = [swept.first]
    while sizes[-1] < swept.last:
        sizes.append(sizes[-1] * swept.factor)
    return sizes


def tool_argv(wanted: Collective, swept: Sweep) -> list[str]:
    """Return the command line of a process."""
    values: dict[str, Any] = {
        "iterations": wanted.iterations,
        "warm_up": wanted.warm_up_iterations,
        "data_type": wanted.data_type,
        "reduction": wanted.reduction,
    }
    if wanted.backend == "nccl":
        devices = wanted.devices_per_process
        argv = nccl.argv(wanted.operation, *swept, devices=devices, **values)
    else:
        devices = wanted.devices_per_node
        argv = hccl.argv(wanted.operation, *swept, devices=devices, **values)
    return [wanted.program or argv[0], *argv[1:]]


def environment(wanted: Collective) -> dict[str, str]:
    """The environment of the ranks. Variables of the request have precedence."""
    fields: dict[str, object] = {
        "device": wanted.hca or None,
        "queue_pairs": wanted.queue_pairs,
        "gid_index": wanted.gid_index,
        "traffic_class": wanted.traffic_class,
    }
    names = VARIABLES[wanted.backend]
    variables = {
        names[key]: str(value)
        for key, value in fields.items()
        if value is not None and key in names
    }
    if wanted.backend == "nccl":
        asked = {*variables, *wanted.environment} - {"NCCL_IB_DISABLE"}
        if wanted.rdma or any(name.startswith("NCCL_IB_") for name in asked):
            variables = {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", **variables}
        variables = {"NCCL_DEBUG": "WARN", **variables}
    if wanted.interface:
        variables[f"{wanted.backend.upper()}_SOCKET_IFNAME"] = wanted.interface
    return {**variables, **wanted.environment}


def judge(wanted: Collective, sizes: Sequence[int], text: str, status: int) -> tuple[Report, ...]:
    """One report per size, in order, up to the first that failed."""
    parsed = PARSERS[wanted.backend](text)
    reports = _measured(wanted, sizes, parsed)
    if reports and reports[-1].outcome != "ok":
        return reports
    failure = _failure(parsed, sizes[min(len(reports), len(sizes) - 1)], len(reports), status)
    if len(reports) < len(sizes):
        return (*reports, failure or failed("harness", "no row of the requested size"))
    if failure is not None:  # the whole run failed: its last figure is not certain
        return (*reports[:-1], msgspec.structs.replace(failure, rows=reports[-1].rows))
    return reports


def finished(wanted: Collective, sizes: Sequence[int], text: str) -> tuple[Report, ...]:
    """The reports of the sizes whose rows are in the output of a tool that still runs."""
    return _measured(wanted, sizes, PARSERS[wanted.backend](text))


def _measured(wanted: Collective, sizes: Sequence[int], parsed: Report) -> tuple[Report, ...]:
    """The reports of the rows that are there, up to the first that failed."""
    rows = iter([row for row in parsed.rows if not row.in_place])
    reports: list[Report] = []
    row = next(rows, None)
    for size in sizes:
        while row is not None and not _is_of(wanted, size, row):
            row = next(rows, None)
        if row is None:
            break
        reports.append(_of_row(wanted, row))
        if reports[-1].outcome != "ok":
            break
        row = next(rows, None)
    return tuple(reports)


def _failure(parsed: Report, size: int, count: int, status: int) -> Optional[Report]:
    if parsed.outcome != "ok" and not (count and "no result in the output" in parsed.message):
        return msgspec.structs.replace(parsed, rows=())
    if status != 0:
        return failed("harness", f"the launcher ended with status {status} at {size} bytes")
    return None


def _of_row(wanted: Collective, row: ResultRow) -> Report:
    if row.bus_bandwidth_bytes_per_second is None and row.bandwidth_bytes_per_second is not None:
        factor = nccl.bus_factor(wanted.operation, wanted.ranks)
        bus = row.bandwidth_bytes_per_second * factor
        row = msgspec.structs.replace(row, bus_bandwidth_bytes_per_second=bus)
    row = msgspec.structs.replace(row, operation=wanted.operation)
    if row.wrong:
        return failed("corruption", f"{row.wrong} wrong values", [row])
    return Report(outcome="ok", rows=(row,))


def _is_of(wanted: Collective, size: int, row: ResultRow) -> bool:
    # Operations that divide the data among ranks round the size down to a multiple of the ranks.
    return 0 <= size - row.message_bytes < 64 * wanted.ranks


def versions(text: str) -> dict[str, str]:
    """The versions in the output of a run or of `mpirun --version`."""
    text = untagged(text)
    matches = {
        "nccl-tests": _NCCL_TESTS.search(text),
        "nccl": _NCCL.search(text),
        "Open MPI": _OPEN_MPI.search(text),
        "MPICH": _MPICH.search(text),
    }
    printed = {name: match[1] for name, match in matches.items() if match}
    library = _LIBRARY.search(text)
    if library and "nccl" not in printed:
        # A major version counts 10000 from 2.9 on, 1000 before (nccl.h).
        code = int(library[1])
        major, rest = divmod(code, 10_000) if code >= 10_000 else divmod(code, 1000)
        printed["nccl"] = f"{major}.{rest // 100}.{rest % 100}"
    return printed
