"""A message that cannot be processed holds up no other."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from nodevitals_hub.alerting import setting_aside
from nodevitals_hub.store import inbox_tables
from nodevitals_hub.store.response_database import Database


def test_what_cannot_be_read_or_decoded_is_set_aside(tmp_path: Path) -> None:
    async def main() -> list[int]:
        database = Database(str(tmp_path))
        read: list[int] = []

        def fill(connection: sqlite3.Connection) -> None:
            for body in (b"{", GOOD, GOOD):
                connection.execute(
                    "INSERT INTO inbox (time, reader, message) VALUES (0, 'notify', ?)", (body,)
                )

        def step(connection: sqlite3.Connection) -> bool:
            found = inbox_tables.oldest(connection, "notify")
            if found is None:
                return False
            if found.number == 2:
                raise KeyError("poison")
            read.append(found.number)
            inbox_tables.remove(connection, found.number)
            return True

        await database.do(fill)
        while await setting_aside.read(database, "notify", lambda: database.do(step)):
            pass
        assert await database.do(inbox_tables.waiting) == 0
        await database.close()
        return read

    assert asyncio.run(main()) == [3]


GOOD = b'{"version": "4", "receiver": "r", "status": "firing", "groupKey": "g", "alerts": []}'
