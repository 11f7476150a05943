"""Members of decoded JSON, of whatever type they are.

In: an object. Out: a text, a number, objects, a path; empty or None where it is none of that.
"""

from __future__ import annotations

import math
import re
from typing import Any, Optional

Json = dict[str, Any]

# A path of the service, without a fragment, and nothing that would end a request's line.
_PATH = re.compile(r"/redfish/[!\"$-~]{0,500}")
_MAX_TEXT = 256
_MAX_NUMBER = 1e9


def as_object(value: object) -> Json:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def inner(document: Json, *keys: str) -> Json:
    """The object below these keys, or an empty one."""
    for key in keys:
        document = as_object(document.get(key))
    return document


def objects(document: Json, key: str) -> list[Json]:
    """The objects of a list."""
    value = document.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(document: Json, key: str) -> str:
    """A text; '' where there is none. Some services have numbers as identifiers."""
    value = document.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
        return str(value)
    return value[:_MAX_TEXT] if isinstance(value, str) else ""


def number(document: Json, key: str) -> Optional[float]:
    """A number that a sensor may have."""
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) <= _MAX_NUMBER else None


def path(value: object) -> str:
    """A path of the service; '' for what is none, as a URL of another host."""
    return value if isinstance(value, str) and _PATH.fullmatch(value) else ""


def link(document: Json, key: str) -> str:
    """The path that a member links to; '' where it links to none."""
    return path(inner(document, key).get("@odata.id"))


def links(document: Json, key: str) -> list[str]:
    """The paths that a list links to."""
    return [
        found for found in (path(one.get("@odata.id")) for one in objects(document, key)) if found
    ]
