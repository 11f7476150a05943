"""Facts of a node: what rarely changes and should be equal on nodes of one kind.

A fact has a name (`nvidia.driver`) and a text by device ("" for the node). The probe `profile`
reads most facts itself; other probes send it those that only a driver knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Optional

import msgspec

from nodevitals.probe import Family, Readings

PROBE = "profile"
Values = dict[str, str]
"""Texts by device."""


class Facts(msgspec.Struct, frozen=True):
    """All facts of one probe at its last run; replaces those of earlier messages."""

    source: str
    values: dict[str, Values]


class Fact(NamedTuple):
    """A fact that is in the samples of a probe: in this label, or else in the value."""

    name: str
    family: Family
    label: Optional[str] = None


def number_text(value: float) -> str:
    """A number as the text of a fact; a whole number has no decimal point."""
    return str(int(value)) if value == int(value) else repr(value)


def send_facts(
    readings: Readings,
    source: str,
    facts: Iterable[Fact],
    others: Mapping[str, Values] = MappingProxyType({}),
    kind: str = "GPU",
) -> None:
    """Send the facts in the samples of this run, and further ones; a device is `KIND INDEX`. An
    empty label means unknown.
    """
    by_family: dict[str, list[Fact]] = {}
    for fact in facts:
        by_family.setdefault(fact.family.name, []).append(fact)
    values: dict[str, Values] = {name: dict(texts) for name, texts in others.items()}
    for sample in readings.samples:
        for fact in by_family.get(sample.family, ()):
            labels = dict(fact.family.pairs(sample.labels))
            text = number_text(sample.value) if fact.label is None else labels[fact.label]
            if text:
                device = f"{kind} {labels['device']}" if "device" in labels else ""
                values.setdefault(fact.name, {})[device] = text
    readings.send(PROBE, Facts(source, values))
