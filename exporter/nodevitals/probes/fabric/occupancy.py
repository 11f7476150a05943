"""What occupies this node: at most one planned test, as source or target, or one order.

Nothing waits for it: what comes second is refused, so that two nodes cannot wait for each other.
"""

from __future__ import annotations

import threading

PLANNED = "a planned test"


class Occupancy:
    """One place, with the name of what has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = ""

    @property
    def holder(self) -> str:
        """What has the place; '' where it is free."""
        return self._holder

    def take(self, holder: str) -> bool:
        """Take the place; False where it is taken."""
        with self._lock:
            if self._holder:
                return False
            self._holder = holder
            return True

    def free(self, holder: str) -> None:
        """Free the place where this has it."""
        with self._lock:
            if self._holder == holder:
                self._holder = ""
