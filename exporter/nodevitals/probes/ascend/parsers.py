"""Parses what npu-smi and hccn_tool print about a chip. A value is None if it is missing.

`npu-smi info -t` prints `key : value` lines in paragraphs, one per chip; the chip's number is first
or last in its paragraph, or missing where an NPU is one chip; a paragraph of the board's controller
(MCU) may follow. A key that appears twice in a paragraph is dropped: which value is right is
unknown. `-t info-vnpu` prints a table of the chip's resources (`free/total` by column), the number
of vNPUs, and a row for each of them, with the template it was made from; a chip or a mode without
vNPUs prints a sentence instead.

hccn_tool prints the RoCE port of an NPU on A2 and A3. Its exit statuses are unreliable: not used.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Optional

import msgspec

from nodevitals.linux.sysfs import parse_integer

_EMPTY_LINES = re.compile(r"\n\s*\n")
_GAP = re.compile(r"\t+|\s{2,}")
_PLAIN_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_ID = re.compile(r"[0-9]{1,9}")
_FAULT_CODE = re.compile(r"[0-9A-F]{6,10}")
_IDENTITY_WORD = re.compile(r"[0-9A-Fa-f]{8}")
Block = dict[str, str]


def parse_blocks(text: str) -> dict[int, Block]:
    """The `key : value` lines of each chip, by its number."""
    blocks: dict[int, Block] = {}
    twice: set[int] = set()
    for paragraph in _EMPTY_LINES.split(text.replace("\r\n", "\n").strip("\n")):
        block = _paragraph(paragraph)
        if not block or block.get("Chip Name", "").lower() == "mcu" or _is_head(block):
            continue
        number = block.get("Chip ID", "0")
        if not _ID.fullmatch(number):
            continue
        if int(number) in blocks:
            twice.add(int(number))
        blocks[int(number)] = block
    return {number: block for number, block in blocks.items() if number not in twice}


def block_of(text: str, chip: int) -> Block:
    """The lines of one chip in the output of a call for it, which may omit the chip's number."""
    blocks = parse_blocks(text)
    unnumbered = {number: block for number, block in blocks.items() if "Chip ID" not in block}
    return blocks.get(chip) or unnumbered.get(0, {})


def _is_head(block: Block) -> bool:
    return set(block) <= {"NPU ID", "Chip Count", "Card Count", "Total Count"}


def _paragraph(text: str) -> Block:
    block: Block = {}
    twice: set[str] = set()
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        key = key.strip()
        if colon and key[:1].isascii() and key[:1].isalpha():
            if key in block:
                twice.add(key)
            block[key] = value.strip()
    if "Chip ID" in twice:
        return {}  # two chips in one paragraph: which value belongs to which is unknown
    return {key: value for key, value in block.items() if key not in twice}


def number_of(block: Block, key: str) -> float | None:
    """The value of this key if it is a count: a plain number of 0 or more."""
    text = block.get(key, "")
    return float(text) if _PLAIN_NUMBER.fullmatch(text) else None


def parse_rows(text: str) -> list[Block]:
    """The rows of the table `npu-smi info -m`, each by the words of the header. A row whose number
    of cells differs from the header is left out.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith("NPU ID")), None)
    if start is None:
        return []
    header = _GAP.split(lines[start])
    rows = (_GAP.split(line) for line in lines[start + 1 :])
    return [dict(zip(header, row)) for row in rows if len(row) == len(header)]


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """`npu-smi info -m`: NPU and chip to physical id, which older tools call logic id."""
    physical_ids = {}
    for row in parse_rows(text):
        words = (row.get("NPU ID", ""), row.get("Chip ID", ""))
        physical = row.get("Chip Phy-ID", row.get("Chip Logic ID", ""))
        if all(map(_ID.fullmatch, (*words, physical))):
            physical_ids[int(words[0]), int(words[1])] = int(physical)
    return physical_ids


def parse_error_codes(block: Block) -> tuple[str, ...] | None:
    """The fault codes of a health block, upper-case; None where it has no readable list of them."""
    text = block.get("Error Code")
    if text is None:
        return None
    words = text.upper().replace(",", " ").split()
    if words in (["NA"], []):
        return ()
    return tuple(words) if all(map(_FAULT_CODE.fullmatch, words)) else None


def dashed(identity: str) -> str:
    """A VDie id as npu-exporter writes it: with dashes, in upper case; '' if the text is no id."""
    words = identity.split()
    is_one = len(words) == 5 and all(map(_IDENTITY_WORD.fullmatch, words))
    return "-".join(words).upper() if is_one else ""


NET_HEALTH = (
    "success",
    "init",
    "socket_failed",
    "receive_timeout",
    "unreachable",
    "time_exceeded",
    "fault",
    "thread_error",
    "detect_ip_set",
    "unknown",
)
# Each line is matched alone, and no pattern can match white space in two ways: otherwise a text of
# newlines or spaces takes quadratic time. A number with more digits is not accepted.
_START = r"^[ \t]*(?:\[dev(?:id|ice)? \d{1,9}\][ \t]*)?"
_COLON = r"[ \t]*:[ \t]*"
_END = r"[ \t\r]*$"
_LINK = re.compile(rf"{_START}link status{_COLON}(UP|DOWN){_END}", re.MULTILINE)
_NET_HEALTH = re.compile(rf"{_START}net health status{_COLON}(\S.*)$", re.MULTILINE | re.IGNORECASE)
_SPEED = re.compile(rf"^[ \t]*Speed{_COLON}(\d{{1,9}})[ \t]*Mb/s{_END}", re.MULTILINE)
_COUNT = re.compile(rf"^[ \t]*([a-z][a-z0-9_]*){_COLON}(\d{{1,20}}){_END}", re.MULTILINE)
_POWER = rf"{_COLON}(-?\d{{1,9}}(?:\.\d{{1,9}})?) mW{_END}"
_RECEIVE_POWER = re.compile(rf"^[ \t]*Rx Power([0-7]){_POWER}", re.MULTILINE | re.IGNORECASE)
_RECEIVE_POWER_LOW = re.compile(rf"^[ \t]*RxPower Low Thres{_POWER}", re.MULTILINE | re.IGNORECASE)


def parse_link(text: str) -> bool | None:
    """`-link`: whether the port is up."""
    states = _LINK.findall(text)
    return states[0] == "UP" if len(states) == 1 else None


def parse_net_health(text: str) -> str | None:
    """`-net_health`: one word of NET_HEALTH; `unknown` for one that is not among them."""
    results = _NET_HEALTH.findall(text)
    if len(results) != 1:
        return None
    word = str(results[0]).strip().lower().replace(" ", "_")
    word = {"socket_fail": "socket_failed", "time_out": "time_exceeded"}.get(word, word)
    return word if word in NET_HEALTH else "unknown"


def parse_speed(text: str) -> int | None:
    """`-speed`: bits per second."""
    speeds = _SPEED.findall(text)
    megabits = parse_integer(speeds[0]) if len(speeds) == 1 else None
    return None if megabits is None else megabits * 10**6


def parse_statistics(text: str) -> dict[str, int]:
    """`-stat`: every counter by the tool's own name."""
    counters = _COUNT.findall(text)
    times = Counter(name for name, _ in counters)
    return {name: int(count) for name, count in counters if times[name] == 1}


class Optical(msgspec.Struct, frozen=True, kw_only=True):
    """Received power of an optical module per lane in watts, and its lower threshold."""

    receive_watts: dict[int, float] = {}
    receive_low_watts: Optional[float] = None


def parse_optical(text: str) -> Optical:
    """`-optical`. The tool prints "not present" also for modules that it measures: not used."""
    lows = _RECEIVE_POWER_LOW.findall(text)
    return Optical(
        receive_watts={int(lane): _watts(power) for lane, power in _RECEIVE_POWER.findall(text)},
        receive_low_watts=_watts(lows[-1]) if lows else None,
    )


def _watts(milliwatts: str) -> float:
    # Moving the decimal point in the text keeps 1.0189 mW exact; a division does not.
    return float(milliwatts + "e-3")


GIBIBYTE = 1 << 30
_VNPU_COUNT = re.compile(r"Total number of vnpu:\s{0,20}(\d{1,4})\b")
_PAIR = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)/(\d{1,6}(?:\.\d{1,3})?)")
_TEMPLATE = re.compile(r"[A-Za-z0-9_]{1,32}")


class Resource(msgspec.Struct, frozen=True):
    """A resource of a chip: the amount that all vNPUs may use, and the amount that is still
    free.
    """

    free: float
    total: float


class Vnpus(msgspec.Struct, frozen=True, kw_only=True):
    """The vNPUs of a chip, with the template of each by its id. None means unknown."""

    count: int
    templates: dict[int, str] = {}
    ai_cores: Optional[Resource] = None
    memory_bytes: Optional[Resource] = None


def parse_vnpus(text: str) -> Vnpus | None:
    """The vNPUs; None if the output does not contain their number."""
    count = _VNPU_COUNT.search(text)
    if count is None:
        return None
    templates: dict[int, str] = {}
    columns: list[str] = []
    pairs: list[str] = []
    for line in text.splitlines():
        words = line.strip().strip("|").split()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if words[:2] == ["AICORE", "Memory"]:
            columns = words
        elif columns and not pairs and words and "/" in words[0]:
            pairs = words
        elif len(cells) == 5 and cells[0].isdecimal() and _TEMPLATE.fullmatch(cells[-1]):
            templates[int(cells[0][:6])] = cells[-1]
    if len(pairs) != len(columns):
        columns = []  # which pair belongs to which column is unknown
    by_name = dict(zip(columns, pairs))
    return Vnpus(
        count=int(count[1]),
        templates=templates,
        ai_cores=_resource(by_name.get("AICORE", ""), 1),
        memory_bytes=_resource(by_name.get("Memory", ""), GIBIBYTE),
    )


def _resource(pair: str, unit: int) -> Resource | None:
    match = _PAIR.fullmatch(pair)
    return Resource(float(match[1]) * unit, float(match[2]) * unit) if match else None
