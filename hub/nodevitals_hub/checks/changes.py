"""Changes of checks, for any number of readers.

A slow reader gets only the last state of each changed check, so its queue is bounded by the number
of checks.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

from nodevitals.checks.model import Check


class Reader(AsyncIterator[Check]):
    """The changes since it was made; never ends."""

    def __init__(self) -> None:
        self._waiting: dict[str, Check] = {}
        self._some = asyncio.Event()

    def put(self, check: Check) -> None:
        """Add a change."""
        self._waiting.pop(check.id, None)
        self._waiting[check.id] = check
        self._some.set()

    async def __anext__(self) -> Check:
        while not self._waiting:
            self._some.clear()
            await self._some.wait()
        return self._waiting.pop(next(iter(self._waiting)))


class Changes:
    """Passes each change to all readers."""

    def __init__(self) -> None:
        self._readers: weakref.WeakSet[Reader] = weakref.WeakSet()

    def reader(self) -> Reader:
        """A new reader; it is held weakly, and gone when its user drops it."""
        reader = Reader()
        self._readers.add(reader)
        return reader

    def put(self, check: Check) -> None:
        """Pass a change to all readers."""
        for reader in list(self._readers):
            reader.put(check)
