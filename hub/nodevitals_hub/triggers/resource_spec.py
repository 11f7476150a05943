"""Converts the `spec` of a custom resource Check to a request, and a check to its `status`.

In: the `spec` of a resource, with the fields of CheckRequest in camelCase. Out: a CheckRequest, or
one line about what is wrong; the `status` of a check. The schema of the CRD is made from CheckSpec
(helm/crd.py).
"""

from __future__ import annotations

import time
import typing
from typing import Any

import msgspec

from nodevitals.checks.model import Check, CheckRequest, TestRequest

GROUP, VERSION, KIND, PLURAL = "nodevitals.io", "v1alpha1", "Check", "checks"
MAX_MESSAGE = 1000
PHASES = ("Pending", "Queued", "Running", "Done", "Canceled", "Refused")
"""Pending: the hub cannot take it yet, and tries again. Refused: the spec is invalid."""
ENDED = frozenset({"Done", "Canceled", "Refused"})


def _camel_cased(struct: type[msgspec.Struct], **other: Any) -> type[msgspec.Struct]:
    """A type with the same fields in camelCase; `other` are types that replace those of fields."""
    hints = typing.get_type_hints(struct, include_extras=True)
    fields: list[Any] = []
    for field in msgspec.structs.fields(struct):
        hint = other.get(field.name, hints[field.name])
        if field.required:
            fields.append((field.name, hint))
        elif field.name in other:
            fields.append((field.name, hint, msgspec.field(default_factory=hint)))
        elif field.default_factory is not msgspec.NODEFAULT:
            factory = msgspec.field(default_factory=field.default_factory)
            fields.append((field.name, hint, factory))
        else:
            fields.append((field.name, hint, field.default))
    return msgspec.defstruct(
        struct.__name__.replace("Request", "Spec"),
        fields,
        rename="camel",
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
        namespace={"__doc__": struct.__doc__},
    )


TestSpec = _camel_cased(TestRequest)
CheckSpec = _camel_cased(CheckRequest, test=TestSpec)


def request_of(spec: object) -> CheckRequest:
    """The request in a spec. Raises ValueError with one line, which names the field."""
    try:
        check_spec = msgspec.convert(spec, CheckSpec)
    except msgspec.ValidationError as error:
        raise ValueError(_worded(str(error))) from None
    values: dict[str, Any] = msgspec.structs.asdict(check_spec)
    values["test"] = TestRequest(**msgspec.structs.asdict(values["test"]))
    return CheckRequest(**values)


def _worded(text: str) -> str:
    """`Expected int - at $.test.port` as `spec.test.port: Expected int`."""
    message, _, path = text.partition(" - at `$")
    return f"spec{path.rstrip('`')}: {' '.join(message.split())}"[:MAX_MESSAGE]


def stamp(seconds: float | None) -> str | None:
    """A time as Kubernetes writes it."""
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def status_of(check: Check, generation: int, url: str, warning: str = "") -> dict[str, Any]:
    """The status of a resource whose check was started; null removes a field."""
    verdict = check.verdict
    return {
        "phase": check.phase.capitalize(),
        "observedGeneration": generation,
        "checkId": check.id,
        "link": f"{url.rstrip('/')}/checks/{check.id}" if url else f"/checks/{check.id}",
        "progress": f"{check.runs_done}/{check.runs}",
        "started": stamp(check.started),
        "ended": stamp(check.ended),
        "verdict": verdict.outcome if verdict else None,
        "reason": verdict.reason if verdict else None,
        "message": verdict.message[:MAX_MESSAGE] if verdict else None,
        "warning": warning or None,
    }


def status_without_check(phase: str, generation: int, message: str) -> dict[str, Any]:
    """The status of a resource that is Pending or Refused."""
    return {
        "phase": phase,
        "observedGeneration": generation,
        "message": " ".join(message.split())[:MAX_MESSAGE],
    }


def status_of_lost(generation: int, identity: str) -> dict[str, Any]:
    """The status of a resource whose check this hub does not have: it is not run again."""
    return {
        "phase": "Done",
        "observedGeneration": generation,
        "checkId": identity,
        "verdict": "unknown",
        "reason": "harness",
        "message": f"the hub has no record of {identity}: create the resource anew",
    }
