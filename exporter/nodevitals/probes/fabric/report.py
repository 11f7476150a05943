"""What a bandwidth tool measured, or why it measured nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, get_args

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
"""Why there is no figure. Only `corruption` speaks of data; `harness` is our own trouble, or the
tool's: whatever it is, it is no slow link."""

REASONS: tuple[Reason, ...] = get_args(Reason)

BANDWIDTH = ("write_bw", "read_bw", "send_bw")
LATENCY = ("send_lat", "write_lat")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of results. None is what the tool does not say.

    Sizes in bytes, bandwidths in bytes a second; `latency_seconds` by statistic: minimum, maximum,
    median, mean, p99, p999. `bus_bandwidth_bytes_per_second` is a collective's, comparable between
    numbers of ranks.
    """

    operation: str | None = None
    message_bytes: int
    iterations: int | None = None
    bandwidth_bytes_per_second: float | None = None
    bus_bandwidth_bytes_per_second: float | None = None
    peak_bytes_per_second: float | None = None
    latency_seconds: dict[str, float] | None = None
    in_place: bool | None = None
    wrong: int | None = None
    retransmits: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's whole output. `failed` always has a reason, and `message` the line that says so."""

    outcome: Literal["ok", "failed"]
    reason: Reason | None = None
    message: str = ""
    rows: tuple[Row, ...] = ()


# What Open MPI's --tag-output and srun's --label put before each line.
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:|\d+: ?)")


def untagged(text: str) -> str:
    """What ranks printed, without the launcher's word of which."""
    return "\n".join(_PREFIX.sub("", line) for line in text.splitlines())


Marks = Sequence[tuple[re.Pattern[str], Reason]]


def marks(*pairs: tuple[str, Reason]) -> Marks:
    """Patterns of failure, the first that is found anywhere counts."""
    return [(re.compile(pattern), reason) for pattern, reason in pairs]


def failed(reason: Reason, message: str, rows: Sequence[Row] = ()) -> Report:
    """Return a report of a test that gave no figure to judge by."""
    return Report(outcome="failed", reason=reason, message=message[:300], rows=tuple(rows))


def judged(text: str, rows: Sequence[Row], failures: Marks) -> Report:
    """A failure that the text speaks of, else its rows; no row at all is the harness failing."""
    lines = text.splitlines()
    for pattern, reason in failures:
        for line in lines:
            if pattern.search(line):
                return failed(reason, " ".join(line.split()), rows)
    if any(row.wrong for row in rows):
        return failed("corruption", f"{max(row.wrong or 0 for row in rows)} wrong values", rows)
    if not rows:
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        return failed(
            "harness", f"no result in the output; its last line: {' '.join(last.split())}"
        )
    return Report(outcome="ok", rows=tuple(rows))


def agrees(value: float, expected: float, digit: float, share: float = 1e-3) -> bool:
    """Whether two figures that say the same in two ways do, given the worth of the last digit."""
    return abs(value - expected) <= digit + share * abs(expected)
