"""A node's clock that is wrong, below our code: SKEW_SECONDS is added to the time of day."""

from __future__ import annotations

import os
import time

_skew = float(os.environ.get("SKEW_SECONDS", "0"))
if _skew:
    _right = time.time

    def _wrong() -> float:
        return _right() + _skew

    time.time = _wrong
