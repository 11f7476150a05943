"""Changes of checks, for any number of readers.

A slow reader gets the last state of each check that changed, not each state: what waits for it is
bounded by the number of checks.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

from nodevitals.checks.model import Check


class Reader(AsyncIterator[Check]):
    """The changes since it was made; ends never."""

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
        """A new reader; it is forgotten when its user drops it."""
        reader = Reader()
        self._readers.add(reader)
        return reader

    def put(self, check: Check) -> None:
        """Pass on a change."""
        for reader in list(self._readers):
            reader.put(check)
