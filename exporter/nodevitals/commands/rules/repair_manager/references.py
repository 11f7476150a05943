"""Files with references such as `{{cnf["a"]["b"]}}`: text in, values out.

References are replaced before the text is parsed: some are where YAML does not allow them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from nodevitals.commands.rules.repair_manager.files import CONFIG
from nodevitals.document import DocumentError, Problem, parse_yaml

_REFERENCE = re.compile(
    r"""\{\{\s*cnf(?P<path>(?:\[\s*(?:"[^"\]]*"|'[^'\]]*'|\d+)\s*\]|\.\w+)+)\s*\}\}"""
)
_STEP = re.compile(r"""\[\s*(?:"([^"]*)"|'([^']*)'|(\d+))\s*\]|\.(\w+)""")
_MARK = "nodevitals-reference-{}-"
_MARKED = re.compile(r"nodevitals-reference-(\d+)-")


class Missing(msgspec.Struct, frozen=True):
    """A value that refers to a setting that config.yaml does not have."""

    reference: str

    def __str__(self) -> str:
        return f"{self.reference} is not in {CONFIG}"


class References:
    """Looks references up in config.yaml and records which keys were used."""

    def __init__(self, config: Any) -> None:
        self.used: set[str] = set()
        """The paths of the keys that were found."""
        self._config = config

    def find(self, reference: str) -> Any:
        """The value of `["a"]["b"]`. Raises LookupError, and ValueError for a bad list index."""
        value, path = self._config, ""
        for match in _STEP.finditer(reference):
            step: Any = next(part for part in match.groups() if part is not None)
            if isinstance(value, list):
                step = int(step)
            if not isinstance(value, (dict, list)):
                raise LookupError(step)
            value = value[step]
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        self.used.add(path.removeprefix("."))
        return value


def read(text: bytes, file: str, references: References | None, problems: list[Problem]) -> Any:
    """A file's values; None where it cannot be read, with the reasons added to `problems`.

    A reference stands for its value, or for the value's text where more text is around it; a value
    with a reference that is not found is Missing. Without `references` none is found.
    """
    values: list[Any] = []

    def mark(match: re.Match[str]) -> str:
        try:
            if references is None:
                raise LookupError
            values.append(references.find(match["path"]))
        except (LookupError, ValueError):
            values.append(Missing(match[0]))
        return _MARK.format(len(values) - 1)

    try:
        return _resolve(parse_yaml(_REFERENCE.sub(mark, text.decode()).encode()), values)
    except UnicodeDecodeError as error:
        problems.append(Problem(file, f"not UTF-8: {error.reason}"))
    except DocumentError as error:
        problems += [
            Problem(one.within(file).removesuffix(f": {one.message}"), one.message)
            for one in error.problems
        ]
    return None


def _resolve(document: Any, values: list[Any]) -> Any:
    """The document with each mark replaced by the value of its number."""
    if isinstance(document, dict):
        return {_resolve(key, values): _resolve(item, values) for key, item in document.items()}
    if isinstance(document, list):
        return [_resolve(item, values) for item in document]
    if not isinstance(document, str):
        return document
    whole = _MARKED.fullmatch(document)
    if whole:
        return values[int(whole[1])]
    parts = [values[int(number)] for number in _MARKED.findall(document)]
    lost = next((part for part in parts if isinstance(part, Missing)), None)
    if lost is not None:
        return lost
    return _MARKED.sub(lambda part: _as_text(values[int(part[1])]), document)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
