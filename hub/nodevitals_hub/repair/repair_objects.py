"""Creates the objects of repairs once, and looks what became of them.

In: repairs, objects. Out: requests to the API server, and changes of the repairs. A failure that
may pass is written and tried again; an object that exists already is ours if it carries the id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nodevitals_hub.repair import repair_acts as acts
from nodevitals_hub.repair.repair_api import RepairApi
from nodevitals_hub.repair.repair_book import RepairBook
from nodevitals_hub.repair.repair_records import ApiRefusal, Repair, is_of, uid_of

AT_A_TIME = 8
CONFLICT = 409
FINAL = (400, 405, 413, 415, 422)
"""The object itself is refused: the same request has the same answer."""
DELETED = "deleted before its end was seen"
REPLACED = "another object has its name now"
UNSEEN_FACTOR = 2
"""An object that cannot be read is given up after its timeout, so many times."""
FOREIGN = "an object of its name is there, and is not of this repair: remove it, or change the name"


class Objects:
    """Those of one hub."""

    def __init__(self, book: RepairBook) -> None:
        self._book = book
        self._api: RepairApi | None = None
        self.is_away = False
        """Whether there was no answer to the last request that creates or looks for an object."""

    async def close(self) -> None:
        """Close the connections."""
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def create(self, repair: Repair, document: Mapping[str, Any], now: float) -> None:
        """Create an object, or find that it was created. Raises StoreError."""
        assert repair.target is not None
        self.is_away = False
        try:
            uid = await self._client().create(repair.target, dict(document))
        except ApiRefusal as refusal:
            if refusal.code == CONFLICT:
                await self.is_there(repair, now)
            elif refusal.code in FINAL:
                await self._book.change(repair, acts.over, "failed", str(refusal), now)
            else:
                self.is_away = refusal.code == 0
                await self._book.change(repair, acts.noted, f"{refusal}; tried again")
        else:
            await self._book.change(repair, acts.began, uid, now)

    async def is_there(self, repair: Repair, now: float) -> bool | None:
        """Whether the object of one that was decided is there: then it runs, or it is not ours and
        the repair has failed. None where it is not known. Raises StoreError.
        """
        assert repair.target is not None
        self.is_away = False
        try:
            found = await self._client().get(repair.target)
        except ApiRefusal as refusal:
            self.is_away = refusal.code == 0
            await self._book.change(repair, acts.noted, f"{refusal}; tried again")
            return None
        if found is None:
            return False
        return await self._taken(repair, found, now)

    async def watch(self, repairs: Sequence[Repair], now: float) -> None:
        """Look at those that run. Raises StoreError."""
        due = [one for one in repairs if one.state == "started" or one.lasted >= one.timeout]
        for first in range(0, len(due), AT_A_TIME):
            some = due[first : first + AT_A_TIME]
            if not all(await asyncio.gather(*(self._look(one, now) for one in some))):
                return  # the others would wait as long

    async def _look(self, repair: Repair, now: float) -> bool:
        """Look at one. False where there was no answer."""
        assert repair.target is not None
        try:
            found = await self._client().get(repair.target)
        except ApiRefusal as refusal:
            if repair.lasted >= UNSEEN_FACTOR * repair.timeout:
                await self._book.change(repair, acts.over, "unknown", str(refusal), now)
            else:
                await self._book.change(repair, acts.noted, f"{refusal}; tried again")
            return refusal.code != 0
        if repair.state == "wanted":
            if found is not None:
                return await self._taken(repair, found, now)
            text = f"not started within {repair.timeout:g} s: {repair.text}"
            await self._book.change(repair, acts.over, "failed", text, now)
        elif found is None and repair.removing:
            await self._book.change(repair, acts.over, "succeeded", repair.removing, now)
        elif found is None:
            await self._book.change(repair, acts.over, "unknown", DELETED, now)
        elif uid_of(found) != repair.target.uid:
            await self._book.change(repair, acts.over, "unknown", REPLACED, now)
        else:
            return await self._judge(repair, found, now)
        return True

    async def _judge(self, repair: Repair, found: Mapping[str, Any], now: float) -> bool:
        """What the object of one that runs says. False where there was no answer."""
        outcome = acts.of_object(found)
        if outcome is None and repair.lasted >= repair.timeout:
            text = f"not ended within {repair.timeout:g} s; it may still run"
            outcome = "timed_out", text
        if outcome is None:
            await self._book.change(repair, acts.noted, "")
        elif outcome[0] == "succeeded" and repair.remove:
            return await self._remove(repair, outcome[1], now)
        else:
            await self._book.change(repair, acts.over, *outcome, now)
        return True

    async def _remove(self, repair: Repair, text: str, now: float) -> bool:
        """Delete an object that has succeeded; it is written first. False without an answer."""
        assert repair.target is not None
        await self._book.change(repair, acts.removing, text)
        try:
            await self._client().delete(repair.target)
        except ApiRefusal as refusal:
            if repair.lasted < UNSEEN_FACTOR * repair.timeout:
                await self._book.change(repair, acts.noted, f"{text}; {refusal}; tried again")
                return refusal.code != 0
            text = f"{text}; not deleted: {refusal}"
        await self._book.change(repair, acts.over, "succeeded", text, now)
        return True

    async def _taken(self, repair: Repair, found: Mapping[str, Any], now: float) -> bool:
        """The object of one that was decided is there: it runs, if it is ours."""
        if is_of(found, repair.id):
            await self._book.change(repair, acts.began, uid_of(found), now)
        else:
            await self._book.change(repair, acts.over, "failed", FOREIGN, now)
        return True

    def _client(self) -> RepairApi:
        """Raises ApiRefusal for an unusable configuration."""
        if self._api is None:
            self._api = RepairApi()
        return self._api
