"""The calls of npu-smi and hccn_tool that the chips of a machine need, and their last outputs.

One `npu-smi info` takes seconds, and a call for each chip takes longer: only `npu-smi info` runs
in every cycle. Every other query has a timer; the time that is left of a cycle goes to the query
that is overdue for longest. An output is used until three of its timers have passed. A call that
failed is made again soon, after all others, and its last good output is used meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Optional

import msgspec

from nodevitals.probes.ascend import parsers
from nodevitals.probes.ascend.table import Chip

HOUR = 3600.0
# Share of the interval, so that a query is due in each cycle, also if the cycle starts early.
FAST_SHARE = 0.9


class Query(msgspec.Struct, frozen=True):
    """One call: the key of its output, its program and arguments, and the time between two."""

    key: str
    program: str
    arguments: tuple[str, ...]
    every_seconds: float

    @property
    def command(self) -> str:
        """What is queried: `mapping`, `board`, `health`, `ecc`, or an option of hccn_tool."""
        return self.key.partition(" ")[0]

    def is_readable(self, text: str) -> bool:
        """Whether an output of npu-smi contains the queried values; always true for values that
        some chips do not have.
        """
        if self.program != "npu-smi" or self.command == "vnpu":
            return True  # not every chip has a port, or can be divided
        if self.command == "mapping":
            return bool(parsers.parse_mapping(text))
        blocks = parsers.parse_blocks(text).values()
        if self.command == "health":
            return any(parsers.parse_error_codes(block) is not None for block in blocks)
        return any("NPU ID" in block or "Chip ID" in block for block in blocks)


MAPPING = Query("mapping", "npu-smi", ("info", "-m"), HOUR)


def board_key(chip: Chip) -> str:
    """The key of a chip's board."""
    return f"board {chip.npu} {chip.chip}"


def health_key(chip: Chip) -> str:
    """The key of a chip's fault codes. It contains the health level, because fault codes that were
    reported with another level are outdated.
    """
    return f"health {chip.npu} {chip.chip} {chip.health}"


def ecc_key(npu: int) -> str:
    """The key of the ECC counters of an NPU's chips."""
    return f"ecc {npu}"


def vnpu_key(chip: Chip) -> str:
    """The key of a chip's vNPUs."""
    return f"vnpu {chip.npu} {chip.chip}"


def port_key(option: str, port: str) -> str:
    """The key of the output of hccn_tool for an option and a port."""
    return f"{option} {port}"


def queries_of(
    chips: Sequence[Chip], single: bool, interval_seconds: float, slow_seconds: float
) -> list[Query]:
    """The queries for these chips; those that identify a chip come first. `single`:
    Table.single.
    """
    fast_seconds = FAST_SHARE * interval_seconds
    boards = [
        Query(board_key(chip), "npu-smi", _details("board", chip, single), HOUR) for chip in chips
    ]
    healths = [
        Query(
            health_key(chip),
            "npu-smi",
            _details("health", chip, single),
            slow_seconds if chip.health == 0 else fast_seconds,
        )
        for chip in chips
    ]
    ports = [
        query
        for port in _ports(chips, single)
        for query in _port_queries(port, fast_seconds, slow_seconds)
    ]
    eccs = [
        Query(ecc_key(npu), "npu-smi", ("info", "-t", "ecc", "-i", str(npu)), slow_seconds)
        for npu in dict.fromkeys(chip.npu for chip in chips)
    ]
    return [MAPPING, *boards, *healths, *ports, *eccs, *_vnpu_queries(chips, single, slow_seconds)]


def _vnpu_queries(chips: Iterable[Chip], single: bool, every_seconds: float) -> Iterator[Query]:
    """The 950, whose NPUs are one chip each, has no vNPUs."""
    for chip in () if single else chips:
        yield Query(vnpu_key(chip), "npu-smi", _details("info-vnpu", chip, single), every_seconds)


def _details(kind: str, chip: Chip, single: bool) -> tuple[str, ...]:
    number = () if single else ("-c", str(chip.chip))
    return "info", "-t", kind, "-i", str(chip.npu), *number


def _ports(chips: Iterable[Chip], single: bool) -> Iterator[str]:
    """The chips that have one port. Inference chips have none; the 950 has many, and its hccn_tool
    needs the name of each.
    """
    for chip in chips:
        if chip.physical is not None and chip.hbm_total_bytes is not None and not single:
            yield str(chip.physical)


def _port_queries(port: str, fast_seconds: float, slow_seconds: float) -> Iterator[Query]:
    timers = {
        "-link": fast_seconds,
        "-net_health": fast_seconds,
        "-stat": slow_seconds,
        "-optical": slow_seconds,
        "-speed": slow_seconds,
    }
    for option, every in timers.items():
        yield Query(port_key(option, port), "hccn_tool", ("-i", port, option, "-g"), every)


STALE_TIMERS = 3


class ToolOutput(msgspec.Struct, array_like=True, frozen=True):
    """The last output of a call and its time (monotonic seconds). If the call `failed`, both are
    those of the last successful call.
    """

    at: float
    text: str
    good_at: Optional[float] = None
    failed: bool = False


class CallFailedError(Exception):
    """A call that did not end, or whose output does not contain the queried values."""


class OutputCache:
    """The outputs of these queries since the boot, without outdated ones."""

    def __init__(
        self,
        kept: Mapping[str, ToolOutput],
        queries: Sequence[Query],
        now: float,
        retry_seconds: float = math.inf,
    ) -> None:
        """A call that failed is made again after `retry_seconds`."""
        self._queries = queries
        self._now = now
        self._retry_seconds = retry_seconds
        self._timers = timers = {query.key: query.every_seconds for query in queries}
        self.kept = {
            key: output
            for key, output in kept.items()
            if key in timers and 0 <= now - output.at < STALE_TIMERS * timers[key]
        }

    def due(self) -> list[Query]:
        """The queries that are due, the most overdue first; queries whose last call failed come
        last.
        """
        overdue = [(self._failed(query), -self._overdue(query), query) for query in self._queries]
        ready = [chip for chip in overdue if chip[1] <= 0]
        return [query for _, _, query in sorted(ready, key=lambda entry: entry[:2])]

    def refresh(self, call: Callable[[Query], str | None]) -> None:
        """Run the queries that are due; `call` returns None when no time is left, and may raise
        CallFailedError.
        """
        for query in self.due():
            try:
                text = call(query)
            except CallFailedError:
                last = self.kept.get(query.key, ToolOutput(0.0, "", None, failed=True))
                good_at = last.good_at if last.failed else last.at
                self.kept[query.key] = ToolOutput(self._now, last.text, good_at, failed=True)
                continue
            if text is None:
                return
            self.kept[query.key] = ToolOutput(self._now, text)

    def text(self, key: str) -> str:
        """The last good output; '' where there is none, or where it is too old."""
        output = self.kept.get(key)
        good_at = None if output is None else output.good_at if output.failed else output.at
        if output is None or good_at is None:
            return ""
        fresh = self._now - good_at < STALE_TIMERS * self._timers[key]
        return output.text if fresh else ""

    def _failed(self, query: Query) -> bool:
        output = self.kept.get(query.key)
        return output is not None and output.failed

    def _overdue(self, query: Query) -> float:
        """How long a query has been overdue, as a multiple of its timer; negative while it is not
        due.
        """
        output = self.kept.get(query.key)
        if output is None:
            return float(STALE_TIMERS)
        every = query.every_seconds
        every = min(every, self._retry_seconds) if output.failed else every
        return (self._now - output.at) / every - 1
