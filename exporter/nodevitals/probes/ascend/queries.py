"""The calls of npu-smi and hccn_tool that the chips of a machine need. No call is made here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from nodevitals.probes.ascend import blocks
from nodevitals.probes.ascend.table import Chip

HOUR = 3600.0
# Of the interval: so that a query is due in each cycle, also in one that starts early.
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
        """Whether an output of npu-smi has what was queried; always true for what not every
        chip has.
        """
        if self.program != "npu-smi" or self.command == "vnpu":
            return True  # not every chip has a port, or can be divided
        if self.command == "mapping":
            return bool(blocks.parse_mapping(text))
        found = blocks.parse_blocks(text).values()
        if self.command == "health":
            return any(blocks.parse_error_codes(block) is not None for block in found)
        return any("NPU ID" in block or "Chip ID" in block for block in found)


MAPPING = Query("mapping", "npu-smi", ("info", "-m"), HOUR)


def board_key(chip: Chip) -> str:
    """The key of a chip's board."""
    return f"board {chip.npu} {chip.chip}"


def health_key(chip: Chip) -> str:
    """The key of a chip's fault codes. It holds the health level: fault codes that were reported
    with another level are out of date.
    """
    return f"health {chip.npu} {chip.chip} {chip.health}"


def ecc_key(npu: int) -> str:
    """The key of the ECC counters of an NPU's chips."""
    return f"ecc {npu}"


def vnpu_key(chip: Chip) -> str:
    """The key of a chip's vNPUs."""
    return f"vnpu {chip.npu} {chip.chip}"


def port_key(option: str, port: str) -> str:
    """The key of what an option of hccn_tool prints of a port."""
    return f"{option} {port}"


def queries_of(
    chips: Sequence[Chip], single: bool, interval_seconds: float, slow_seconds: float
) -> list[Query]:
    """The queries of these chips, first those that identify a chip. `single` is Table.single."""
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
    """The chips that have a port: inference chips have none, and the hccn_tool of the 950 needs the
    name of each of its many ports.
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
