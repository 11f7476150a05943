"""What is to be done for which resource: a bounded number at a time, each resource once at a time.

In: marks. Out: calls of the work, in the order of the marks. One that hangs delays no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

AT_A_TIME = 16


class Queue:
    """Marks of resources, by uid; one that is marked again while it is worked on comes again."""

    def __init__(self) -> None:
        self._marked: dict[str, None] = {}
        self._busy: dict[str, asyncio.Event] = {}
        self._some = asyncio.Event()

    def mark(self, uid: str) -> None:
        """There is something to do."""
        self._marked[uid] = None
        self._some.set()

    async def run(self, work: Callable[[str], Awaitable[None]]) -> None:
        """Do it, until cancelled, or until a work raises."""
        workers = [asyncio.ensure_future(self._worker(work)) for _ in range(AT_A_TIME)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def others(self, uid: str) -> None:
        """Wait for the end of what is worked on now, but this."""
        for ended in [ended for other, ended in self._busy.items() if other != uid]:
            await ended.wait()

    async def _worker(self, work: Callable[[str], Awaitable[None]]) -> None:
        while True:
            uid = await self._next()
            ended = self._busy[uid] = asyncio.Event()
            try:
                await work(uid)
            finally:
                del self._busy[uid]
                ended.set()
                self._some.set()

    async def _next(self) -> str:
        while True:
            for uid in self._marked:
                if uid not in self._busy:
                    del self._marked[uid]
                    return uid
            self._some.clear()
            await self._some.wait()
