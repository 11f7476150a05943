"""A node whose clock is wrong, simulated below our code: adds SKEW_SECONDS to the time of day, or
the number in SKEW_FILE, which may change while the process runs.
"""

from __future__ import annotations

import os
import time

_file = os.environ.get("SKEW_FILE", "")
_skew = float(os.environ.get("SKEW_SECONDS", "0"))
if _skew:
    _system_time = time.time

    def _skewed_time() -> float:
        return _system_time() + _skew

    time.time = _skewed_time
elif _file:
    _system_time = time.time

    def _jumping_time() -> float:
        with open(_file, encoding="ascii") as file:
            return _system_time() + float(file.read())

    time.time = _jumping_time
