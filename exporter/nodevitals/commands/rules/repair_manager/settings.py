"""The settings of all files, found by their last name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodevitals.commands.rules.repair_manager.durations import prometheus_duration
from nodevitals.commands.rules.repair_manager.references import Missing


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
        self.used = {one.name: one for one in reversed(self.all)}
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
