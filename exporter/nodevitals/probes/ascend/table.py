"""The table of `npu-smi info`: text in, one record per chip out.

Its layout differs by chip and version: widths, columns, two to four segments per row. The parser
uses only the structure that all of them share: two rows per chip, segments between bars, values in
the order of the header's words. A segment whose words do not fit its columns one by one, in number
and type, has no values at all: which word belongs to which column is unknown. What does not fit is
missing and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Optional

import msgspec

Columns = tuple[str, ...]
"""Names of the columns in order; '' for an unused column."""
Values = dict[str, tuple[float, ...]]
"""A number, or a pair, by the name of its column."""

NO_VALUE = ("-", "NA", "N/A")
# The columns that no header names, by the row of a chip.
DEFAULTS: dict[int, tuple[Columns, ...]] = {
    0: (("power", "temperature", "hugepages"), ("power", "temperature")),
    1: (("utilization", "memory", "hbm"), ("utilization", "memory")),
}
_COLUMN_WORDS = (
    ("power", "power"),
    ("temp", "temperature"),
    ("hugepages", "hugepages"),
    ("aicore", "utilization"),
    ("npu util", "utilization"),
    ("memory-usage", "memory"),
    ("hbm-usage", "hbm"),
)
_PAIR_COLUMNS = ("hugepages", "memory", "hbm")
_PAIR = re.compile(r"(?<!\d)(\d{1,15})\s*/\s*(\d{1,15})(?!\d)")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


def parse_header(cells: tuple[str, ...]) -> tuple[int, Columns] | None:
    """The row of a chip (0 or 1) that a header describes, and the columns of its last segment;
    None for what is no header.
    """
    second_to_last = cells[-2].lower()
    if second_to_last not in ("health", "bus-id"):
        return None
    # The only name in a header that contains a space.
    words = cells[-1].lower().replace("npu util", "npu_util").split()
    return (0 if second_to_last == "health" else 1), tuple(map(_column_of, words))


def _column_of(word: str) -> str:
    plain = word.replace("npu_util", "npu util")
    return next((name for part, name in _COLUMN_WORDS if part in plain), "")


def parse_values(text: str, choices: Iterable[Columns]) -> Values | None:
    """The values of a segment, by the first choice of columns that has as many columns as the
    segment has words; None if no choice fits.
    """
    words = _PAIR.sub(lambda pair: f"{pair[1]}/{pair[2]}", text).split()
    for columns in choices:
        if len(columns) == len(words):
            values = {}
            for column, word in zip(columns, words):
                value = _value(column, word)
                if value is None:
                    return None
                if value:
                    values[column] = value
            return values
    return None


def _value(column: str, word: str) -> tuple[float, ...] | None:
    """The number or pair of one word; () if it has no value, None if it does not have the column's
    type.
    """
    if word in NO_VALUE or not column:
        return ()
    pair = _PAIR.fullmatch(word)
    if column in _PAIR_COLUMNS:
        return (float(pair[1]), float(pair[2])) if pair and int(pair[1]) <= int(pair[2]) else None
    if pair or not _NUMBER.fullmatch(word):
        return None
    number = float(word)
    if column == "utilization" and not 0 <= number <= 100:
        return None
    if column == "temperature" and not -60 <= number <= 200:
        return None
    return (number,) if column != "power" or number >= 0 else None


HEALTH = {"ok": 0, "warning": 1, "alarm": 2, "critical": 3}
MEBIBYTE = 1 << 20
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_ID = re.compile(r"[0-9]{1,9}")
_IDLE = re.compile(r"No running processes found in NPU ([0-9]{1,9})\b")
_PROCESS_WORDS = ("process id", "no running process")


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One chip of the table; None is unknown.

    `health` is 0 to 3: OK, Warning, Alarm, Critical. A query that failed prints 0, and a health
    query that failed prints OK. So if the name, the temperature or the size of the HBM is empty or
    0, the chip has `failed`, and all its values are unknown.
    """

    npu: int
    chip: int
    physical: Optional[int]
    name: str
    bus_id: str
    health: Optional[int]
    failed: bool = False
    power_watts: Optional[float] = None
    temperature_celsius: Optional[float] = None
    utilization_ratio: Optional[float] = None
    memory_used_bytes: Optional[int] = None
    memory_total_bytes: Optional[int] = None
    hbm_used_bytes: Optional[int] = None
    hbm_total_bytes: Optional[int] = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The chips, and the number of rows and segments that could not be parsed. `processes` counts
    by NPU and chip (None where an NPU is one chip); an NPU that is listed without any has 0 there.
    """

    chips: tuple[Chip, ...]
    unparsed: int
    processes: dict[tuple[int, Optional[int]], int] = {}
    complete: bool = False
    """Whether the last line belongs to the frame of the table."""
    single: bool = False
    """The layout of the 950: an NPU is one chip, and calls name no chip."""

    def processes_of(self, chip: Chip) -> int | None:
        """Number of processes of a chip; None where the table does not list them."""
        listed = {key: count for key, count in self.processes.items() if key[0] == chip.npu}
        if not listed:
            return None
        return sum(count for (_, at), count in listed.items() if at in (None, chip.chip))


_Cells = tuple[str, ...]
_Headers = dict[int, Columns]
_CUT_OFF: _Cells = ("", "", "")


def parse_table(text: str) -> Table:
    """Parse the output of `npu-smi info`."""
    headers: _Headers = {}
    chips: list[Chip] = []
    unparsed, single = 0, False
    for group in _groups(text):
        rows = []
        for cells in group:
            header = parse_header(cells)
            if header is not None:
                headers[header[0]] = header[1]
                single = len(cells) == 4
            elif len(cells) in (3, 4):
                rows.append(cells)
        parsed, missed = _chips(rows, headers)
        chips += parsed
        unparsed += missed
    return Table(
        chips=_unique(chips),
        unparsed=unparsed,
        processes=_processes(text),
        complete=text.rstrip().endswith("+"),
        single=single,
    )


def _groups(text: str) -> Iterator[list[_Cells]]:
    """The rows between two lines, without the rows of processes."""
    group: list[_Cells] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("+") or any(word in line.lower() for word in _PROCESS_WORDS):
            yield group
            group = []
        elif line.startswith("|"):
            closed = line.endswith("|") and len(line) > 1
            # The last number of a truncated line may lack digits.
            cells = tuple(cell.strip() for cell in line[1:-1].split("|")) if closed else _CUT_OFF
            if len(cells) > 1:
                group.append(cells)
    yield group


def _processes(text: str) -> dict[tuple[int, int | None], int]:
    """The second part of the table: one row per process, or a row for an NPU without any."""
    _, header, below = text.partition("Process id")
    counts: dict[tuple[int, int | None], int] = {}
    if not header or not below.rstrip().endswith("+"):
        return {}  # cut off: some may be missing
    for line in below.splitlines()[1:]:
        idle = _IDLE.search(line)
        if idle:
            counts.setdefault((int(idle[1]), None), 0)
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        ids = cells[0].split()
        if len(cells) >= 4 and ids and all(map(_ID.fullmatch, [*ids, cells[1]])):
            key = (int(ids[0]), int(ids[1]) if len(ids) == 2 else None)
            counts[key] = counts.get(key, 0) + 1
    return counts


def _row_of(cells: _Cells, headers: _Headers) -> int | None:
    """0 for the first row of a chip, 1 for the second, 2 for a truncated row; None for other
    rows.
    """
    if cells is _CUT_OFF:
        return 2
    cell = cells[-2]
    if _BUS_ID.fullmatch(cell) or cell in NO_VALUE or cell.count(":") == 2:
        return 1
    header = headers.get(0)
    fits = parse_values(cells[-1], (header,) if header else DEFAULTS[0][:1]) is not None
    return 0 if cell.lower() in HEALTH or (fits and cells[0][:1].isdecimal()) else None


def _chips(group: list[_Cells], headers: _Headers) -> tuple[list[Chip], int]:
    """The chips in the rows between two lines. First and second rows must alternate: otherwise a
    second row may belong to another chip.
    """
    rows = [_row_of(cells, headers) for cells in group]
    if all(row is None for row in rows):
        return [], 0
    if len(group) % 2 or any(row != at % 2 for at, row in enumerate(rows)):
        return [], len(group)
    chips, unparsed = [], 0
    for first, second in zip(group[::2], group[1::2]):
        chip, missed = _chip(first, second, headers)
        unparsed += missed
        if chip is not None:
            chips.append(chip)
    return chips, unparsed


def _chip(first: _Cells, second: _Cells, headers: _Headers) -> tuple[Chip | None, int]:
    identity = _identity(first, second)
    if identity is None or len(first) != len(second):
        return None, 2
    npu, name, chip, physical = identity
    upper, lower = (
        parse_values(cells[-1], (headers[row],) if headers.get(row) else DEFAULTS[row])
        for row, cells in enumerate((first, second))
    )
    values: Values = {**(upper or {}), **(lower or {})}
    failed = not name or values.get("temperature") == (0.0,) or values.get("hbm", (0, 1))[1] == 0
    if failed:
        values = {}
    memory_used, memory_total = _sizes(values, "memory")
    hbm_used, hbm_total = _sizes(values, "hbm")
    health = HEALTH.get(first[-2].lower())
    return (
        Chip(
            npu=npu,
            chip=chip,
            physical=physical,
            name=name,
            bus_id=second[-2].lower() if _BUS_ID.fullmatch(second[-2]) else "",
            health=None if failed else health,
            failed=failed,
            power_watts=_number(values, "power"),
            temperature_celsius=_number(values, "temperature"),
            utilization_ratio=_ratio(_number(values, "utilization")),
            memory_used_bytes=memory_used,
            memory_total_bytes=memory_total,
            hbm_used_bytes=hbm_used,
            hbm_total_bytes=hbm_total,
        ),
        (upper is None) + (lower is None) + (health is None),
    )


def _identity(first: _Cells, second: _Cells) -> tuple[int, str, int, int | None] | None:
    """NPU id, name, chip id and physical id, from the cells before health and bus id."""
    below = second[0].split()
    if len(first) == 4:  # the 950: id and name have cells of their own, one chip per NPU
        number, name = first[0], first[1]
    else:
        number, _, name = first[0].partition(" ")
    if not all(map(_ID.fullmatch, (number, *below))) or len(below) > 2:
        return None
    if len(first) == 3 and not below:
        return None
    physical = int(below[1]) if len(below) == 2 else None
    return int(number), name.strip(), int(below[0]) if below else 0, physical


def _number(values: Values, column: str) -> float | None:
    return values[column][0] if column in values else None


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _sizes(values: Values, column: str) -> tuple[int | None, int | None]:
    """Used and total bytes, if the table has the column and the total is not 0."""
    used, total = values.get(column, (0, 0))
    return (int(used) * MEBIBYTE, int(total) * MEBIBYTE) if total else (None, None)


def _unique(chips: list[Chip]) -> tuple[Chip, ...]:
    """The chips without those that are listed twice: which row is right is unknown."""
    times = Counter((chip.npu, chip.chip) for chip in chips)
    return tuple(chip for chip in chips if times[chip.npu, chip.chip] == 1)
