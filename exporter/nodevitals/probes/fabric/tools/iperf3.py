"""iperf3: plain TCP, on any machine. With -J its exit status is always 0.

https://software.es.net/iperf/
"""

from __future__ import annotations

import json
from typing import Any

from nodevitals.probes.fabric.tools.report import (
    Report,
    ResultRow,
    agrees,
    failed,
    failure_patterns,
    judged,
)

MAX_NUMBER = 1e18
FASTEST_STREAM = 12.5e9
"""Highest bytes per second of one stream: one thread copies all its bytes."""
FAILURES = failure_patterns(
    (r"the server is busy", "peer_busy"),
    (r"(?i)timed out|timeout", "timeout"),
    (r"unable to start listener|Address already in use", "harness"),
    (r"unable to connect to server|No route to host|Network is unreachable", "unreachable"),
    (r"control socket has closed unexpectedly|Connection reset|Broken pipe", "unreachable"),
    (r"the client has terminated|the server has terminated|interrupt -", "unreachable"),
    (r"iperf3: error", "harness"),
)


def argv(
    tcp_port: int,
    peer: str | None = None,
    total_bytes: int = 65_536_000,
    message_bytes: int = 131_072,
    streams: int = 1,
    seconds: int | None = None,
    traffic_class: int | None = None,
    own: str = "",
) -> list[str]:
    """Return the command line of the client, or of a server for one test. The test ends after so
    many seconds if these are given, else after so many bytes: iperf3 accepts only one of the two.
    The client sends from the address `own`.
    """
    if peer is None:
        return ["iperf3", "-s", "-1", "-p", str(tcp_port), "--forceflush"]
    end = ["-n", str(total_bytes)] if seconds is None else ["-t", str(seconds)]
    size = [*end, "-l", str(message_bytes), "-P", str(streams)]
    if traffic_class is not None:
        size += ["--tos", str(traffic_class)]
    if own:
        size += ["-B", own]
    return ["iperf3", "-c", peer, "-p", str(tcp_port), "--connect-timeout", "2000", *size, "-J"]


def parse(text: str) -> Report:
    """Read a client's JSON; of plain text, only the failure."""
    start = text.find("{")
    if start < 0:
        return judged(text, [], FAILURES)
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return judged(text, [], (*FAILURES, *failure_patterns((r"\{", "harness"))))
    error = document.get("error")
    if error is not None:
        return judged(f"iperf3: error - {error}", [], FAILURES)
    try:
        rows = _rows(document)
    except (KeyError, TypeError, ValueError):
        return failed("harness", "iperf3's JSON lacks expected fields")
    return judged("", rows, ())


def _rows(document: dict[str, Any]) -> list[ResultRow]:
    end = document["end"]
    if not isinstance(end, dict):
        raise TypeError(end)
    size = round(_number(document["start"]["test_start"]["blksize"]))
    rows = []
    for received, sent in (
        ("sum_received", "sum_sent"),
        ("sum_received_bidir_reverse", "sum_sent_bidir_reverse"),
    ):
        if received in end:
            total, seconds = _number(end[received]["bytes"]), _number(end[received]["seconds"])
            rate = _number(end[received]["bits_per_second"]) / 8
            repeated = end[sent].get("retransmits") if isinstance(end.get(sent), dict) else None
            if seconds <= 0 or not agrees(rate, total / seconds, 1.0):
                raise ValueError(received)
            rows.append(
                ResultRow(
                    operation="tcp",
                    message_bytes=size,
                    bandwidth_bytes_per_second=rate,
                    retransmits=None if repeated is None else round(_number(repeated)),
                )
            )
    return rows


def _number(value: object) -> float:
    """A number of JSON. Raises TypeError and ValueError for an impossible number: JSON may contain
    NaN and numbers of any length.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(value)
    if not 0 <= value <= MAX_NUMBER:
        raise ValueError(value)
    return float(value)
