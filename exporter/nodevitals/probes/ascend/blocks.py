"""`npu-smi info -t …`, `-l` and `-m`: text in, a mapping a chip or a row out.

`-t` prints `key : value` lines in paragraphs, one a chip; the chip's number stands first or last in
its paragraph, or nowhere where an NPU is one chip; a paragraph of the board's controller (MCU) may
follow. What stands twice in a paragraph is dropped: nobody can tell which of them is right.
"""

from __future__ import annotations

import re

_LINE = re.compile(r"\s*([A-Za-z][^:]*?)\s*:\s?(.*)")
_GAP = re.compile(r"\t+|\s{2,}")
Block = dict[str, str]


def parse_blocks(text: str) -> dict[int, Block]:
    """The `key : value` lines of each chip, by its number."""
    found: dict[int, Block] = {}
    twice: set[int] = set()
    for paragraph in re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip("\n")):
        block = _paragraph(paragraph)
        if not block or block.get("Chip Name", "").lower() == "mcu" or _is_head(block):
            continue
        number = block.get("Chip ID", "0")
        if not number.isdecimal():
            continue
        if int(number) in found:
            twice.add(int(number))
        found[int(number)] = block
    return {number: block for number, block in found.items() if number not in twice}


def _is_head(block: Block) -> bool:
    return set(block) <= {"NPU ID", "Chip Count", "Card Count", "Total Count"}


def _paragraph(text: str) -> Block:
    block: Block = {}
    twice: set[str] = set()
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            key = match[1]
            if key in block:
                twice.add(key)
            block[key] = match[2].strip()
    if "Chip ID" in twice:
        return {}  # two chips in one paragraph: whose values these are is unknown
    return {key: value for key, value in block.items() if key not in twice}


def number_of(block: Block, *keys: str) -> float | None:
    """The value of the first of these keys that is there, where it is a plain number."""
    for key in keys:
        if key in block:
            text = block[key]
            return float(text) if re.fullmatch(r"-?\d+(?:\.\d+)?", text) else None
    return None


def parse_rows(text: str) -> list[Block]:
    """The table of `npu-smi info -m`: its rows by the header's words. A row that has another
    number of cells than the header is left out.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((at for at, line in enumerate(lines) if line.startswith("NPU ID")), None)
    if start is None:
        return []
    header = _GAP.split(lines[start])
    rows = (_GAP.split(line) for line in lines[start + 1 :])
    return [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]


def parse_error_codes(block: Block) -> tuple[str, ...] | None:
    """The fault codes of a health block, upper-case; None where it does not tell of codes."""
    text = block.get("Error Code")
    if text is None:
        return None
    words = text.upper().replace(",", " ").split()
    if words in (["NA"], []):
        return ()
    return tuple(words) if all(re.fullmatch(r"[0-9A-F]{6,10}", word) for word in words) else None


def dashed(identity: str) -> str:
    """A VDie id as npu-exporter writes it: with dashes, in upper case. '' where it is none."""
    words = identity.split()
    is_one = len(words) == 5 and all(re.fullmatch(r"[0-9A-Fa-f]{8}", word) for word in words)
    return "-".join(words).upper() if is_one else ""


def parse_cards(text: str) -> list[Block]:
    """`-l`: the paragraph of each NPU."""
    paragraphs = re.split(r"\n\s*\n", text.replace("\r\n", "\n").strip("\n"))
    blocks = (_paragraph(paragraph) for paragraph in paragraphs)
    return [block for block in blocks if block.get("NPU ID", "").isdecimal()]


def parse_processes(text: str) -> dict[int, int]:
    """`-t proc-mem`: how many processes each chip has."""
    found: dict[int, int] = {}
    count: int | None = None
    for line in text.splitlines():
        if line.strip().startswith("Process id:"):
            count = (count or 0) + 1
        elif line.strip().startswith("No process in device"):
            count = 0
        chip = re.fullmatch(r"\s*Chip ID\s*:\s*(\d+)\s*", line)
        if chip and count is not None:
            found[int(chip[1])] = count
            count = None
    return found
