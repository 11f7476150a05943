"""The families of fabric tests. The node that starts a test reports its result."""

from __future__ import annotations

from nodevitals.probe import Families
from nodevitals.probes.fabric.admission import GATE_REASONS
from nodevitals.probes.fabric.orders import ORDER_OUTCOMES
from nodevitals.probes.fabric.settings import OPERATIONS, TOOLS
from nodevitals.probes.fabric.tools.report import COLLECTIVES, REASONS

SKIPS = (*GATE_REASONS, "budget", "peer_busy", "plan_differs")
STATISTICS = ("minimum", "median", "mean", "p99", "p999", "maximum")

pairs = Families(
    "fabric",
    *("tool", "operation", "source", "peer", "device", "message_bytes"),
    tool=TOOLS,
    operation=OPERATIONS,
)
BANDWIDTH = pairs.gauge(
    "bandwidth_bytes_per_second",
    "Bandwidth in the last test with this peer; missing where the test failed.",
)
LATENCY = pairs.gauge(
    "latency_seconds",
    "Half of the round trip time in the last test with this peer, over all its messages; of "
    "read_lat the whole.",
    statistic=STATISTICS,
)
FAILURE = pairs.gauge(
    "failure",
    "Always 1; why the last test with this peer failed. Missing where it succeeded.",
    reason=REASONS,
)

tests = Families("fabric", tool=TOOLS, operation=OPERATIONS)
EXPECTED = tests.gauge(
    "bandwidth_expected_bytes_per_second",
    "Expected bandwidth: as configured, or 0.9 of the link's rate for messages from 1 MiB on.",
    "device",
    "message_bytes",
)
RUNS = tests.counter(
    "runs_total",
    "Number of tests that this node started, also for the hub, by outcome; reason is '' where the "
    "outcome is ok.",
    outcome=("ok", "failed"),
    reason=("", *REASONS),
)
SKIPPED = tests.counter(
    "skipped_total",
    "Number of tests that were not started, or were stopped, by the reason: a job, maintenance, "
    "traffic, the budget, the peer.",
    reason=SKIPS,
)
LAST_SUCCESS = tests.gauge(
    "last_success_timestamp_seconds",
    "Unix time of the last successful test that this node started; missing before it.",
)
SECONDS = tests.counter(
    "test_seconds_total", "Time for which test tools ran on this node, on either side."
)
BYTES = tests.counter(
    "test_bytes_total", "Maximum number of bytes moved by tests on this node, on either side."
)

node = Families("fabric")
ENABLED = node.gauge(
    "enabled_timestamp_seconds", "Unix time since which this node takes part in the tests."
)
SLOT = node.gauge(
    "slot_seconds", "Duration of a slot; in most slots a node is tested with one peer."
)
INFO = node.gauge(
    "info",
    "Always 1; name of this node on the lists, as in the labels source and peer.",
    "name",
)
MEMBERS = node.gauge("members", "Number of nodes on the lists, this one included.")
LISTS_READ = node.gauge(
    "lists_read",
    "Whether the lists of peers could be read for this slot; else the last good ones are used.",
)

ORDERS = node.counter(
    "orders_total",
    "Number of the hub's orders on this node, on either side, by how they ended: lease is that the "
    "hub did not ask for one in time, refused that it was not accepted.",
    outcome=ORDER_OUTCOMES,
)

# A command runs collectives, not an agent: the command pushes their results.
collectives = Families("fabric", tool=("nccl", "hccl"), operation=COLLECTIVES)
BUS = collectives.gauge(
    "bus_bandwidth_bytes_per_second",
    "Bus bandwidth of the last collective; missing where it failed.",
    "ranks",
    "message_bytes",
)
COLLECTIVE_SUCCESS = collectives.gauge(
    "collective_success", "Whether the last collective succeeded and its values were correct."
)
PUSHED = tuple(collectives)

ALL = (*pairs, *tests, *node)
