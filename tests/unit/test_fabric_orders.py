"""The state of an order: aligned with its tests, and never over the limit."""

from __future__ import annotations

import msgspec

from nodevitals.probes.common.addresses import ListedTarget
from nodevitals.probes.fabric.orders import (
    MAX_OUTPUT_BYTES,
    MAX_STATUS_BYTES,
    MAX_TESTS,
    Order,
    OrderEntry,
)
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools.process import MAX_OUTPUT_BYTES as MAX_TOOL_BYTES
from nodevitals.probes.fabric.tools.report import ResultRow, failed

STATISTICS = ("minimum", "median", "mean", "p99", "p999", "maximum")


def entry(count: int) -> OrderEntry:
    tests = tuple(
        TestSettings(tool="perftest", operation="write_bw", device="mlx5_0", message_bytes=size)
        for size in range(1, count + 1)
    )
    order = Order(id="order-0001", issued=0.0, node="a", source="a", target="b", tests=tests)
    return OrderEntry(order, ListedTarget("b", 9856, ""), {"nodevitals": "1.0.0"})


def test_the_longest_state_is_within_the_limit() -> None:
    """With the output, the message and the rows that take the most room in JSON."""
    made = entry(MAX_TESTS)
    row = ResultRow(
        operation="write_bw",
        message_bytes=2**50,
        iterations=10**14,
        bandwidth_bytes_per_second=1 / 3,
        bus_bandwidth_bytes_per_second=1 / 3,
        peak_bytes_per_second=1 / 3,
        latency_seconds=dict.fromkeys(STATISTICS, 1 / 3000000000.0),
        wrong=10**14,
        retransmits=10**14,
    )
    for test in made.order.tests:
        made.start(test.key, 1e11 / 3, "PCIe 16.0 GT/s x16 of 32.0 GT/s x16")
        made.keep(test.key, ["ib_write_bw", *['"'] * 1000], '\x00"\n' * MAX_TOOL_BYTES)
        made.add(failed("harness", "\x01" * 1000, [row] * 100))
    made.finish({"perftest": "6.23"})
    state = made.status()
    assert len(msgspec.json.encode(state)) < MAX_STATUS_BYTES
    assert sum(len(run.output.encode()) for run in state.runs) > 0.9 * MAX_OUTPUT_BYTES


def test_runs_are_in_the_order_of_the_tests() -> None:
    """Those that did not start on this node are empty; the words can be pasted into a shell."""
    made = entry(4)
    first, _, third, _ = made.order.tests
    made.start(first.key, 50e9)
    made.keep(first.key, ["ib_write_bw", "-d", "mlx5_0", "a b"], "1\n")
    made.start(third.key)
    runs = made.status().runs
    assert [run.command for run in runs] == ["ib_write_bw -d mlx5_0 'a b'", "", ""]
    assert [run.output for run in runs] == ["1\n", "", ""]
    assert [run.port_bytes_per_second for run in runs] == [50e9, None, None]
