"""The same in processes that run one target after the other."""

from __future__ import annotations

from nodevitals.probes.misbehave import MisbehaveProbe


class SharedMisbehaveProbe(MisbehaveProbe):
    """One behaviour."""

    name = "misbehave_shared"
    shared = True
