"""What training jobs do to the nodes that they run on, all nodes of a job alike.

A job has 16 nodes. It stages its data to the scratch disks, trains for hours at full load, writes
a checkpoint every 20 minutes, fails now and then on all ranks, and makes room for the next.
"""

from __future__ import annotations

import msgspec

JOB_NODES = 16
CYCLE_SECONDS = 4 * 3600
STAGING_SECONDS = 480
FAILURE_SECONDS = 5700
RESTART_SECONDS = 180
END_SECONDS = CYCLE_SECONDS - 420
CHECKPOINT_EVERY_SECONDS = 1200
CHECKPOINT_SECONDS = 90
# Jobs do not start together: the next begins so much later.
SHIFT_SECONDS = 2400


class Load(msgspec.Struct, frozen=True):
    """The load of a node at one time; `scratch_free` is a share of the disk."""

    cpu: float
    memory: float
    scratch_free: float
    checkpoint: bool = False


class Jobs:
    """The jobs on one group of nodes, one after the other."""

    def __init__(self, node: int) -> None:
        self._group = node // JOB_NODES
        self._rank = node % JOB_NODES

    def load(self, at: float) -> Load:
        """Return the load at a time in seconds."""
        phase = self._phase(at)
        if phase >= END_SECONDS:
            return Load(0.05, 0.2, 0.9)
        if phase < STAGING_SECONDS:
            return Load(0.5, 0.4, 0.9 - 0.78 * phase / STAGING_SECONDS)
        if FAILURE_SECONDS <= phase < FAILURE_SECONDS + RESTART_SECONDS:
            return Load(0.05, 0.2, 0.12)
        training = phase - STAGING_SECONDS
        saves = training % CHECKPOINT_EVERY_SECONDS > CHECKPOINT_EVERY_SECONDS - CHECKPOINT_SECONDS
        return Load(0.97, 0.85, 0.12, saves)

    def failures(self, seconds: float) -> list[float]:
        """Return when jobs fail, until `seconds`."""
        step = 15
        return [
            float(at)
            for at in range(step, int(seconds), step)
            if self._phase(at - step) < FAILURE_SECONDS <= self._phase(at)
        ]

    @property
    def xid(self) -> int:
        """What this node's rank logs when the job fails."""
        if self._rank == 0:
            return 31 if self._group % 2 else 13
        return 43 if self._rank % 2 else 45

    def _phase(self, at: float) -> float:
        return (at + self._group * SHIFT_SECONDS) % CYCLE_SECONDS
