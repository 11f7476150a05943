"""What `nodevitals rules check` can find: stable ids, each documented in docs/rules-check.md."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

FindingId = Literal[
    "file/missing",
    "file/invalid",
    "metric/unknown",
    "label/unknown",
    "label/value",
    "label/job",
    "label/missing",
    "label/template",
    "severity/unknown",
    "fault/unknown",
    "annotation/missing",
    "runbook/missing",
    "test/missing",
    "threshold/unknown",
    "threshold/unlisted",
    "promql/prometheus3",
    "promtool/check",
    "promtool/test",
    "silence/no-reason",
    "silence/unknown",
    "silence/unused",
]
IDS: tuple[FindingId, ...] = get_args(FindingId)


class Finding(msgspec.Struct, frozen=True, order=True):
    """One defect: its file, line (0: the whole file), id, rule ('': none) and a message."""

    file: str
    line: int
    id: FindingId
    rule: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.id, self.rule, self.message) if part)
