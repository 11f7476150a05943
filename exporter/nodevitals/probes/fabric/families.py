"""What fabric tests expose. A test is told by the node that started it."""

from __future__ import annotations

from nodevitals.probe import Family
from nodevitals.probes.fabric.gate import WHY
from nodevitals.probes.fabric.report import COLLECTIVES, REASONS
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS

SKIPS = (*WHY, "budget", "peer_busy", "plan_differs")
STATISTICS = ("minimum", "median", "mean", "p99", "p999", "maximum")
_CLOSED = {"tool": TOOLS, "operation": OPERATIONS}
_TEST = ("tool", "operation")
_PAIR = ("tool", "operation", "source", "peer", "device", "message_bytes")

BANDWIDTH = Family(
    name="nodevitals_fabric_bandwidth_bytes_per_second",
    kind="gauge",
    help="What the last test with this peer reached; missing where it failed.",
    labels=_PAIR,
    closed=_CLOSED,
)
LATENCY = Family(
    name="nodevitals_fabric_latency_seconds",
    kind="gauge",
    help="Half a round trip of the last test with this peer, over its messages.",
    labels=(*_PAIR, "statistic"),
    closed={**_CLOSED, "statistic": STATISTICS},
)
FAILURE = Family(
    name="nodevitals_fabric_failure",
    kind="gauge",
    help="Always 1; why the last test with this peer gave no figure. Missing where it gave one.",
    labels=(*_PAIR, "reason"),
    closed={**_CLOSED, "reason": REASONS},
)
EXPECTED = Family(
    name="nodevitals_fabric_bandwidth_expected_bytes_per_second",
    kind="gauge",
    help="What a sound link reaches in this test: as configured, or 0.9 of its rate from 1 MiB on.",
    labels=("tool", "operation", "device", "message_bytes"),
    closed=_CLOSED,
)
RUNS = Family(
    name="nodevitals_fabric_runs_total",
    kind="counter",
    help="Tests that this node started, by how they ended; reason is '' for ok.",
    labels=(*_TEST, "outcome", "reason"),
    closed={**_CLOSED, "outcome": ("ok", "failed"), "reason": ("", *REASONS)},
)
SKIPPED = Family(
    name="nodevitals_fabric_skipped_total",
    kind="counter",
    help="Tests that were not begun, or were stopped: somebody works, or asked for quiet.",
    labels=(*_TEST, "reason"),
    closed={**_CLOSED, "reason": SKIPS},
)
LAST_SUCCESS = Family(
    name="nodevitals_fabric_last_success_timestamp_seconds",
    kind="gauge",
    help="When a test that this node started last gave a figure; missing when none ever did.",
    labels=_TEST,
    closed=_CLOSED,
)
SECONDS = Family(
    name="nodevitals_fabric_test_seconds_total",
    kind="counter",
    help="How long tools ran here, on either side.",
    labels=_TEST,
    closed=_CLOSED,
)
BYTES = Family(
    name="nodevitals_fabric_test_bytes_total",
    kind="counter",
    help="What tests moved at most, on either side.",
    labels=_TEST,
    closed=_CLOSED,
)
ENABLED = Family(
    name="nodevitals_fabric_enabled_timestamp_seconds",
    kind="gauge",
    help="Since when this node takes part.",
)
SLOT = Family(
    name="nodevitals_fabric_slot_seconds",
    kind="gauge",
    help="How long a slot is; a node meets one peer in most of them.",
)
INFO = Family(
    name="nodevitals_fabric_info",
    kind="gauge",
    help="Always 1; the name by which this node stands on the lists, as in source and peer.",
    labels=("name",),
)
MEMBERS = Family(name="nodevitals_fabric_members", kind="gauge", help="Who takes part, all told.")

# Of collectives, which no node's agent runs: pushed by whoever started them.
BUS = Family(
    name="nodevitals_fabric_bus_bandwidth_bytes_per_second",
    kind="gauge",
    help="What the last collective reached for each rank's link; missing where it failed.",
    labels=("tool", "operation", "ranks", "message_bytes"),
    closed={"tool": ("nccl", "hccl"), "operation": COLLECTIVES},
)
COLLECTIVE_SUCCESS = Family(
    name="nodevitals_fabric_collective_success",
    kind="gauge",
    help="Whether the last collective ended well, with right values.",
    labels=_TEST,
    closed={"tool": ("nccl", "hccl"), "operation": COLLECTIVES},
)
LISTS_READ = Family(
    name="nodevitals_fabric_lists_read",
    kind="gauge",
    help="Whether the lists of peers could be read for this slot; else the last good ones stand.",
)
PUSHED = (BUS, COLLECTIVE_SUCCESS)

ALL = (
    BANDWIDTH,
    LATENCY,
    FAILURE,
    EXPECTED,
    RUNS,
    SKIPPED,
    LAST_SUCCESS,
    SECONDS,
    BYTES,
    ENABLED,
    SLOT,
    INFO,
    MEMBERS,
    LISTS_READ,
)
