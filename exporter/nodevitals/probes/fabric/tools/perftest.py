"""perftest: ib_write_bw, ib_read_bw, ib_send_bw, ib_send_lat, ib_write_lat, ib_read_lat.

Each row has its bandwidth twice, in bytes and in messages per second, so a row that was cut or
mixed with another line is detected. `MB/sec` are MiB. The JSON of Debian 12's version is invalid
and names no unit; it is parsed anyway. https://github.com/linux-rdma/perftest
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, Optional

import msgspec

from nodevitals.probes.fabric.tools.report import (
    Report,
    ResultRow,
    agrees,
    failure_patterns,
    judged,
)

BYTES_OF_UNIT = {"MB/sec": 2**20, "MiB/sec": 2**20, "Gb/sec": 1e9 / 8}
_OPERATIONS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}
_TITLE = re.compile(
    r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic)(?: Bidirectional)? (BW|Latency) Test\s*$"
)
_BANDWIDTH_HEAD = re.compile(
    r"^\s*#bytes\s+#iterations\s+BW peak\[(\S+?)\]\s+BW average\[\1\]\s+MsgRate\[Mpps\]"
    r"(\s+BW min\[\1\])?\s*$"
)
_LINK = re.compile(r"^[ \t]*Link type[ \t]*:[ \t]*(IB|Ethernet)[ \t]*$", re.MULTILINE)
_LINK_LAYERS: dict[str, Literal["InfiniBand", "Ethernet"]] = {
    "IB": "InfiniBand",
    "Ethernet": "Ethernet",
}
_LATENCY_HEAD = re.compile(r"^\s*#bytes\s+#iterations\s+t_min\[usec\]")
# A number with more digits is not accepted.
_COUNT = r"(\d{1,15})"
_FIGURE = r"\d{1,15}\.\d\d(?:\d{4})?"
_BANDWIDTH_ROW = re.compile(
    rf"^\s*{_COUNT}\s+{_COUNT}\s+({_FIGURE})\s+({_FIGURE})\s+(\d{{1,15}}\.\d{{6}})(?:\s+({_FIGURE}))?\s*$"
)
# There may be no space between columns; the standard deviation may be no number.
_TIME, _DEVIATION = r"(\d{1,15}\.\d\d)", r"(\d{1,15}\.\d\d|-?nan)"
_LATENCY_ROW = re.compile(
    rf"^\s*{_COUNT}\s+{_COUNT}\s+" + r"\s*".join([*[_TIME] * 4, _DEVIATION, _TIME, _TIME]) + r"\s*$"
)
_STATISTICS = ("minimum", "maximum", "median", "mean", "", "p99", "p999")

FAILURES = failure_patterns(
    (r"Couldn't listen to port", "harness"),
    (r"Did not detect devices|IB device \S+ not found|Unable to find the Infiniband", "no_device"),
    (r"Port number \d+ state is|Port \d+ .{0,300}(?:is not|not) active", "port_down"),
    (
        r"Incompatibility issue with GID|Can't find .{0,300}GID|Failed to .{0,300}gid index",
        "no_gid",
    ),
    (r"Couldn't connect to|Problem in resolving|Unable to open file descriptor", "unreachable"),
    (r"Failed to modify QP \d+ to RT[RS]", "unreachable"),
    # Retries exceeded: the peer is gone. Any other status means that the two sides do not match.
    (r"Failed status[- ](?:12\b|.{0,300}\(12\))", "unreachable"),
    (r"Couldn't read remote address|Unexpected CM event", "unreachable"),
    (r"Failed status", "harness"),
    (r"Completion with error|Failed to complete run_iter", "harness"),
)


class PerftestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a test; only the GID differs between the two sides."""

    operation: str
    device: str
    ib_port: int = 1
    gid_index: Optional[int] = None
    """None on InfiniBand, which does not need it."""
    message_bytes: int = 65536
    iterations: int = 1000
    queue_pairs: int = 1
    seconds: Optional[int] = None
    """In place of the iterations; for bandwidths, as perftest prints no percentiles then."""
    traffic_class: Optional[int] = None
    """Traffic class in the global routing header: on RoCE, DSCP and ECN."""


def argv(test: PerftestOptions, tcp_port: int, peer: str | None = None) -> list[str]:
    """Return the command line of the client; without a peer, of the server."""
    command = [f"ib_{test.operation}", "-d", test.device, "-i", str(test.ib_port)]
    if test.gid_index is not None:
        command += ["-x", str(test.gid_index)]
    command += ["-p", str(tcp_port), "-s", str(test.message_bytes)]
    if test.seconds is None:
        command += ["-n", str(test.iterations)]
    else:
        command += ["-D", str(test.seconds)]
    if test.traffic_class is not None:
        command += [f"--tclass={test.traffic_class}"]
    if test.operation.endswith("_bw"):
        command += ["-q", str(test.queue_pairs), "--report_gbits"]
    return [*command, "-F", *([peer] if peer else [])]


def parse(text: str) -> Report:
    """Read a client's or a server's output, of both streams; text or JSON."""
    results = _RESULTS.search(text)
    rows = _json_rows(text, results.end()) if results else _rows(text)
    link = _LINK.search(text)
    if link:
        layer = _LINK_LAYERS[link[1]]
        rows = [msgspec.structs.replace(row, link_layer=layer) for row in rows]
    return judged(text, rows, FAILURES)


def _rows(text: str) -> list[ResultRow]:
    rows: list[ResultRow] = []
    operation: str | None = None
    read: Callable[[str], ResultRow | None] = _latency
    unit = ""
    for line in text.splitlines():
        title = _TITLE.match(line)
        head = _BANDWIDTH_HEAD.match(line)
        if title:
            operation = _operation(*title.groups())
        elif head:
            unit = head[1]
        elif _LATENCY_HEAD.match(line):
            unit = ""
        row = _bandwidth(line, unit) if unit else read(line)
        if row is not None:
            rows.append(msgspec.structs.replace(row, operation=operation))
    return rows


def _operation(verb: str, kind: str) -> str:
    return f"{_OPERATIONS[verb]}_{'bw' if kind == 'BW' else 'lat'}"


def _bandwidth(line: str, unit: str) -> ResultRow | None:
    match = _BANDWIDTH_ROW.match(line)
    factor = BYTES_OF_UNIT.get(unit)
    if match is None or factor is None:
        return None
    size, iterations = int(match[1]), int(match[2])
    peak, average, messages = (float(match[number]) for number in (3, 4, 5))
    digit = (0.5e-6 if average < 0.1 else 0.005) * factor + 0.5 * size
    if not size or not agrees(average * factor, messages * 1e6 * size, digit):
        return None
    return ResultRow(
        message_bytes=size,
        iterations=iterations,
        bandwidth_bytes_per_second=average * factor,
        # 0.00 means that it was not measured.
        peak_bytes_per_second=peak * factor or None,
    )


def _latency(line: str) -> ResultRow | None:
    match = _LATENCY_ROW.match(line)
    if match is None:
        return None
    return _latency_row(
        int(match[1]), int(match[2]), [float(group) for group in match.groups()[2:]]
    )


def _latency_row(size: int, iterations: int, figures: list[float]) -> ResultRow | None:
    """A row of latencies from microseconds; None if these are not in ascending order."""
    least, most, median, mean, _, p99, p999 = figures
    if not (least <= median <= p99 <= p999 <= most and least <= mean <= most):
        return None
    return ResultRow(
        message_bytes=size,
        iterations=iterations,
        latency_seconds={
            name: microseconds / 1e6 for name, microseconds in zip(_STATISTICS, figures) if name
        },
    )


# JSON: valid from 24.01 on; before that with bare words and superfluous commas.

_RESULTS = re.compile(r'^[ \t]*"?results"?[ \t]*:', re.MULTILINE)
_PAIR = re.compile(r'^[ \t]*"?([A-Za-z_][\w.()/]*)"?[ \t]*:(.*)$', re.MULTILINE)
_JSON_TITLE = re.compile(
    r'"?test"?\s*:\s*"?(RDMA_Write|RDMA_Read|Send|Atomic)_?(?:\w+_)?(BW|Latency)_Test'
)
_JSON_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,15})?")
_LATENCY_KEYS = (
    "t_min",
    "t_max",
    "t_typical",
    "t_avg",
    "t_stdev",
    "percentile_99",
    "percentile_99.9",
)


def _json_rows(text: str, start: int) -> list[ResultRow]:
    if text.count("{") != text.count("}"):
        return []  # cut off
    pairs = {
        key.partition("(")[0]: value.strip().removesuffix(",").strip().strip('"')
        for key, value in _PAIR.findall(text, start)
    }
    pairs = {key: value for key, value in pairs.items() if _JSON_NUMBER.fullmatch(value)}
    title = _JSON_TITLE.search(text)
    try:
        size, iterations = int(pairs["MsgSize"]), int(pairs["n_iterations"])
        if "t_typical" in pairs:
            row = _latency_row(size, iterations, [float(pairs[key]) for key in _LATENCY_KEYS])
        else:
            row = _json_bandwidth(size, iterations, pairs)
    except (KeyError, ValueError):
        return []
    if row is None:
        return []
    return [msgspec.structs.replace(row, operation=_operation(*title.groups()) if title else None)]


def _json_bandwidth(size: int, iterations: int, pairs: dict[str, str]) -> ResultRow | None:
    """A row of bandwidths. The output has no unit; the right unit makes bytes and messages
    agree.
    """
    average, peak = float(pairs["BW_average"]), float(pairs["BW_peak"])
    messages = float(pairs["MsgRate"]) * 1e6
    for factor in set(BYTES_OF_UNIT.values()):
        if size and agrees(average * factor, messages * size, 0.005 * factor + 0.5 * size):
            return ResultRow(
                message_bytes=size,
                iterations=iterations,
                bandwidth_bytes_per_second=average * factor,
                peak_bytes_per_second=peak * factor or None,
            )
    return None
