"""The same in processes that run one target after the other."""

from __future__ import annotations

from nodevitals.probes.misbehave import MisbehaveProbe  # type: ignore[import-untyped]


class SharedMisbehaveProbe(MisbehaveProbe):  # type: ignore[misc]
    """One behaviour."""

    name = "misbehave_shared"
    shared = True
