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
    operation: str, first: int, last: int, factor: int, iterations: int, devices: int = 1
) -> list[str]:
    """Return one rank's command line: sizes from `first` to `last`, every result checked."""
    sizes = ["-b", str(first), "-e", str(last), *(["-f", str(factor)] if last > first else [])]
    rounds = ["-n", str(iterations), "-w", "5", "-c", "1"]
    return [f"{operation}_perf", *sizes, "-g", str(devices), *rounds]


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
    compare.
    """
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in ("all_gather", "reduce_scatter", "alltoall"):
        return (ranks - 1) / ranks
    return 1.0


def _rows(line: str, operation: str | None) -> Iterator[ResultRow]:
    """Both halves of a line, out of place and in place, or none."""
    match = _ROW.match(line)
    if match is None:
        return
    size = int(match[1])
    halves = (match.groups()[5:9], match.groups()[9:13])
    if not all(_is_sound(size, *map(float, half[:3])) for half in halves):
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


def _is_sound(size: int, microseconds: float, algorithm: float, bus: float) -> bool:
    """Whether the bandwidth equals bytes per time; the time has four digits."""
    if microseconds <= 0:
        return False
    return (
        agrees(algorithm, size / microseconds * 1e-3, 0.006, 2e-3) and bus <= 2 * algorithm + 0.02
    )
