"""The text of /metrics as samples. Raises ValueError for what is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Samples(NamedTuple):
    """Labels and values by the name of the metric."""

    values: Mapping[str, list[tuple[Mapping[str, str], float]]]

    def by_target(self, name: str) -> dict[tuple[str, str], float]:
        """The values of a metric by probe and target."""
        return {
            (found.get("probe", ""), found.get("target", "")): value
            for found, value in self.values.get(name, ())
        }

    def value(self, name: str) -> float | None:
        """The value of a metric that has one series; None without it."""
        return next((value for _, value in self.values.get(name, ())), None)

    def label(self, name: str, label: str) -> str:
        """A label of a metric that has one series; '' without it."""
        return next((found.get(label, "") for found, _ in self.values.get(name, ())), "")


def parse_samples(body: bytes) -> Samples:
    """The samples of an exposition. Raises ValueError."""
    values: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                values.setdefault(sample.name, []).append((sample.labels, sample.value))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError("not the format of Prometheus") from error
    return Samples(values)
