"""Decides why a test has no usable result: the hardware, the test itself, or running jobs.

In: the report of a tool. Out: a reason of the check model.

| reason of the report | reason of the check |
|---|---|
| corruption, port_down | hardware |
| no_device | hardware; of a network device, whose name is the site's, harness |
| unreachable | hardware (link, switch port); harness where the other node answered or has no name |
| harness | hardware or workload where the tool's own message names it, otherwise harness |
| peer_busy | workload |
| timeout | threshold where the test was still transferring, otherwise harness |
| no_gid, tool_missing | harness |

Where the agent of a node does not answer the hub, there is no report: the run is skipped, with the
reason harness. A failure that is equal on every node, such as a missing device, is a fault of the
request: the verdict compares the nodes.
"""

from __future__ import annotations

import re
from typing import Optional

from nodevitals.checks.model import Reason
from nodevitals.probes.fabric.tools import report as fabric
from nodevitals.probes.fabric.tools.report import STILL_TRANSFERRING, Report

OF_REPORT: dict[fabric.Reason, Reason] = {
    "peer_busy": "workload",
    "unreachable": "hardware",
    "no_device": "hardware",
    "port_down": "hardware",
    "no_gid": "harness",
    "timeout": "harness",
    "corruption": "hardware",
    "tool_missing": "harness",
    "harness": "harness",
}
# Packets were lost on the tested network: retries exceeded, or connections failed below TCP.
_LOST = re.compile(
    r"Failed status[- ](?:1[23]\b|.{0,200}\(1[23]\))"
    r"|Got completion .{0,200}(?:error|status=)\s?1[23]\b"
    r"|Failed to modify QP \d{1,10} to RT[RS]"
    r"|iperf3: .{0,200}(?:No route to host|Network is unreachable|timed out)"
)
# The network works, but a process on the other node does not; or the name was not resolved; or ssh,
# which uses another network, failed.
_ANSWERED = re.compile(
    r"(?i)refused|reset|broken pipe|connection closed|closed unexpectedly|has terminated"
    r"|interrupt -|read remote address|Unexpected CM event|in resolving|name service|host key"
    r"|\bssh: "
)
# Errors that the device libraries report. HCCL's codes 12 and 14 are RoCE connections, 19 is the
# network (hccl_types.h).
_BROKEN = re.compile(
    r"(?i)uncorrectable|fallen off the bus|hardware (?:stack )?(?:error|fault)|GPU is lost"
    r"|unspecified launch failure|Xid \d|retcode: (?:12|14|19)\b"
)
_NO_NETWORK_DEVICE = re.compile(r"has no network device ")
_TAKEN = re.compile(r"(?i)out of memory|device.{0,40}(?:busy|unavailable)|in use by")


def reason_of(report: Report) -> Optional[Reason]:
    """The reason of a report for a verdict; None for one with results."""
    if report.outcome == "ok":
        return None
    reason = report.reason or "harness"
    if reason == "unreachable" and not _LOST.search(report.message):
        return "harness" if _ANSWERED.search(report.message) else "hardware"
    if reason == "no_device" and _NO_NETWORK_DEVICE.search(report.message):
        return "harness"
    if reason == "timeout" and report.message.startswith(STILL_TRANSFERRING):
        return "threshold"
    if reason == "harness" and _BROKEN.search(report.message):
        return "hardware"
    if reason == "harness" and _TAKEN.search(report.message):
        return "workload"
    return OF_REPORT[reason]
