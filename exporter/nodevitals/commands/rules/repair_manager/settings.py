"""The settings of config.yaml and rule-config.yaml, found by their last name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodevitals.commands.rules.repair_manager.durations import prometheus_duration


class Settings:
    """The settings of a document; where several have one name, the first is used."""

    def __init__(self, document: Any) -> None:
        self.leaves = list(_leaves(document))
        """Path, last name and value of each."""
        self.path_of = {name: path for path, name, _ in reversed(self.leaves)}
        """The path of the setting that is used, by name."""
        self._values = {name: value for _, name, value in reversed(self.leaves)}

    def get(self, name: str, default: Any = None) -> Any:
        """The value; the default where it is missing or null."""
        value = self._values.get(name)
        return default if value is None else value

    def text(self, name: str) -> str:
        """The value as text, '' where it is missing; a list as comma-separated text."""
        value = self.get(name, "")
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

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
    """Path, last name and value of everything but mappings; a list of plain values is one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    elif path:
        yield path, re.split(r"[.\[]", path)[-1], value
