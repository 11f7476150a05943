"""When the snapshot is published: soon after a change, and not too often."""

from __future__ import annotations

import math
import time

from nodevitals.exposition import Snapshot

# What arrives within this time is published together: a run's result and the write of its counts,
# and the results of other targets. A publication joins and compresses everything, so that there is
# one per four seconds at most, unless results come more often than that.
PUBLISH_SECONDS = 0.1
LONGEST_SECONDS = 4.0
INTERVAL_SHARE = 4 / 15
# Of the loop's time at most: with thousands of targets, to publish takes a tenth of a second.
PUBLISH_SHARE = 0.1


class Publisher:
    """Publishes one snapshot. Used by the supervisor's thread alone."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._took_seconds = 0.0
        self._wanted = math.inf
        self._allowed = 0.0
        self.wake = math.inf
        """When `publish` is due next, once something has changed."""

    def expect(self, now: float, interval_seconds: float) -> None:
        """A result has come of a target with this interval: publish within a share of that."""
        wait = min(max(PUBLISH_SECONDS, interval_seconds * INTERVAL_SHARE), LONGEST_SECONDS)
        self._wanted = min(self._wanted, now + wait)

    def publish(self, now: float, eager: bool) -> bool:
        """Publish where it is due; `eager`: without waiting for what may arrive with it. Whether
        it was due.
        """
        if not self._snapshot.changed:
            return False
        if self.wake == math.inf:
            self._allowed = now + self._took_seconds / PUBLISH_SHARE
            self._wanted = min(self._wanted, now + LONGEST_SECONDS)
        self.wake = self._allowed if eager else max(self._allowed, self._wanted)
        if now < self.wake:
            return False
        self.wake = self._wanted = math.inf
        started = time.thread_time()
        self._snapshot.publish(now)
        self._took_seconds = time.thread_time() - started
        return True
