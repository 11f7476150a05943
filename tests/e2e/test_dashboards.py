"""Every query of every panel, asked of a real Prometheus that has scraped a simulated fleet."""

from __future__ import annotations

from testbed.node import ROOT

FILES = {path.stem: path for path in sorted((ROOT / "dashboards/json/en").glob("*.json"))}
