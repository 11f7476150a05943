"""When the snapshot is published: soon after a change, and not too often."""

from __future__ import annotations

import math
import time

from nodevitals.exposition import Snapshot

# What arrives within this time is published together: a run's result and the write of its counts.
PUBLISH_SECONDS = 0.1
# Of the loop's time at most: with thousands of targets, to publish takes a tenth of a second.
PUBLISH_SHARE = 0.1


class Publisher:
    """Publishes one snapshot. Used by the supervisor's thread alone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._took_seconds = 0.0
        self.wake = math.inf
        """When `publish` is due next, once something has changed."""

    def publish(self, now: float, eager: bool) -> bool:
        """Publish where it is due; `eager`: without waiting for what may arrive with it. Whether
        it was due.
        """
        if not self._snapshot.changed:
            return False
        if self.wake == math.inf:
            wait = self._took_seconds / PUBLISH_SHARE
            self.wake = now + (wait if eager else max(wait, PUBLISH_SECONDS))
        if now < self.wake:
            return False
        self.wake = math.inf
        started = time.thread_time()
        self._snapshot.publish(now)
        self._took_seconds = time.thread_time() - started
        return True
