"""The ways to systemd: the system bus, then systemd's own socket, which only root may use.

In: both paths. Out: an open connection. A bus daemon that hangs has half of the time.
"""

from __future__ import annotations

import os
import time

from nodevitals.probe import ProbeError
from nodevitals.probes.services.bus import Bus


def connect(bus: str, private: str, seconds: float) -> Bus:
    """A connection by the first way that answers. Raises ProbeError: that of the bus, where neither
    does.
    """
    now = time.monotonic()
    second = os.geteuid() == 0 and os.path.exists(private)
    try:
        return Bus(bus, now + (seconds / 2 if second else seconds), direct=False)
    except ProbeError as error:
        if not second:
            raise
        first = error
    try:
        return Bus(private, now + seconds, direct=True)
    except ProbeError:
        raise first from None
