"""What the runner reports of finished tests."""

from __future__ import annotations

from typing import Optional, Union

import msgspec

from nodevitals.probes.fabric.report import Report
from nodevitals.probes.fabric.settings import TestSettings


class StartedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test that this node started at `time` (seconds since the epoch). `skipped` is one of SKIPS
    where it was not started or was stopped, else ''; `seconds` is how long the tool ran here.
    """

    test: TestSettings
    source: str
    peer: str
    time: float
    seconds: float = 0.0
    skipped: str = ""
    report: Optional[Report] = None


class ServedTest(msgspec.Struct, frozen=True, kw_only=True):
    """A test of a peer's, and how long its server side ran here."""

    test: TestSettings
    seconds: float


FinishedTest = Union[StartedTest, ServedTest]
