"""Metrics of other exporters that the dashboards and their recording rules read, by exporter."""

from __future__ import annotations

OTHERS: dict[str, frozenset[str]] = {"Prometheus": frozenset({"ALERTS", "ALERTS_FOR_STATE", "up"})}
