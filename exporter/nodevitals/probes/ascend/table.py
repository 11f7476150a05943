"""The table of `npu-smi info`: text in, one record a chip out.

Its layout differs by chip and version: widths, columns, one to four segments. Read is only what
keeps the structure that all of them share: two rows a chip, segments between bars, values in the
order of the header's words. A cell that does not fit its column's type makes its segment missing;
nothing is taken from a place where something else may stand.
"""

from __future__ import annotations

import re

import msgspec

HEALTH = {"ok": 0, "warning": 1, "alarm": 2, "critical": 3}
MEBIBYTE = 1 << 20
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]")
_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NO_VALUE = ("-", "NA", "N/A")
# The columns of the last segment's two rows, where no header names them.
_FIRST_DEFAULT = ("power", "temperature", "hugepages")
_SECOND_DEFAULTS = (("utilization", "memory", "hbm"), ("utilization", "memory"))
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
_PROCESS_WORDS = ("process id", "no running process")


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One chip as the table tells it; None is unknown.

    `health` is 0 to 3: OK, Warning, Alarm, Critical. A query that failed prints 0, and a health
    query that failed prints OK: where the name, the temperature or the size of the HBM is nothing,
    nothing of the chip is believed.
    """

    npu: int
    chip: int
    physical: int | None
    name: str
    bus_id: str
    health: int | None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    hbm_used_bytes: int | None = None
    hbm_total_bytes: int | None = None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """The chips, and how many rows and segments could not be read. `processes` counts by NPU and
    chip (None where an NPU is one chip); an NPU that says it has none has 0 there.
    """

    chips: tuple[Chip, ...]
    version: str
    unparsed: int
    processes: dict[tuple[int, int | None], int] = {}
    single: bool = False
    """Whether an NPU is one chip, and calls name no chip: the 950's layout."""

    def processes_of(self, chip: Chip) -> int | None:
        """How many processes a chip has; None where the table does not say."""
        told = {key: count for key, count in self.processes.items() if key[0] == chip.npu}
        if not told:
            return None
        return sum(count for (_, at), count in told.items() if at in (None, chip.chip))


_Cells = tuple[str, ...]
_Columns = dict[int, tuple[str, ...]]
_CUT_OFF: _Cells = ("", "", "")


def parse_table(text: str) -> Table:
    """Read the output of `npu-smi info`."""
    columns: _Columns = {}
    version, unparsed = "", 0
    found: list[Chip] = []
    single = False
    group: list[_Cells] = []
    for line in [*text.splitlines(), "+"]:
        line = line.strip()
        if any(word in line.lower() for word in _PROCESS_WORDS):
            line = "+"
        if line.startswith("+"):
            chips, missed = _chips(group, columns)
            found += chips
            unparsed += missed
            group = []
            continue
        if not line.startswith("|"):
            continue
        if not line.endswith("|") or len(line) < 2:
            group.append(_CUT_OFF)  # its last number may lack digits
            continue
        cells = tuple(cell.strip() for cell in line[1:-1].split("|"))
        if len(cells) == 1:
            match = re.search(r"npu-smi\s+(\S+)", cells[0])
            version = match[1] if match else version
            continue
        header = _header(cells)
        if header is not None:
            columns[header[0]] = header[1]
            single = len(cells) == 4
        elif len(cells) in (3, 4):
            group.append(cells)
    return Table(
        chips=_unique(found),
        version=version,
        unparsed=unparsed,
        processes=_processes(text),
        single=single,
    )


def _processes(text: str) -> dict[tuple[int, int | None], int]:
    """The second part of the table: processes, or that an NPU has none."""
    _, bar, below = text.partition("Process id")
    found: dict[tuple[int, int | None], int] = {}
    if not bar or not below.rstrip().endswith("+"):
        return {}  # cut off: some may be missing
    for line in below.splitlines()[1:]:
        idle = re.search(r"No running processes found in NPU (\d+)", line)
        if idle:
            found.setdefault((int(idle[1]), None), 0)
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        ids = cells[0].split()
        if len(cells) >= 4 and ids and all(word.isdecimal() for word in [*ids, cells[1]]):
            key = (int(ids[0]), int(ids[1]) if len(ids) == 2 else None)
            found[key] = found.get(key, 0) + 1
    return found


def _header(cells: tuple[str, ...]) -> tuple[int, tuple[str, ...]] | None:
    """Which of a chip's rows a header describes, and its last segment's columns in order."""
    second_to_last = cells[-2].lower()
    if second_to_last not in ("health", "bus-id"):
        return None
    words = cells[-1].lower()
    places = sorted((words.find(word), name) for word, name in _COLUMN_WORDS if word in words)
    # A word that we do not know is a column all the same.
    known = len(places) == len(_PAIR.sub("", words).replace("npu util", "npu_util").split())
    names = tuple(name for _, name in places) if known else _with_unknown(words)
    return (0 if second_to_last == "health" else 1), names


def _with_unknown(words: str) -> tuple[str, ...]:
    named = []
    for word in words.replace("npu util", "npu_util").split():
        plain = word.replace("npu_util", "npu util")
        named.append(next((name for part, name in _COLUMN_WORDS if part in plain), ""))
    return tuple(named)


def _kind(cells: _Cells, columns: _Columns) -> int | None:
    """0 for a chip's first row, 1 for its second; None for what is neither."""
    if cells is _CUT_OFF:
        return 2
    cell = cells[-2]
    if _BUS_ID.fullmatch(cell) or cell in _NO_VALUE or cell.count(":") == 2:
        return 1
    fits = _values(cells[-1], columns.get(0), (_FIRST_DEFAULT,)) is not None
    return 0 if cell.lower() in HEALTH or (fits and cells[0][:1].isdecimal()) else None


def _chips(group: list[_Cells], columns: _Columns) -> tuple[list[Chip], int]:
    """The chips of the rows between two lines: first and second rows must alternate, else a
    second row may belong to another chip.
    """
    kinds = [_kind(cells, columns) for cells in group]
    if all(kind is None for kind in kinds):
        return [], 0
    if len(group) % 2 or any(kind != at % 2 for at, kind in enumerate(kinds)):
        return [], len(group)
    chips, missed = [], 0
    for first, second in zip(group[::2], group[1::2], strict=True):
        chip, problems = _chip(first, second, columns)
        missed += problems
        if chip is not None:
            chips.append(chip)
    return chips, missed


def _chip(first: _Cells, second: _Cells, columns: _Columns) -> tuple[Chip | None, int]:
    identity = _identity(first, second)
    if identity is None or len(first) != len(second):
        return None, 2
    npu, name, chip, physical = identity
    upper = _values(first[-1], columns.get(0), (_FIRST_DEFAULT, _FIRST_DEFAULT[:2]))
    lower = _values(second[-1], columns.get(1), _SECOND_DEFAULTS)
    values = {**(upper or {}), **(lower or {})}
    hbm = values.get("hbm")
    temperature = values.get("temperature")
    failed = not name or temperature == (0.0,) or (hbm is not None and hbm[1] == 0)
    if failed:
        values = {}
    bus_id = second[-2].lower() if _BUS_ID.fullmatch(second[-2]) else ""
    memory = values.get("memory")
    used, total = memory if memory is not None and memory[1] else (None, None)
    return (
        Chip(
            npu=npu,
            chip=chip,
            physical=physical,
            name=name,
            bus_id=bus_id,
            health=None if failed else HEALTH.get(first[-2].lower()),
            power_watts=_single(values, "power"),
            temperature_celsius=_single(values, "temperature"),
            utilization_ratio=_ratio(_single(values, "utilization")),
            memory_used_bytes=None if used is None else int(used) * MEBIBYTE,
            memory_total_bytes=None if total is None else int(total) * MEBIBYTE,
            hbm_used_bytes=None if failed or hbm is None else int(hbm[0]) * MEBIBYTE,
            hbm_total_bytes=None if failed or hbm is None else int(hbm[1]) * MEBIBYTE,
        ),
        (upper is None) + (lower is None) + (first[-2].lower() not in HEALTH),
    )


def _identity(first: _Cells, second: _Cells) -> tuple[int, str, int, int | None] | None:
    """NPU id, name, chip id and physical id, from the cells before health and bus id."""
    if len(first) == 4:  # the 950: an id and a name apart, one chip an NPU, nothing below
        number, name = first[0], first[1]
        below: list[str] = second[0].split()
    else:
        number, _, name = first[0].partition(" ")
        below = second[0].split()
    if not number.isdecimal() or not all(word.isdecimal() for word in below) or len(below) > 2:
        return None
    if len(first) == 3 and not below:
        return None
    physical = int(below[1]) if len(below) == 2 else None
    return int(number), name.strip(), int(below[0]) if below else 0, physical


def _values(
    cell: str, header: tuple[str, ...] | None, defaults: tuple[tuple[str, ...], ...]
) -> dict[str, tuple[float, ...]] | None:
    """A segment's values by column; None where they do not fit the columns one by one."""
    words = _PAIR.sub(lambda pair: f"{pair[1]}/{pair[2]}", cell).split()
    for columns in (header,) if header else defaults:
        if len(columns) == len(words):
            values = {}
            for column, word in zip(columns, words, strict=True):
                value = _value(column, word)
                if value is None:
                    return None
                if value:
                    values[column] = value
            return values
    return None


def _value(column: str, word: str) -> tuple[float, ...] | None:
    """One cell: its number or pair, () where it says that there is none, None where it is not of
    the column's type.
    """
    if word in _NO_VALUE or not column:
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


def _single(values: dict[str, tuple[float, ...]], column: str) -> float | None:
    value = values.get(column)
    return value[0] if value else None


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _unique(chips: list[Chip]) -> tuple[Chip, ...]:
    """Without those that stand there twice: which of them is right, nobody can tell."""
    keys = [(chip.npu, chip.chip) for chip in chips]
    return tuple(chip for chip, key in zip(chips, keys, strict=True) if keys.count(key) == 1)
