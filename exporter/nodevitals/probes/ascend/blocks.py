"""`npu-smi info -t …` and `-m`: text in, a mapping per chip or row out.

`-t` prints `key : value` lines in paragraphs, one per chip; the chip's number is first or last in
its paragraph, or missing where an NPU is one chip; a paragraph of the board's controller (MCU) may
follow. A key that appears twice in a paragraph is dropped: which value is right is unknown.
"""

from __future__ import annotations

import re

_EMPTY_LINES = re.compile(r"\n\s*\n")
_GAP = re.compile(r"\t+|\s{2,}")
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_ID = re.compile(r"[0-9]{1,9}")
_FAULT_CODE = re.compile(r"[0-9A-F]{6,10}")
_IDENTITY_WORD = re.compile(r"[0-9A-Fa-f]{8}")
Block = dict[str, str]


def parse_blocks(text: str) -> dict[int, Block]:
    """The `key : value` lines of each chip, by its number."""
    found: dict[int, Block] = {}
    twice: set[int] = set()
    for paragraph in _EMPTY_LINES.split(text.replace("\r\n", "\n").strip("\n")):
        block = _paragraph(paragraph)
        if not block or block.get("Chip Name", "").lower() == "mcu" or _is_head(block):
            continue
        number = block.get("Chip ID", "0")
        if not _ID.fullmatch(number):
            continue
        if int(number) in found:
            twice.add(int(number))
        found[int(number)] = block
    return {number: block for number, block in found.items() if number not in twice}


def block_of(text: str, chip: int) -> Block:
    """The lines of one chip, in the output of a call for this chip: it may leave the number out."""
    found = parse_blocks(text)
    unnumbered = {number: block for number, block in found.items() if "Chip ID" not in block}
    return found.get(chip) or unnumbered.get(0, {})


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
    """The value of this key, where it is a plain number of 0 or more: a count."""
    text = block.get(key, "")
    return float(text) if _NUMBER.fullmatch(text) else None


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
    return [dict(zip(header, row)) for row in rows if len(row) == len(header)]


def parse_mapping(text: str) -> dict[tuple[int, int], int]:
    """`npu-smi info -m`: NPU and chip to physical id, which older tools call logic id."""
    found = {}
    for row in parse_rows(text):
        words = (row.get("NPU ID", ""), row.get("Chip ID", ""))
        physical = row.get("Chip Phy-ID", row.get("Chip Logic ID", ""))
        if all(map(_ID.fullmatch, (*words, physical))):
            found[int(words[0]), int(words[1])] = int(physical)
    return found


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
    """A VDie id as npu-exporter writes it: with dashes, in upper case. '' where it is none."""
    words = identity.split()
    is_one = len(words) == 5 and all(map(_IDENTITY_WORD.fullmatch, words))
    return "-".join(words).upper() if is_one else ""
