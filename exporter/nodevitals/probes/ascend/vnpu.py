"""`npu-smi info -t info-vnpu`: text in, the vNPUs of a chip out.

A chip that is divided has vNPUs, each made from a template. The output has a table of the chip's
resources (`free/total` by column), the number of vNPUs, and a row for each of them; a chip or a
mode without vNPUs prints a sentence instead.
"""

from __future__ import annotations

import re
from typing import Optional

import msgspec

GIBIBYTE = 1 << 30
_COUNT = re.compile(r"Total number of vnpu:\s{0,20}(\d{1,4})\b")
_PAIR = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)/(\d{1,6}(?:\.\d{1,3})?)")
_TEMPLATE = re.compile(r"[A-Za-z0-9_]{1,32}")


class Resource(msgspec.Struct, frozen=True):
    """How much of a resource the vNPUs may have in all, and how much no vNPU has."""

    free: float
    total: float


class Vnpus(msgspec.Struct, frozen=True, kw_only=True):
    """The vNPUs of a chip: the template of each by its id. None is unknown."""

    count: int
    templates: dict[int, str] = {}
    ai_cores: Optional[Resource] = None
    memory_bytes: Optional[Resource] = None


def parse_vnpus(text: str) -> Vnpus | None:
    """The vNPUs; None where the output does not say how many there are."""
    count = _COUNT.search(text)
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
