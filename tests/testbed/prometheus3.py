"""Rules and their tests, rewritten so that Prometheus 2 evaluates them as Prometheus 3 does.

Prometheus 3 selects left-open: a sample exactly as old as a range, or as the five minutes of the
lookback, is outside. In: a folder of rules with `tests/`. Out: the same, with each range one
millisecond shorter, and each series stale where its last sample is exactly five minutes old.
https://prometheus.io/docs/prometheus/latest/migration/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from nodevitals.commands.rules.expression import tokens
from testbed.liverules import live_rules

LOOKBACK_SECONDS = 300
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_UNIT_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}


def milliseconds(duration: str) -> int:
    """Return the length of a duration of PromQL: `1h30m`."""
    return sum(int(count) * _UNIT_MILLISECONDS[unit] for count, unit in _PART.findall(duration))


def rewritten_expression(expression: str) -> str:
    """Return the expression with each range, also of a subquery, one millisecond shorter."""
    return " ".join(
        _shorter(token.text) if token.kind == "range" else token.text
        for token in tokens(expression)
    )


def _shorter(text: str) -> str:
    length, colon, step = text[1:-1].partition(":")
    return f"[{milliseconds(length) - 1}ms{colon}{step}]"


def rewritten_values(values: str, interval: str) -> str:
    """Return the values of an input series, which are stale five minutes after its last sample, and
    in gaps of at least that length.
    """
    steps = Fraction(LOOKBACK_SECONDS * 1000, milliseconds(interval))
    if steps.denominator != 1:
        return values
    gap = " ".join(["_"] * (int(steps) - 1) + ["stale"])
    return " ".join([*_with_gaps(values.split(), int(steps), gap), gap])


def _with_gaps(cells: list[str], steps: int, gap: str) -> Iterator[str]:
    missing = 0
    for cell in [*cells, ""]:
        if cell == "_" or cell.startswith("_x"):
            missing += int(cell[2:] or 1)
            continue
        if missing >= steps:
            yield gap
            missing -= steps
        yield from ["_"] * missing
        missing = 0
        if cell:
            yield cell


def write_rewritten(folder: Path, target: Path) -> None:
    """Write the rewritten copy of a folder of rules and tests."""
    (target / "tests").mkdir(parents=True)
    for path in folder.glob("*.yaml"):
        document = yaml.safe_load(path.read_text())
        for group in document["groups"]:
            for rule in group["rules"]:
                rule["expr"] = rewritten_expression(str(rule["expr"]))
        (target / path.name).write_text(yaml.safe_dump(document))
    for path in (folder / "tests").glob("*.yaml"):
        (target / "tests" / path.name).write_text(yaml.safe_dump(_test(path)))


def _test(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    # `0x80` is 81 samples for promtool, and a number for a YAML parser.
    texts: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    for test, text in zip(document["tests"], texts["tests"], strict=True):
        for series, cells in zip(test["input_series"], text["input_series"], strict=True):
            series["values"] = rewritten_values(cells["values"], text["interval"])
        for case in test.get("promql_expr_test", ()):
            case["expr"] = rewritten_expression(case["expr"])
    return document


def write_pieces(folder: Path, name: str, target: Path) -> list[Path]:
    """Write one file for each test of a file of a rewritten folder, with the rules that matter to
    it; return these files.
    """
    document = yaml.safe_load((folder / "tests" / name).read_text())
    paths = [
        path for given in document["rule_files"] for path in sorted((folder / "tests").glob(given))
    ]
    rules = {path.name: yaml.safe_load(path.read_text()) for path in paths}
    return [
        _write_piece(target / str(number), document, rules, test)
        for number, test in enumerate(document["tests"])
    ]


def _write_piece(
    target: Path, document: dict[str, Any], rules: dict[str, Any], test: dict[str, Any]
) -> Path:
    target.mkdir(parents=True)
    for name, live in live_rules(rules, test).items():
        # JSON is YAML, and many times as quick to write.
        (target / name).write_text(json.dumps(live))
    path = target / "test.yaml"
    path.write_text(yaml.safe_dump({**document, "rule_files": list(rules), "tests": [test]}))
    return path
