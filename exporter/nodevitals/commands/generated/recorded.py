"""The series that the shipped rules record. In: recorded.json, made from the rules by
`make generate`. Out: one entry per name, and their part of docs/METRICS.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import msgspec

from nodevitals.catalogue import hub_families, label_text, markdown

FILE = Path(__file__).with_name("recorded.json")
_HEAD = """\

## Recorded by rules

Gauges that the files of [rules/](../rules/) record: they exist where these are loaded. All labels
are named here, those of the target as well (`cluster`, `instance`, `job`).
"""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded series; `closed` has the values of labels that its rules set."""

    name: str
    file: str
    """The rule file that records it; empty where several do."""
    help: str
    labels: tuple[str, ...]
    closed: dict[str, tuple[str, ...]] = {}
    kind: ClassVar[str] = "gauge"
    open: ClassVar[bool] = False


def recorded_series() -> dict[str, Recorded]:
    """Every recorded series by its name, but for those that have the name of an exposed family."""
    return {one.name: one for one in decoded(FILE.read_bytes())}


def decoded(text: bytes) -> list[Recorded]:
    """The series of recorded.json."""
    return msgspec.json.decode(text, type=list[Recorded])


def metrics_page(series: Iterable[Recorded]) -> str:
    """docs/METRICS.md: the families that are exposed, then the recorded series by rule file."""
    tables = _tables(sorted(series, key=lambda one: (one.file, one.name)))
    return markdown(hub_families()) + "\n".join([_HEAD, *tables])


def _tables(series: Iterable[Recorded]) -> Iterator[str]:
    file = None
    for one in series:
        if one.file != file:
            yield from [""] * (file is not None)
            file = one.file
            yield f"### [{file}](../rules/{file})\n" if file else "### Several files\n"
            yield "| series | labels | help |\n|---|---|---|"
        labels = ", ".join(label_text(label, one.closed) for label in one.labels)
        yield f"| `{one.name}` | {labels} | {one.help} |"
    yield ""
