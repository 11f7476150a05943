"""Executes the commands of repairs, each once, and records how they end.

In: repairs. Out: programs with a deadline and a bounded output, and changes of the repairs. They
end with the hub.
"""

from __future__ import annotations

import asyncio
import logging

from nodevitals.checks import processes
from nodevitals_hub.repair import repair_acts as acts
from nodevitals_hub.repair.repair_book import RepairBook
from nodevitals_hub.repair.repair_records import Repair

LOST = "the hub ended while it ran: it is not started again"
LATE = "not started within its time"

log = logging.getLogger(__name__)


class Commands:
    """Those of one hub."""

    def __init__(self, book: RepairBook) -> None:
        self._book = book
        self._running: dict[str, asyncio.Task[processes.Ended]] = {}

    async def start(self, repair: Repair, now: float) -> None:
        """Start one that was decided. Raises StoreError."""
        after = await self._book.change(repair, acts.began, "", now)
        if after.state == "started":  # written first: a killed hub cannot know whether it ran
            running = processes.run(after.command, after.timeout)
            self._running[after.id] = asyncio.ensure_future(running)

    async def watch(self, repair: Repair, now: float) -> None:
        """Record the end of one. Raises StoreError."""
        if repair.state == "wanted":
            if repair.lasted >= repair.timeout:
                await self._book.change(repair, acts.over, "canceled", LATE, now)
            return
        task = self._running.get(repair.id)
        if task is None:
            await self._book.change(repair, acts.over, "unknown", LOST, now)
        elif task.done():
            try:
                state, text = acts.of_command(task.result(), repair.timeout)
            except Exception as error:  # of this hub: the command may have done its work
                log.exception("repair %s", repair.id)
                state, text = "unknown", f"{type(error).__name__} in the hub: see its log"
            await self._book.change(repair, acts.over, state, text, now)
            del self._running[repair.id]

    async def close(self) -> None:
        """End those that run."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
