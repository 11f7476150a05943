"""Finds the defects that make a node unfit for a job, in its agent's current samples.

In: the samples of /metrics. Out: findings, including one per part of the node without a defect. The
same values raise alerts after a wait, but a job that starts now cannot wait.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Optional

import msgspec

from nodevitals.commands.doctor.findings import OK, PROBLEM, Finding, Samples, printable

Labels = Mapping[str, str]
MAX_PART_FINDINGS = 64
_COMPARE = {"==": operator.eq, "<": operator.lt, ">": operator.gt}


class Defect(msgspec.Struct, frozen=True):
    """A bad value of a family: `preflight` of an entry in the registry of faults. The value is
    compared with `limit`, or with `factor` times the series of `other` with the same labels.
    """

    part: str
    family: str
    operator: Literal["==", "<", ">"]
    subject: str
    """It, `text` and `remedy` may name labels, {value} and {limit}."""
    text: str
    remedy: str
    limit: float = 0
    other: str = ""
    factor: float = 1
    beside: str = ""
    """A family that must have a series with the same labels, of `beside_value` if there is one."""
    beside_value: Optional[float] = None
    where: dict[str, str] = {}
    """Labels that a series must have."""
    unless: dict[str, str] = {}
    """Labels whose series are no defect, whatever their value is."""


DEFECTS = msgspec.json.decode(
    Path(__file__).with_name("defects.json").read_bytes(), type=tuple[Defect, ...]
)
"""Generated from rules/faults/."""
PARTS = tuple(dict.fromkeys(defect.part for defect in DEFECTS))


def defect_findings(samples: Samples) -> Iterator[Finding]:
    """One finding per defect, and one per part that has samples and no defect."""
    for part in PARTS:
        mine = [defect for defect in DEFECTS if defect.part == part]
        findings = [finding for defect in mine for finding in _found(defect, samples)]
        yield from findings[:MAX_PART_FINDINGS]
        if len(findings) > MAX_PART_FINDINGS:
            text = f"and {len(findings) - MAX_PART_FINDINGS} more defects"
            yield Finding(part, PROBLEM, text, findings[-1].remedy)
        seen = len(
            {
                (defect.family, _key(labels))
                for defect in mine
                for labels, _ in _mine(defect, samples)
            }
        )
        if seen and not findings:
            yield Finding(part, OK, f"no defect ({seen} {'value' if seen == 1 else 'values'} read)")


def _series(samples: Samples, family: str) -> list[tuple[Labels, float]]:
    return samples.values.get(f"nodevitals_{family}", [])


def _mine(defect: Defect, samples: Samples) -> Iterator[tuple[Labels, float]]:
    for labels, value in _series(samples, defect.family):
        if all(labels.get(name) == text for name, text in defect.where.items()):
            yield labels, value


def _found(defect: Defect, samples: Samples) -> Iterator[Finding]:
    others = {_key(labels): value for labels, value in _series(samples, defect.other)}
    beside = {_key(labels): value for labels, value in _series(samples, defect.beside)}
    for labels, value in _mine(defect, samples):
        if any(labels.get(name) == text for name, text in defect.unless.items()):
            continue
        key = _key(labels)
        if defect.beside and not _beside(defect, beside.get(key)):
            continue
        limit = others.get(key) if defect.other else defect.limit
        if limit is not None and _COMPARE[defect.operator](value, defect.factor * limit):
            words = _Words(labels, value=f"{value:g}", limit=f"{limit:g}")
            subject = printable(defect.subject.format_map(words), 80)
            text = printable(f"{subject}: {defect.text.format_map(words)}")
            yield Finding(defect.part, PROBLEM, text, printable(defect.remedy.format_map(words)))


def _beside(defect: Defect, value: Optional[float]) -> bool:
    return value is not None and defect.beside_value in (None, value)


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


class _Words(dict[str, str]):
    """Labels for a text; the exposition does not contain labels without a value."""

    def __init__(self, labels: Labels, **more: str) -> None:
        super().__init__({**labels, **more})

    def __missing__(self, key: str) -> str:
        return ""
