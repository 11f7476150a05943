"""RepairManager's files: their settings by last name, durations, and references such as
`{{cnf["a"]["b"]}}`.

References are replaced before the text is parsed: some are where YAML does not allow them. A
duration that is a plain number is seconds, or minutes in `interval`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from nodevitals.document import DocumentError, Problem, parse_yaml
from nodevitals.quantities import parse_duration

CONFIG, ALERTS = "config.yaml", "rule-alerts.yaml"
FILES = (CONFIG, "rule-config.yaml", "ecc-config.yaml", ALERTS)
RULES_OUT, ALERTMANAGER_OUT = "repair-manager.yaml", "alertmanager.yaml"


class ConvertedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a file: what it became, or else why it became nothing."""

    file: str
    path: str
    became: str = ""
    why: str = ""
    rule_lost: bool = False
    """Whether the key is the expression of a rule that became nothing."""


def parse_seconds(value: Any, unit: Literal["s", "m"] = "s") -> float:
    """Seconds from `60`, `"60"` or `1m`; `unit` is that of a plain number. Raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value) * (60 if unit == "m" else 1)
    if isinstance(value, str) and value.isdecimal():
        value += unit
    return parse_duration(value)


def prometheus_duration(value: Any) -> str:
    """The duration as Prometheus writes it, `60s` or `1500ms`; '' where it is none."""
    try:
        milliseconds = round(parse_seconds(value) * 1000)
    except ValueError:
        return ""
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


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
            Problem(problem.within(file).removesuffix(f": {problem.message}"), problem.message)
            for problem in error.problems
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


class Setting(msgspec.Struct, frozen=True):
    """One value that is neither a mapping nor within a rule."""

    file: str
    path: str
    name: str
    value: Any


class Settings:
    """The settings of documents by file; where several have one name, the first is used."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.all = tuple(
            Setting(file, path, name, value)
            for file, document in documents.items()
            for path, name, value in _leaves(document)
        )
        self.used = {setting.name: setting for setting in reversed(self.all)}
        """The setting that is used, by name."""

    def get(self, name: str, default: Any = None) -> Any:
        """The value; the default where it is missing or null."""
        value = self.used[name].value if name in self.used else None
        return default if value is None or isinstance(value, Missing) else value

    def text(self, name: str) -> str:
        """The value as text, '' where it is missing; a list as comma-separated text."""
        value = self.get(name, "")
        parts = value if isinstance(value, list) else [value]
        return ", ".join(text for text in (str(part).strip() for part in parts) if text)

    @property
    def cluster(self) -> str:
        """The name of the cluster, or ''."""
        return self.text("cluster_name")

    @property
    def mail_domain(self) -> str:
        """`@domain` of the sender, for owners that are known by name only; or ''."""
        _, at, domain = self.text("sender").rpartition("@")
        return f"{at}{domain}" if at else ""

    @property
    def evaluation_interval(self) -> str:
        """Time between two evaluations of the rules, as Prometheus writes it, or ''."""
        return prometheus_duration(self.get("rule_wait_time"))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Path, last name and value of everything but mappings and rules; a list of plain values is
    one.
    """
    if isinstance(value, dict) and "query_expression" in value:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    elif path:
        yield path, re.split(r"[.\[]", path)[-1], value
