"""The overviews of the checks that were looked at last.

In: checks. Out: what their pages show of the results. The results of a check change only with its
phase and its number of runs: those of 10,000 nodes are not read and compared for each view.
"""

from __future__ import annotations

import asyncio

from nodevitals.checks.model import Check
from nodevitals_hub.checks import Checks
from nodevitals_hub.web.heatmap import Overview, overview

MOST = 32


class Overviews:
    """Up to MOST overviews."""

    def __init__(self, checks: Checks) -> None:
        self._checks = checks
        self._known: dict[str, tuple[tuple[str, int], Overview]] = {}

    async def of(self, check: Check) -> Overview:
        """That of a check. Raises RefusedError."""
        state, known = (check.phase, check.runs_done), self._known.pop(check.id, None)
        if known is None or known[0] != state:
            detail = await self._checks.get(check.id)
            known = (state, await asyncio.to_thread(overview, detail))
        self._known[check.id] = known
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return known[1]
