"""What is known about a result. In: what is known about its parts. Out: its labels, kind, range.

What is not certain stays unknown: no finding may rest on a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Optional

import msgspec

from nodevitals.commands.rules.promql.syntax import COMPARISONS, SETS, Part
from nodevitals.families import Bounds

_RATES = ("rate", "irate", "increase")
_SAME_VALUES = ("last_over_time", "max_over_time", "min_over_time", "sort", "sort_desc")
_SAME_LABELS = (
    *("delta", "idelta", "deriv", "predict_linear", "changes", "resets", "timestamp", "-"),
    *("abs", "ceil", "floor", "round", "sgn", "sqrt", "exp", "ln", "log2", "log10"),
    *("clamp", "clamp_min", "clamp_max", *_RATES, *_SAME_VALUES),
)


class Series(msgspec.Struct, frozen=True):
    """What is known about the series of a result."""

    labels: Optional[frozenset[str]] = None
    """Those that a series may have; None: any."""
    certain: frozenset[str] = frozenset()
    """Those that every series has."""
    fixed: Mapping[str, str] = {}
    """The value of a label, where every series has the same."""
    kind: str = ""
    """`counter`, `gauge`, `scalar`, or '' where unknown."""
    bounds: Optional[Bounds] = None

    def without(self, labels: Iterable[str]) -> Series:
        """The same series without some labels."""
        gone = frozenset(labels)
        return msgspec.structs.replace(
            self,
            labels=None if self.labels is None else self.labels - gone,
            certain=self.certain - gone,
            fixed={label: value for label, value in self.fixed.items() if label not in gone},
        )

    def only(self, labels: Iterable[str]) -> Series:
        """The same series with these labels only."""
        kept = frozenset(labels)
        rest = self.certain | self.fixed.keys() | (self.labels or frozenset())
        return msgspec.structs.replace(self.without(rest - kept), labels=kept)

    def described(self, kind: str = "", bounds: Bounds | None = None) -> Series:
        """The same labels with other values."""
        return msgspec.structs.replace(self, kind=kind, bounds=bounds)


UNKNOWN = Series()


def either(left: Series, right: Series) -> Series:
    """What holds for the series of both."""
    both = left.labels is not None and right.labels is not None
    return Series(
        labels=(left.labels or frozenset()) | (right.labels or frozenset()) if both else None,
        certain=left.certain & right.certain,
        fixed=dict(left.fixed.items() & right.fixed.items()),
        kind=left.kind if left.kind == right.kind else "",
        bounds=left.bounds.joined(right.bounds) if left.bounds and right.bounds else None,
    )


def aggregated(part: Part, inside: list[Series]) -> Series:
    """The result of an aggregation."""
    if not inside:
        return UNKNOWN
    inner = inside[-1]
    if part.text in ("topk", "bottomk", "limitk", "limit_ratio"):
        return inner
    without = part.lists.get("without")
    result = inner.only(part.lists.get("by", ())) if without is None else inner.without(without)
    if part.text == "count_values" and part.inside[0].kind == "string":
        added = {part.inside[0].text}
        result = msgspec.structs.replace(
            result, labels=None if result.labels is None else result.labels | added
        )
    if part.text in ("min", "max", "avg", "quantile"):
        bounds = inner.bounds if part.text in ("min", "max") else _between(inner.bounds)
        return result.described(inner.kind, bounds)
    if part.text == "group":
        return result.described("gauge", Bounds(1, 1))
    return result.described(inner.kind if part.text == "sum" else "")


def called(part: Part, inside: list[Series]) -> Series:
    """The result of a function."""
    name = part.text
    if name in ("absent", "absent_over_time"):
        matchers = part.inside[0].matchers if part.inside else ()
        equal = frozenset(one.label for one in matchers if one.operator == "=" and one.value)
        return Series(equal, kind="gauge", bounds=Bounds(1, 1))
    if name == "vector" and inside:
        return msgspec.structs.replace(inside[0], kind="gauge")
    if name in ("scalar", "time", "pi"):
        return Series(frozenset(), kind="scalar")
    if name in ("label_replace", "label_join") and inside and len(part.inside) > 1:
        added = part.inside[1].text
        found = inside[0].without([added])
        labels = None if found.labels is None else found.labels | {added}
        return msgspec.structs.replace(found, labels=labels)
    vectors = [one for one in inside if one.kind != "scalar"]
    if len(vectors) != 1 or not (name in _SAME_LABELS or name.endswith("_over_time")):
        return UNKNOWN
    if name in _SAME_VALUES:
        return vectors[0]
    if name in ("avg_over_time", "quantile_over_time"):
        return vectors[0].described("gauge", _between(vectors[0].bounds))
    return vectors[0].described("gauge")


def combined(part: Part, left: Series, right: Series) -> Series:
    """The result of an operator."""
    if part.text in SETS:
        return either(left, right) if part.text == "or" else left
    scalars = [one.kind == "scalar" for one in (left, right)]
    if all(scalars):
        bounds = _calculated(part.text, left.bounds, right.bounds)
        return Series(frozenset(), kind="scalar", bounds=bounds)
    if "bool" in part.lists:
        bounds = Bounds(0, 1, exact=True)
        left = left.described("gauge", bounds)
        right = right.described("gauge", bounds)
    if any(scalars):
        vector = right if scalars[0] else left
        if part.text in COMPARISONS:
            return vector
        return vector.described(vector.kind, _calculated(part.text, left.bounds, right.bounds))
    joined = _joined(part, left, right)
    return joined.described(left.kind, left.bounds) if part.text in COMPARISONS else joined


def _joined(part: Part, left: Series, right: Series) -> Series:
    """The labels of the result of two vectors."""
    for word, many, one in (("group_left", left, right), ("group_right", right, left)):
        if word in part.lists:
            included = part.lists[word]
            result = many.without(included).described()
            given = frozenset(included)
            added = given if one.labels is None else given & one.labels
            return msgspec.structs.replace(
                result,
                labels=None if result.labels is None else result.labels | added,
                certain=result.certain | (added & one.certain),
            )
    if "on" in part.lists:
        return left.only(part.lists["on"]).described()
    result = left.without(part.lists.get("ignoring", ())).described()
    return result if result.labels is not None else UNKNOWN


def _between(bounds: Bounds | None) -> Bounds | None:
    return None if bounds is None else msgspec.structs.replace(bounds, exact=False)


def _calculated(operator: str, left: Bounds | None, right: Bounds | None) -> Bounds | None:
    """The range after a calculation with a constant."""
    if left is None or right is None or operator not in ("+", "-", "*", "/"):
        return None
    if operator == "/" and (right.low != right.high or not right.low):
        return None
    if left.low != left.high and right.low != right.high:
        return None
    pairs = [(one, other) for one in (left.low, left.high) for other in (right.low, right.high)]
    calculate = {
        "+": float.__add__,
        "-": float.__sub__,
        "*": float.__mul__,
        "/": float.__truediv__,
    }[operator]
    results = [calculate(float(one), float(other)) for one, other in pairs]
    return Bounds(min(results), max(results), exact=left.exact or right.exact)
