"""Converts between the fields of the form for a check and the request.

In: the body of a form, or a request. Out: a request, or the fields that produce it. Raises
RefusedError, with a problem for each field that must be changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.document import Problem
from nodevitals.errors import Wording
from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.web import spellings
from nodevitals_hub.web.spellings import Spelling, fitting, wanted_labels

MAX_FIELDS = 60
TEXTS = ("tool", "operation", "device", "sizes", "data_type", "reduction")
NUMBERS = (
    *("port", "iterations", "seconds", "queue_pairs", "gid_index", "traffic_class"),
    *("devices_per_node", "devices_per_process", "warm_up_iterations"),
)
PAIRS_OF_NAMES = ("environment", "mca")
SEVERAL = ("operation",)
"""Fields that a form may have several times: their values are joined by commas."""
_BASIC = ("tool", "operation", "device", "sizes")
_MORE = ("crossed", "port", "iterations", "seconds", "queue_pairs", "gid_index", "traffic_class")
_LAST = ("expected", "share", "limit")
_LATENCY = "expected_latency"
SHOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "pair": (_BASIC, (*_MORE, _LATENCY, *_LAST)),
    "matrix": ((*_BASIC, "rounds"), (*_MORE, _LATENCY, *_LAST)),
    "collective": (
        ("tool", "operation", "sizes", "devices_per_node"),
        (
            *("data_type", "reduction", "iterations", "warm_up_iterations", "devices_per_process"),
            *("device", "port", "queue_pairs", "gid_index", "traffic_class"),
            *(*PAIRS_OF_NAMES, "isolate", *_LAST),
        ),
    ),
    "node": ((), ("limit",)),
}
"""The parameters of each kind: those always visible, and further ones."""
_OF_TEST: dict[str, Spelling] = {
    **dict.fromkeys(TEXTS, spellings.TEXT),
    **dict.fromkeys(NUMBERS, spellings.NUMBER),
    **dict.fromkeys(PAIRS_OF_NAMES, spellings.PAIRS),
    "crossed": spellings.CHECKED,
}
_SPELLINGS: dict[str, Spelling] = {
    "kind": spellings.TEXT,
    "nodes": spellings.NAMES,
    "where": spellings.PAIRS,
    "preset": spellings.TEXT,
    **_OF_TEST,
    "rounds": spellings.NUMBER,
    "expected": spellings.RATE,
    _LATENCY: spellings.MICROSECONDS,
    "share": spellings.SHARE,
    "isolate": spellings.NOT_REFUSED,
    "limit": spellings.SECONDS,
    "force": spellings.CHECKED,
    "note": spellings.TEXT,
}
FIELDS = tuple(_SPELLINGS)
_ATTRIBUTES = {
    "expected": "expected_bytes_per_second",
    _LATENCY: "expected_latency_seconds",
    "limit": "limit_seconds",
}
_FIELDS_OF = {attribute: name for name, attribute in _ATTRIBUTES.items()}
_HINTS = {
    **get_type_hints(CheckRequest, include_extras=True),
    **get_type_hints(TestRequest, include_extras=True),
}


def fields_of(body: bytes) -> dict[str, str]:
    """The fields of a form; of repeated fields, the last one, or all of them (SEVERAL). Raises
    RefusedError.
    """
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"
        )
    except ValueError:
        raise RefusedError("invalid", Wording("not a form of this page")) from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        text = value.replace("\r\n", "\n").strip()
        fields[name] = f"{fields[name]},{text}" if name in SEVERAL and name in fields else text
    return fields


def request_of(fields: Mapping[str, str]) -> CheckRequest:
    """The request that a form describes. Raises RefusedError with all problems."""
    problems: list[Problem] = []
    request: dict[str, Any] = {}
    test: dict[str, Any] = {}
    for name, spelling in _SPELLINGS.items():
        text, attribute = fields.get(name, ""), _ATTRIBUTES.get(name, name)
        owner = test if name in _OF_TEST else request
        try:
            if name == "where":
                owner[name] = wanted_labels(fields)
            elif text or name == "kind":
                owner[attribute] = fitting(spelling.read(text), _HINTS[attribute])
        except ValueError as error:
            problems.append(Problem(name, error.args[0]))
    if problems:
        raise RefusedError("invalid", *problems)
    return CheckRequest(test=TestRequest(**test), **request)


def fields_from(request: CheckRequest) -> dict[str, str]:
    """The fields of the form that produces a request."""
    usual = CheckRequest(kind=request.kind)
    fields = {"kind": str(request.kind)}
    for name, spelling in _SPELLINGS.items():
        attribute = _ATTRIBUTES.get(name, name)
        owners = (request.test, usual.test) if name in _OF_TEST else (request, usual)
        value, default = (getattr(owner, attribute) for owner in owners)
        if value != default:
            fields[name] = spelling.write(value)
    return fields


def field_of(path: str) -> str:
    """The field of the form for a path such as `test.sizes`; '' where there is none."""
    name = path.removeprefix("test.").partition("[")[0]
    name = _FIELDS_OF.get(name, name)
    return name if name in FIELDS else ""


def by_field(problems: Iterable[Problem]) -> dict[str, str]:
    """The first message of each field; problems without a field are under ''."""
    messages: dict[str, str] = {}
    for problem in problems:
        messages.setdefault(field_of(problem.path), problem.message)
    return messages
