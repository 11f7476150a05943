"""Why a test has no usable result: a fault of the hardware, of the test itself, or jobs in the way.

In: the report of a tool. Out: a reason of the check model.

| reason of the report | reason of the check |
|---|---|
| corruption, port_down, no_device | hardware |
| unreachable | hardware where packets were lost on the tested network, otherwise harness |
| harness | hardware or workload where the tool's own message names it, otherwise harness |
| peer_busy | workload |
| no_gid, timeout, tool_missing | harness |

A device that is missing on every node is a misspelled request: the verdict compares the nodes.
"""

from __future__ import annotations

import re
from typing import Optional

from nodevitals.checks.model import Reason
from nodevitals.probes.fabric import report as fabric
from nodevitals.probes.fabric.report import Report

OF_REPORT: dict[fabric.Reason, Reason] = {
    "peer_busy": "workload",
    "unreachable": "harness",
    "no_device": "hardware",
    "port_down": "hardware",
    "no_gid": "harness",
    "timeout": "harness",
    "corruption": "hardware",
    "tool_missing": "harness",
    "harness": "harness",
}
# Retries exceeded, and connections that fail below TCP: packets were lost on the tested network.
_LOST = re.compile(
    r"Failed status[- ](?:1[23]\b|.{0,200}\(1[23]\))"
    r"|Got completion .{0,200}(?:error|status=)\s?1[23]\b"
    r"|Failed to modify QP \d{1,10} to RT[RS]"
    r"|iperf3: .{0,200}(?:No route to host|Network is unreachable|timed out)"
)
# What the libraries of the devices report. Codes of HCCL: 12 and 14 are RoCE connections, 19 the
# network (hccl_types.h).
_BROKEN = re.compile(
    r"(?i)uncorrectable|fallen off the bus|hardware (?:stack )?(?:error|fault)|GPU is lost"
    r"|unspecified launch failure|Xid \d|retcode: (?:12|14|19)\b"
)
_TAKEN = re.compile(r"(?i)out of memory|device.{0,40}(?:busy|unavailable)|in use by")


def reason_of(report: Report) -> Optional[Reason]:
    """The reason of a report for a verdict; None for one with results."""
    if report.outcome == "ok":
        return None
    reason = report.reason or "harness"
    if reason == "unreachable" and _LOST.search(report.message):
        return "hardware"
    if reason == "harness" and _BROKEN.search(report.message):
        return "hardware"
    if reason == "harness" and _TAKEN.search(report.message):
        return "workload"
    return OF_REPORT[reason]
