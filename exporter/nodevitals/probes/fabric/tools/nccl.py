"""nccl-tests: all_reduce_perf and the like, under mpirun or srun.

A row has its algorithm bandwidth twice, directly and as bytes per time, so a garbled row is
detected. GB are 10^9. https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodevitals.probes.fabric.tools.report import (
    Report,
    ResultRow,
    agrees,
    failed,
    failure_patterns,
    judged,
    untagged,
)

GIGA = 1e9
# src/common.cu (test_typenames, test_opnames); half, float and double are IEEE's.
DATA_TYPES = (
    *("float", "half", "bfloat16", "double", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("f8e4m3", "f8e5m2"),
)
REDUCTIONS = ("sum", "prod", "min", "max", "avg", "mulsum")
_STARTING = re.compile(r"# Collective test starting: (\w+?)_perf")
# A number with more digits is not accepted.
_TIME = r"(\d{1,15}(?:\.\d{1,15})?(?:e[+-]?\d\d?)?)"
_RATE = r"(\d{1,15}\.\d\d)"
_HALF = rf"{_TIME}\s+{_RATE}\s+{_RATE}\s+(\d{{1,15}}|N/A|\d{{1,15}}e[+-]?\d\d?)"
_ROW = re.compile(
    rf"^\s*(\d{{1,15}})\s+(\d{{1,15}})\s+([a-z]\w*)(?:\s+([a-z]\w*))?(?:\s+(-?\d{{1,15}}))?\s+{_HALF}\s+{_HALF}\s*$"
)
FAILURES = failure_patterns(
    (r"# Out of bounds values : .{0,300}FAILED", "corruption"),
    # The line that names the device's fault comes before the line that reports a failure.
    (r"(?i)uncorrectable|fallen off the bus|GPU is lost|out of memory", "harness"),
    (r"Test timeout|Timeout waiting|time limit for job execution", "timeout"),
    (
        r"Got completion .{0,300}(?:error|status=)\s?12\b|Connection refused|No route to host",
        "unreachable",
    ),
    (
        r"Connection closed by remote peer|Connect to .{0,300} failed|Host key verification",
        "unreachable",
    ),
    (
        r"No such file or directory|command not found|unable to find the specified exec",
        "tool_missing",
    ),
    (r"Test (?:NCCL|CUDA) failure|Test failure|not enough slots", "harness"),
)


def argv(
    operation: str,
    first: int,
    last: int,
    factor: int,
    iterations: int,
    devices: int = 1,
    warm_up: int = 5,
    data_type: str = "",
    reduction: str = "",
) -> list[str]:
    """Return one process' command line: sizes from `first` to `last`, every result checked."""
    return [
        f"{operation}_perf",
        *sweep(first, last, factor),
        *("-g", str(devices)),
        *(["-d", data_type] if data_type else []),
        *(["-o", reduction] if reduction else []),
        *("-n", str(iterations), "-w", str(warm_up), "-c", "1"),
    ]


def sweep(first: int, last: int, factor: int) -> list[str]:
    """The options of the sizes, the same for nccl-tests and the HCCL test."""
    return [
        *("-b", _size(first), "-e", _size(last)),
        *(["-f", str(factor)] if last > first else []),
    ]


def _size(size: int) -> str:
    """`32M`, as both tools read it; bytes where it is no multiple."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse(text: str) -> Report:
    """Read all ranks' output, of both streams."""
    plain = untagged(text)
    lines = plain.splitlines()
    starting = _STARTING.search(plain)
    rows = [row for line in lines for row in _rows(line, starting[1] if starting else None)]
    report = judged(plain, rows, FAILURES)
    if report.outcome == "ok" and sum("Rank  0 " in line for line in lines) > 1:
        return failed("harness", "built without MPI: each rank ran a test of its own")
    return report


def bus_factor(operation: str, ranks: int) -> float:
    """Bus bandwidth per algorithm bandwidth; bus bandwidths of different numbers of ranks
    compare. As doc/PERFORMANCE.md has it, and src/ for gather, scatter, hypercube and sendrecv.
    """
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


def _rows(line: str, operation: str | None) -> Iterator[ResultRow]:
    """Both halves of a line, out of place and in place, or none."""
    match = _ROW.match(line)
    if match is None:
        return
    size = int(match[1])
    halves = (match.groups()[5:9], match.groups()[9:13])
    # A rank of hypercube does not count its own part: (n - 1) / n of the size (src/hypercube.cu).
    least = 0.5 if operation == "hypercube" else 1.0
    if not all(_is_sound(size, least, *map(float, half[:3])) for half in halves):
        return
    for in_place, (_, algorithm, bus, wrong) in enumerate(halves):
        yield ResultRow(
            operation=operation,
            message_bytes=size,
            bandwidth_bytes_per_second=round(float(algorithm) * GIGA),
            bus_bandwidth_bytes_per_second=round(float(bus) * GIGA),
            in_place=bool(in_place),
            wrong=None
            if wrong == "N/A"
            else int(float(wrong) != 0)
            if "e" in wrong
            else int(wrong),
        )


def _is_sound(size: int, least: float, microseconds: float, algorithm: float, bus: float) -> bool:
    """Whether the bandwidth equals bytes per time, of which `least` counts; the time has four
    digits.
    """
    if microseconds <= 0:
        return False
    whole = size / microseconds * 1e-3
    parts = [whole, max(whole * least, min(algorithm, whole))]
    is_one = any(agrees(algorithm, part, 0.006, 2e-3) for part in parts)
    return is_one and bus <= 2 * algorithm + 0.02
