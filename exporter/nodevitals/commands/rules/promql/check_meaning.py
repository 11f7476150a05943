"""Checks that an expression can mean what it says: values that occur, counters as counters, joins
of series that can match, labels that its result has.

Each rests on what the catalogue and the rules say for certain (knowledge.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nodevitals.commands.rules.findings import Finding, FindingId
from nodevitals.commands.rules.promql.knowledge import Knowledge
from nodevitals.commands.rules.promql.series import Series
from nodevitals.commands.rules.promql.syntax import COMPARISONS, Part, parse, walk
from nodevitals.commands.rules.rule_files import Rule, RuleFile
from nodevitals.families import Bounds

_OF_COUNTERS = ("rate", "irate", "increase")
_OF_GAUGES = ("delta", "idelta", "deriv", "predict_linear")
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_TEMPLATE_LABEL = re.compile(r"""\$labels\.([a-zA-Z_]\w*)|\$labels\s+["`]([a-zA-Z_]\w*)["`]""")


def check_meaning(files: Iterable[RuleFile], known: Knowledge) -> Iterator[Finding]:
    """What is wrong with expressions and templates, as far as it is certain."""
    for file in files:
        for rule in file.rules:
            whole = parse(rule.expression)
            parts = list(walk(whole)) if whole is not None else []
            beginnings = list(filter(None, map(_beginning, parts)))
            for part in parts:
                for name, text in _problems(part, known):
                    if name == "promql/counter" and part in beginnings:
                        continue
                    line = rule.expression_line + part.line
                    yield Finding(rule.file, line, name, rule.name, text)
            if whole is not None and rule.is_alert:
                yield from _check_templates(file, rule, known.of(whole))


def _beginning(part: Part) -> Part | None:
    """`x_total > 0` of `x_total > 0 unless x_total offset 1h`: a counter that has just begun."""
    if part.text != "unless":
        return None
    left, right = (
        {one.text for one in walk(side) if one.kind == "selector"} for side in part.inside
    )
    return part.inside[0] if left & right else None


def _problems(part: Part, known: Knowledge) -> Iterator[tuple[FindingId, str]]:
    if part.kind == "call":
        yield from _check_function(part, known)
    elif part.kind == "aggregation":
        yield from _check_labels(part, "by", known.of(part.inside[-1]) if part.inside else Series())
    elif part.kind == "binary":
        left, right = (known.of(inner) for inner in part.inside)
        if "scalar" not in (left.kind, right.kind):
            yield from _check_join(part, left, right, known.jobs)
        elif part.text in COMPARISONS:
            yield from _check_comparison(part, left, right)


def _check_function(part: Part, known: Knowledge) -> Iterator[tuple[FindingId, str]]:
    for inner in part.inside:
        kind = known.of(inner).kind if inner.kind == "selector" and inner.window else ""
        if part.text in _OF_COUNTERS and kind == "gauge":
            text = f"{part.text} of {inner.text}, which is a gauge: each fall counts as a restart"
            yield "promql/rate", text
        if part.text in _OF_GAUGES and kind == "counter":
            text = f"{part.text} of {inner.text}, which is a counter: a restart counts as a fall"
            yield "promql/rate", text


def _check_comparison(part: Part, left: Series, right: Series) -> Iterator[tuple[FindingId, str]]:
    swapped = left.kind == "scalar"
    vector, number = (right, left) if swapped else (left, right)
    limit = number.bounds
    if vector.kind == "scalar" or limit is None or limit.low != limit.high:
        return
    value = limit.low
    comparison = _MIRRORED.get(part.text, part.text) if swapped else part.text
    name = _first_metric(part.inside[swapped])
    if vector.bounds is not None:
        results = vector.bounds.results(comparison, value)
        outside = not vector.bounds.low <= value <= vector.bounds.high
        if results == {False} or (results == {True} and outside):
            always = "always" if results == {True} else "never"
            text = f"{comparison} {value:g} is {always} true: {name}{_range(vector.bounds)}"
            yield "promql/value", text
    if vector.kind == "counter" and comparison in (">", ">=") and "bool" not in part.lists:
        yield "promql/counter", f"{name} is a counter: once {comparison} {value:g}, it stays so"


def _range(bounds: Bounds) -> str:
    low, high = f"{bounds.low:g}", f"{bounds.high:g}"
    if low == high:
        return f" is always {low} here, and missing otherwise"
    return f" is {low} or {high} here" if bounds.exact else f" is from {low} to {high} here"


def _check_join(
    part: Part, left: Series, right: Series, jobs: tuple[str, ...]
) -> Iterator[tuple[FindingId, str]]:
    if part.text == "or":
        return
    sides = [(left, right, part.inside[1]), (right, left, part.inside[0])]
    on = part.lists.get("on")
    compared = left.certain | right.certain if on is None else frozenset(on)
    effect = "excludes nothing" if part.text == "unless" else "never has a result"
    for label in sorted(compared - frozenset(part.lists.get("ignoring", ()))):
        for one, other, lacking in sides:
            if label in one.certain and other.labels is not None and label not in other.labels:
                text = f"this `{part.text}` {effect}: {_first_metric(lacking)} has no label {label}"
                yield "promql/join", text
                return
            # The author of `on (node)` knows a metric of another exporter that has it.
            if on and one.labels is None and other.labels is not None and label not in other.labels:
                text = f"on ({label}): {_first_metric(lacking)} has no label {label}"
                yield "promql/join", text
                return
        values = [side.fixed.get(label) for side in (left, right)]
        ours = label == "job" and set(values) <= {*jobs}  # several may scrape one agent
        if None not in values and values[0] != values[1] and not ours:
            text = f"this `{part.text}` {effect}: the two sides differ in {label}"
            yield "promql/join", text
            return


def _check_labels(part: Part, word: str, inner: Series) -> Iterator[tuple[FindingId, str]]:
    for label in part.lists.get(word, ()):
        if inner.labels is not None and label not in inner.labels:
            name = _first_metric(part.inside[-1])
            yield "label/unknown", f"{word} ({label}): {name} has no label {label}"


def _first_metric(part: Part) -> str:
    """The name of the first metric of an expression, for people."""
    names = [inner.text for inner in walk(part) if inner.kind == "selector" and inner.text]
    return names[0] if names else "the other side"


def _check_templates(file: RuleFile, rule: Rule, result: Series) -> Iterator[Finding]:
    if result.labels is None:
        return
    for key, texts in (("labels", rule.labels), ("annotations", rule.annotations)):
        for where, text in texts.items():
            for match in _TEMPLATE_LABEL.finditer(text):
                label = next(filter(None, match.groups()))
                if label not in result.labels:
                    line = _line_of(file, rule.key_lines.get(key), match[0]) or rule.first_line
                    message = f"$labels.{label} in {where} is empty: the result of the expression "
                    message += f"has the labels {', '.join(sorted(result.labels - {'__name__'}))}"
                    yield Finding(rule.file, line, "template/label", rule.name, message)


def _line_of(file: RuleFile, lines: tuple[int, int] | None, text: str) -> int:
    first, last = lines or (1, 0)
    numbers = range(first, last + 1)
    return next((number for number in numbers if text in file.lines[number - 1]), 0)
