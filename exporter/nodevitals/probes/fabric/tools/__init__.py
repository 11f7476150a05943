"""Bandwidth tools: the command line of each, and the parser of its output."""

from __future__ import annotations

from collections.abc import Callable

from nodevitals.probes.fabric.tools import hccl, iperf3, nccl, perftest
from nodevitals.probes.fabric.tools.report import Report

PARSERS: dict[str, Callable[[str], Report]] = {
    "perftest": perftest.parse,
    "nccl": nccl.parse,
    "hccl": hccl.parse,
    "iperf3": iperf3.parse,
}
