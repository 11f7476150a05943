"""The families of the hub: what checks have found, and how the hub itself does.

`pool` is the pool, or the other labels, by which the nodes of a check were chosen, and empty where
they were named. A series is that of the newest check of its labels.
"""

from __future__ import annotations

from nodevitals.families import Families

KINDS = ("pair", "matrix", "collective", "node")
REASONS = ("hardware", "threshold", "harness", "workload")

checks = Families("check", "pool", "tool", "operation", "device", kind=KINDS)
BANDWIDTH = checks.gauge(
    "bandwidth_bytes_per_second",
    "Median bandwidth in the newest check, of the bus for collectives; missing where it failed.",
    "message_bytes",
)
BANDWIDTH_BASELINE = checks.gauge(
    "baseline_bandwidth_bytes_per_second",
    "Median of up to eight such checks before the newest one that gave a result.",
    "message_bytes",
)
LATENCY = checks.gauge(
    "latency_seconds",
    "Median latency in the newest check; missing where it failed.",
    "message_bytes",
)
LATENCY_BASELINE = checks.gauge(
    "baseline_latency_seconds",
    "Median of up to eight such checks before the newest one that gave a result.",
    "message_bytes",
)
OUTCOME = checks.gauge(
    "outcome",
    "Always 1; outcome of the newest check, and its reason where that is not ok.",
    outcome=("ok", "bad", "unknown"),
    reason=("", *REASONS),
)
END = checks.gauge("end_timestamp_seconds", "Unix time at which the newest check ended.")
DURATION = checks.gauge("duration_seconds", "Duration of the newest check.")
FINDING = checks.gauge(
    "finding_ratio",
    "Figure of a node, a link or a rail that the newest check found bad, over the usual one; "
    "0 where there is no figure. At most 32 per check.",
    "subject",
    level=("node", "link", "rail"),
    reason=REASONS,
)

totals = Families("check")
ENDED = totals.counter(
    "ended_total",
    "Number of checks that have ended since the hub was started, by kind, outcome and reason.",
    kind=KINDS,
    outcome=("ok", "bad", "unknown", "canceled"),
    reason=("", *REASONS),
)

schedules = Families("check_schedule", "schedule")
SCHEDULE_INTERVAL = schedules.gauge("interval_seconds", "Configured time between two starts.")
SCHEDULE_ENABLED = schedules.gauge(
    "enabled_timestamp_seconds", "Unix time since which the hub has the schedule."
)
SCHEDULE_SUCCESS = schedules.gauge(
    "last_success_timestamp_seconds",
    "Unix time at which the last check of the schedule with a result ended; missing before it.",
)
SCHEDULE_NEXT = schedules.gauge(
    "next_timestamp_seconds", "Unix time of the next start, where it is known."
)

hub = Families("hub")
BUILD = hub.gauge("build_info", "Always 1; version of the hub.", "version")
CHECKS = hub.gauge("checks", "Number of checks that wait or run.", phase=("queued", "running"))
NODES = hub.gauge("nodes", "Number of nodes on the hub's lists.")
STORE_BYTES = hub.gauge("store_bytes", "Size of the hub's store on disk.")
LEASED = hub.gauge(
    "leased_nodes",
    "Number of nodes with second-level monitoring; of those that are not reached, the agent did "
    "not reply.",
    state=("active", "refused", "unreachable"),
)

HUB_FAMILIES = (*checks, *totals, *schedules, *hub)
