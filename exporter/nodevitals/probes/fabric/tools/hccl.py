"""HCCL test: all_reduce_test and the like of the Ascend toolkit.

Its GB/s are GiB/s (2^30), as its own bytes and times show. It reports no bus bandwidth.
https://www.hiascend.com/document (HCCL performance test tool)
"""

from __future__ import annotations

import re

from nodevitals.probes.fabric.tools.nccl import sweep
from nodevitals.probes.fabric.tools.report import (
    REDUCING,
    Report,
    ResultRow,
    agrees,
    failure_patterns,
    judged,
    untagged,
)

GIBI = 2**30
_INTEGERS = ("int8", "int16", "int32", "int64")
DATA_TYPES = (
    *("fp32", "fp16", "bfp16", "fp64", *_INTEGERS, *(f"u{name}" for name in _INTEGERS)),
    *("fp8e5m2", "fp8e4m3", "fp8e8m0", "hif8"),
)
REDUCED_DATA_TYPES = ("fp32", "fp16", "bfp16", "fp64", *_INTEGERS, "uint64")
"""Those of the collectives with an operator."""
REDUCTIONS = ("sum", "prod", "min", "max")
_ROW = re.compile(
    r"^\s*(\d{1,15})\s*\|\s*(\d{1,15}\.\d\d)\s*\|\s*(\d{1,15}\.\d{5})\s*\|\s*(success|failed|NULL)\s*$"
)
FAILURES = failure_patterns(
    (r"\|\s*failed\s*$", "corruption"),
    (r"(?i)connect.{0,300} timeout|HCCL_CONNECT_TIMEOUT|retcode: 9\b", "timeout"),
    (
        r"No such file or directory|command not found|unable to find the specified exec",
        "tool_missing",
    ),
    (r"hccl interface return err|This is an error in", "harness"),
    (r"not enough slots", "harness"),
)


def argv(
    operation: str,
    first: int,
    last: int,
    factor: int,
    iterations: int,
    devices: int,
    warm_up: int = 5,
    data_type: str = "",
    reduction: str = "",
) -> list[str]:
    """Return one rank's command line: sizes from `first` to `last`; `devices` of each node."""
    return [
        *(f"{operation}_test", "-p", str(devices), *sweep(first, last, factor)),
        *("-d", data_type or "fp32"),
        *(["-o", reduction or "sum"] if operation in REDUCING else []),
        *("-n", str(iterations), "-w", str(warm_up), "-c", "1"),
    ]


def parse(text: str) -> Report:
    """Read the output of both streams."""
    plain = untagged(text)
    rows = [row for line in plain.splitlines() if (row := _row(line)) is not None]
    return judged(plain, rows, FAILURES)


def _row(line: str) -> ResultRow | None:
    match = _ROW.match(line)
    if match is None:
        return None
    size, microseconds, printed = int(match[1]), float(match[2]), float(match[3])
    if microseconds <= 0 or not agrees(printed, size / (microseconds * 1e-6) / GIBI, 1e-5, 2e-3):
        return None
    return ResultRow(
        message_bytes=size,
        bandwidth_bytes_per_second=printed * GIBI,
        wrong={"success": 0, "failed": 1, "NULL": None}[match[4]],
    )
