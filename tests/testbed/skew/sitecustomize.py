"""A node whose clock is wrong, simulated below our code: adds SKEW_SECONDS to the time of day."""

from __future__ import annotations

import os
import time

_skew = float(os.environ.get("SKEW_SECONDS", "0"))
if _skew:
    _system_time = time.time

    def _skewed_time() -> float:
        return _system_time() + _skew

    time.time = _skewed_time
