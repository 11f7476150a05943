"""The report of a bandwidth tool: its results, or why there are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Optional, get_args

import msgspec

Reason = Literal[
    "peer_busy",
    "unreachable",
    "no_device",
    "port_down",
    "no_gid",
    "timeout",
    "corruption",
    "tool_missing",
    "harness",
]
"""Why there is no result. Only `corruption` means wrong data; `harness` is a fault of this program
or of the tool, never a slow link; `timeout` means that the test was still transferring."""

REASONS: tuple[Reason, ...] = get_args(Reason)

BANDWIDTH = ("write_bw", "read_bw", "send_bw")
LATENCY = ("send_lat", "write_lat", "read_lat")
"""perftest reports half of the round trip for `send_lat` and `write_lat`, and the whole of it for
`read_lat`, because a read returns by itself (rtt_factor in its perftest_parameters.c)."""
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv"),
    *("reduce", "gather", "scatter", "hypercube"),
)
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
"""Collectives that calculate, with an operator."""


class ResultRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of results. None means that the tool does not report the value.

    Sizes in bytes, bandwidths in bytes per second; `latency_seconds` by statistic: minimum,
    maximum, median, mean, p99, p999. `bus_bandwidth_bytes_per_second` is that of a collective,
    comparable between numbers of ranks.
    """

    operation: Optional[str] = None
    message_bytes: int
    iterations: Optional[int] = None
    bandwidth_bytes_per_second: Optional[float] = None
    bus_bandwidth_bytes_per_second: Optional[float] = None
    peak_bytes_per_second: Optional[float] = None
    latency_seconds: Optional[dict[str, float]] = None
    in_place: Optional[bool] = None
    wrong: Optional[int] = None
    retransmits: Optional[int] = None
    link_layer: Optional[Literal["InfiniBand", "Ethernet"]] = None
    """Of the device, where perftest names it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole output of a tool. `failed` always has a reason, and in `message` the line that
    shows it.
    """

    outcome: Literal["ok", "failed"]
    reason: Optional[Reason] = None
    message: str = ""
    rows: tuple[ResultRow, ...] = ()


# Open MPI's --tag-output puts this prefix before each piece that it reads, also within a line.
_TAG = re.compile(r"\[\d{1,10},\d{1,10}\]<std(?:out|err|diag)>:")
# The prefix of srun's --label.
_LABEL = re.compile(r"^\d+: ?")
_LAUNCHER = re.compile(r"mpirun (?:detected|noticed|was unable)|ORTE was unable|PRTE ERROR")
# Lines that Open MPI prints around and between its messages, and after one about an option.
_RULE = re.compile(r"\s*-{10,}\s*")
_LOGGED = re.compile(r"\[[^\]]{1,300}:\d{1,10}\]")
_USAGE = re.compile(r"Type '.{1,300} --help' for usage")


def untagged(text: str) -> str:
    """The output of ranks without the launcher's prefixes."""
    return "\n".join(_LABEL.sub("", line) for line in _TAG.sub("", text).splitlines())


FailurePatterns = Sequence[tuple[re.Pattern[str], Reason]]


def failure_patterns(*pairs: tuple[str, Reason]) -> FailurePatterns:
    """Patterns of failures; the first one found anywhere decides."""
    return [(re.compile(pattern), reason) for pattern, reason in pairs]


def failed(reason: Reason, message: str, rows: Sequence[ResultRow] = ()) -> Report:
    """A report of a test without a usable result."""
    return Report(outcome="failed", reason=reason, message=message[:300], rows=tuple(rows))


NOT_TESTED = "not tested: a smaller size failed"


STILL_TRANSFERRING = "still transferring after "


def still_transferring(seconds: float) -> Report:
    """A report of a test that did not end in time while its tool was connected to the peer's tool:
    the link is slow, and the test is not at fault.
    """
    return failed("timeout", f"{STILL_TRANSFERRING}{round(seconds, 1):g} s")


def judged(text: str, rows: Sequence[ResultRow], failures: FailurePatterns) -> Report:
    """The failure in the text (the tool's before its launcher's), else the rows; without any row, a
    `harness` failure.
    """
    lines = text.splitlines()
    for pattern, reason in failures:
        for line in lines:
            if pattern.search(line):
                return failed(reason, " ".join(line.split()), rows)
    if any(_LAUNCHER.search(line) for line in lines):
        return failed("harness", _ending(lines), rows)
    if any(row.wrong for row in rows):
        return failed("corruption", f"{max(row.wrong or 0 for row in rows)} wrong values", rows)
    if not rows:
        return failed("harness", f"no result in the output; it ends with: {_ending(lines)}")
    return Report(outcome="ok", rows=tuple(rows))


def _ending(lines: Sequence[str]) -> str:
    """The end of the output in one line. If it ends with messages of Open MPI, each between two
    lines of dashes: the line before them, if any, and the first message, which names the cause.
    """
    said = [line for line in lines if line.strip() and not _USAGE.match(line)]
    before, message, inside = "", [""], False
    for line in reversed(said):
        if _RULE.fullmatch(line):
            inside = not inside
            message = [] if inside else message
        elif inside:
            message.append(line)
        elif not _LOGGED.match(line):
            before = line
            break
    parts = [" ".join(part.split()) for part in (before, " ".join(reversed(message)))]
    return "; ".join(part for part in parts if part) or next(reversed(said), "nothing")


def agrees(value: float, expected: float, digit: float, share: float = 1e-3) -> bool:
    """Whether two figures for the same quantity agree, given the value of the last digit."""
    return abs(value - expected) <= digit + share * abs(expected)
