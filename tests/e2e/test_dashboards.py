"""Every query of every panel, asked of a real Prometheus that has scraped a simulated fleet."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.preview.queries import Prometheus, answer, panels, queries, read, variables
from dashboards.preview.span import Span
from testbed.node import ROOT
from testbed.site import Site

FILES = {path.stem: path for path in sorted((ROOT / "dashboards/json/en").glob("*.json"))}
