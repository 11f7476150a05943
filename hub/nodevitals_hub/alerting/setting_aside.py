"""Sets aside a message that its reader cannot process, so that it does not block later messages.

In: one step of a reader. Out: its result; after TRIES failures the oldest message is set aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nodevitals_hub.store import inbox_tables
from nodevitals_hub.store.check_store import StoreError

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.store.response_database import Database

TRIES = 3
PAUSE_SECONDS = 1.0


async def read(database: Database, reader: str, read_one: Callable[[], Awaitable[bool]]) -> bool:
    """Read one message; False where none waits. Raises StoreError."""
    reason = ""
    for attempt in range(TRIES):
        await asyncio.sleep(attempt * PAUSE_SECONDS)  # a short failure must not lose a message
        try:
            return await read_one()
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - its text may contain parts of the message
            reason = f"cannot be processed after {TRIES} tries, {type(error).__name__}"

    def work(connection: sqlite3.Connection) -> None:
        received = inbox_tables.oldest(connection, reader)
        if received is not None:
            inbox_tables.set_aside(connection, received.number, reason)

    await database.do(work)
    return True
