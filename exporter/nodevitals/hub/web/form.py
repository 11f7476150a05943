"""The form for a check: its fields, and the request that they stand for.

In: the body of a form, or a request. Out: a request, or the fields that would give the same one.
Raises FormError, which has a text for each field that must be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Callable
from urllib.parse import parse_qsl

import msgspec

from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.hub.checks import RefusedError
from nodevitals.quantities import parse_bit_rate, parse_duration, shown

MAX_FIELDS = 60
TEXTS = ("tool", "operation", "device", "sizes")
NUMBERS = (
    *("port", "iterations", "seconds", "queue_pairs", "gid_index", "traffic_class"),
    "devices_per_node",
)
PAIRS_OF_NAMES = ("environment", "mca")
LABEL = "where."
"""Before the name of a label, of which a value is chosen from a list."""
_BASIC = ("tool", "operation", "device", "sizes")
_MORE = ("port", "iterations", "seconds", "queue_pairs", "gid_index", "traffic_class")
_LAST = ("expected", "share", "limit")
SHOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pair": (_BASIC, (*_MORE, *_LAST)),
    "matrix": ((*_BASIC, "rounds"), (*_MORE, *_LAST)),
    "collective": (
        ("tool", "operation", "sizes", "devices_per_node"),
        (
            *("device", "port", "iterations", "queue_pairs", "gid_index", "traffic_class"),
            *(*PAIRS_OF_NAMES, "isolate", *_LAST),
        ),
    ),
    "node": ((), ("limit",)),
}
"""The parameters of each kind: those that are always seen, and more."""
FIELDS = (
    *("kind", "nodes", "where", "preset", *TEXTS, *NUMBERS, *PAIRS_OF_NAMES, "rounds", "expected"),
    *("share", "isolate", "limit", "force", "note"),
)
_OF_REQUEST = {"expected_bytes_per_second": "expected", "limit_seconds": "limit"}
_UNITS = (("T", 1e12), ("G", 1e9), ("M", 1e6))
_DEFAULT = CheckRequest(kind="pair")


class FormError(RefusedError):
    """What must be changed, by field; '' where no field is at fault."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("invalid", "; ".join(f"{a}: {b}" for a, b in problems.items()))
        self.problems = dict(problems)


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a form, of each the last. Raises RefusedError."""
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise RefusedError("invalid", "not a form of this page") from None
    return {name: value.replace("\r\n", "\n").strip() for name, value in pairs}


def names_of(text: str) -> list[str]:
    """Names, separated by commas or white space."""
    return text.replace(",", " ").replace("\uff0c", " ").split()


def request_of(fields: Mapping[str, str]) -> CheckRequest:
    """The request that a form describes. Raises FormError."""
    problems: dict[str, str] = {}

    def taken(name: str, convert: Callable[[str], Any]) -> Any:
        text = fields.get(name, "")
        try:
            return convert(text) if text else None
        except ValueError as error:
            problems[name] = str(error)
            return None

    test: dict[str, Any] = {name: fields.get(name) for name in TEXTS}
    test.update({name: taken(name, _number) for name in NUMBERS})
    test.update({name: taken(name, _pairs) for name in PAIRS_OF_NAMES})
    found = {
        "preset": fields.get("preset"),
        "note": fields.get("note"),
        "rounds": taken("rounds", _number),
        "expected_bytes_per_second": taken("expected", _rate),
        "share": taken("share", _share),
        "limit_seconds": taken("limit", _seconds),
    }
    request: dict[str, Any] = {
        name: value for name, value in found.items() if value is not None and value != ""
    }
    request["kind"] = fields.get("kind", "")
    request["test"] = {name: one for name, one in test.items() if one is not None and one != ""}
    request["nodes"] = names_of(fields.get("nodes", ""))
    try:
        request["where"] = labels_from(fields)
    except ValueError as error:
        problems["where"] = str(error)
    request["force"] = fields.get("force") == "yes"
    request["isolate"] = fields.get("isolate") != "no"
    if problems:
        raise FormError(problems)
    try:
        return msgspec.convert(request, CheckRequest)
    except msgspec.ValidationError as error:
        raise FormError(problem_of(str(error))) from None


def labels_from(fields: Mapping[str, str]) -> dict[str, str]:
    """The labels of the text and of the lists. Raises ValueError."""
    typed = _pairs(fields.get("where", ""))
    chosen = {
        name[len(LABEL) :]: value
        for name, value in fields.items()
        if name.startswith(LABEL) and value and len(name) > len(LABEL)
    }
    if twice := typed.keys() & chosen.keys():
        raise ValueError(f"{shown(min(twice))} is chosen above, too: remove one")
    return {**typed, **chosen}


def fields_from(request: CheckRequest) -> dict[str, str]:
    """The fields of the form that gives the same request."""
    found = {"kind": request.kind, "nodes": "\n".join(request.nodes)}
    found |= {"preset": request.preset, "note": request.note, "where": _lines(request.where)}
    for name in (*TEXTS, *NUMBERS):
        value = getattr(request.test, name)
        if value != getattr(TestRequest(), name):
            found[name] = str(value)
    for name in PAIRS_OF_NAMES:
        found[name] = _lines(getattr(request.test, name))
    if request.rounds is not None:
        found["rounds"] = str(request.rounds)
    if request.expected_bytes_per_second is not None:
        found["expected"] = _rate_text(request.expected_bytes_per_second)
    if request.share != _DEFAULT.share:
        found["share"] = _plain(Decimal(repr(request.share)) * 100)
    if request.limit_seconds is not None:
        found["limit"] = f"{_plain(Decimal(repr(request.limit_seconds)))}s"
    found["isolate"] = "" if request.isolate else "no"
    found["force"] = "yes" if request.force else ""
    return {name: text for name, text in found.items() if text}


def field_of(path: str) -> str:
    """The field of the form for a path such as `test.sizes`; '' where there is none."""
    name = path.removeprefix("test.").partition("[")[0]
    name = _OF_REQUEST.get(name, name)
    return name if name in FIELDS else ""


def problems_of(text: str) -> dict[str, str]:
    """A problem that begins with the path of its field, by field."""
    path, colon, message = text.partition(": ")
    field = field_of(path) if colon else ""
    return {field: message if field else text}


def problem_of(text: str) -> dict[str, str]:
    """A problem of msgspec: `Expected ... - at `$.test.port``."""
    message, _, path = text.partition(" - at `$.")
    field = field_of(path.rstrip("`"))
    if "matching regex" in message:
        message = "a name has letters, digits and . _ - only"
    return {field: message}


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (equals and name) and line.strip():
            raise ValueError(f"write NAME=VALUE instead of {line[:40]!r}, one per line")
        if name in found:
            raise ValueError(f"{name[:40]!r} is there twice: remove one")
        if name:
            found[name] = value
    return found


def _lines(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={value}" for name, value in pairs.items())


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text) if text.isascii() and len(text) <= 400 else Decimal("NaN")
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or abs(value.adjusted()) > 400:
        raise ValueError(f"{text[:40]!r} is not a number")
    return value


def _share(text: str) -> float:
    value = _decimal(text.rstrip("% "))
    if not 0 < value <= 100:
        raise ValueError("write a percentage above 0 and up to 100, such as 80")
    return float(value / 100)


def _rate(text: str) -> float:
    """`400Gb/s`, or a number of bytes per second."""
    if text[-1:].isdecimal():
        return float(_decimal(text))
    return parse_bit_rate(text)


def _rate_text(value: float) -> str:
    for letter, bits in _UNITS:
        text = f"{value * 8 / bits:.15g}{letter}b/s"
        if value * 8 >= bits and "e" not in text and _rate(text) == value:
            return text
    return _plain(Decimal(repr(value)))


def _seconds(text: str) -> float:
    """`30m`, or a number of seconds."""
    if text[-1:].isdecimal():
        return float(_decimal(text))
    if text.endswith("s") and text[:-1].replace(".", "", 1).isdecimal():
        return float(_decimal(text[:-1]))
    return parse_duration(text)


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"


def labels_of(
    members: Iterable[Any], most_values: int = 30, most_labels: int = 8
) -> dict[str, dict[str, int]]:
    """The labels of the members that a short list can show, with the number of nodes per value.
    A label whose values all differ names nodes, and is left out.
    """
    counts: dict[str, dict[str, int]] = {}
    total = 0
    for member in members:
        total += 1
        for name, value in member.labels.items():
            if value:
                values = counts.setdefault(name, {})
                if value in values or len(values) <= most_values:
                    values[value] = values.get(value, 0) + 1
    chosen = [
        name
        for name, values in sorted(counts.items())
        if len(values) <= most_values and (total <= 2 or len(values) < total)
    ]
    return {name: dict(sorted(counts[name].items())) for name in chosen[:most_labels]}


def with_lists(
    fields: Mapping[str, str], labels: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """The fields, with labels of the text chosen in the lists that have them."""
    found = dict(fields)
    try:
        where = _pairs(found.get("where", ""))
    except ValueError:
        return found
    left = {}
    for name, value in where.items():
        if value in labels.get(name, ()) and not found.get(LABEL + name):
            found[LABEL + name] = value
        else:
            left[name] = value
    found["where"] = _lines(left)
    return found
