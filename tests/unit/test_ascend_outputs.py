"""Which calls of npu-smi and hccn_tool are due, and how long their outputs are used."""

from __future__ import annotations

from nodevitals.probes.ascend.queries import OutputCache, Query, ToolOutput, queries_of
from nodevitals.probes.ascend.table import parse_table
from testbed.npus import chip, table

FAST, SLOW, NEW = (
    Query(key, "npu-smi", ("info",), every)
    for key, every in (("fast", 10.0), ("slow", 100.0), ("new", 100.0))
)


def test_most_overdue_query_runs_first_and_one_within_its_timer_does_not_run() -> None:
    kept = {"fast": ToolOutput(75, "old"), "slow": ToolOutput(20, "kept")}
    cache = OutputCache(kept, [SLOW, FAST, NEW], now=100)
    assert cache.due() == [NEW, FAST]
    cache.refresh(lambda query: None if query is FAST else "printed")
    assert [cache.text(query.key) for query in (NEW, FAST, SLOW)] == ["printed", "old", "kept"]


def test_outputs_are_dropped_after_three_timers_or_without_their_query() -> None:
    kept = {
        "fast": ToolOutput(70, "old"),
        "gone": ToolOutput(100, "x"),
        "slow": ToolOutput(101, ""),
    }
    assert OutputCache(kept, [FAST, SLOW], now=100).kept == {}


def test_queries_that_identify_chips_come_first_and_faulty_chips_are_read_often() -> None:
    parsed = parse_table(table([chip(0, physical=4), chip(1, health="Alarm")], "A3"))
    queries = queries_of(parsed.chips, parsed.single, interval_seconds=60, slow_seconds=300)
    assert [query.key for query in queries[:3]] == ["mapping", "board 0 0", "board 1 0"]
    timers = {query.key: query.every_seconds for query in queries}
    assert (timers["health 0 0 0"], timers["health 1 0 2"]) == (300, 54)
    assert (timers["-link 4"], timers["-stat 4"], timers["ecc 1"]) == (54, 300, 300)


def test_chips_without_a_port_of_their_own_have_no_query_for_it() -> None:
    for layout in ("310P", "950"):
        parsed = parse_table(table([chip(0)], layout))
        queries = queries_of(parsed.chips, parsed.single, 60, 300)
        assert {query.program for query in queries} == {"npu-smi"}
