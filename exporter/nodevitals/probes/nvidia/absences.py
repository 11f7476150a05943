"""What a device does not have, as far as it said: learned, and asked again.

A call that a device does not support costs time in every run; one that only failed to say so must
not stay away until the worker ends. So what was absent is asked again after 1, 2, 4 … 64 runs.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

_LONGEST_WAIT_RUNS = 64


class _Absence(NamedTuple):
    """How many runs to wait, and the run in which to ask again."""

    wait_runs: int
    again: int


class Absences:
    """The absent things of one device, by any key."""

    def __init__(self) -> None:
        self._run = 0
        self._known: dict[Hashable, _Absence] = {}

    def start_run(self) -> None:
        """Count one run."""
        self._run += 1

    def asks(self, key: Hashable) -> bool:
        """Whether to ask for this thing in this run."""
        known = self._known.get(key)
        return known is None or known.again <= self._run

    def has(self, key: Hashable) -> bool:
        """Whether a thing was absent when it was last asked for."""
        return key in self._known

    def learn(self, key: Hashable, absent: bool) -> None:
        """Record whether a thing that was asked for is absent."""
        if not absent:
            self._known.pop(key, None)
            return
        before = self._known.get(key)
        wait_runs = min(2 * before.wait_runs, _LONGEST_WAIT_RUNS) if before else 1
        self._known[key] = _Absence(wait_runs, self._run + wait_runs)
