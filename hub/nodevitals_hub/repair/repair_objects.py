"""Creates the objects of repairs once, and follows them.

In: repairs, objects. Out: requests to the API server, and changes of the repairs. After a temporary
failure, which is noted, a request is tried again. An existing object is ours if it has the id.
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
    """The objects that one hub has created."""

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
        """Create an object, unless it was created before. Raises StoreError."""
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
        """Whether the object of a repair that is to start exists: then the repair runs, or, where
        the object is not ours, has failed. None where that is unknown. Raises StoreError.
        """
        assert repair.target is not None
        self.is_away = False
        try:
            document = await self._client().get(repair.target)
        except ApiRefusal as refusal:
            self.is_away = refusal.code == 0
            await self._book.change(repair, acts.noted, f"{refusal}; tried again")
            return None
        if document is None:
            return False
        return await self._taken(repair, document, now)

    async def watch(self, repairs: Sequence[Repair], now: float) -> None:
        """Update the running repairs. Raises StoreError."""
        due = [
            repair
            for repair in repairs
            if repair.state == "started" or repair.lasted >= repair.timeout
        ]
        for first in range(0, len(due), AT_A_TIME):
            some = due[first : first + AT_A_TIME]
            if not all(await asyncio.gather(*(self._look(repair, now) for repair in some))):
                return  # requests for the others would time out too

    async def _look(self, repair: Repair, now: float) -> bool:
        """Update one repair. False where there was no answer."""
        assert repair.target is not None
        try:
            document = await self._client().get(repair.target)
        except ApiRefusal as refusal:
            if repair.lasted >= UNSEEN_FACTOR * repair.timeout:
                await self._book.change(repair, acts.over, "unknown", str(refusal), now)
            else:
                await self._book.change(repair, acts.noted, f"{refusal}; tried again")
            return refusal.code != 0
        if repair.state == "wanted":
            if document is not None:
                return await self._taken(repair, document, now)
            text = f"not started within {repair.timeout:g} s: {repair.text}"
            await self._book.change(repair, acts.over, "failed", text, now)
        elif document is None and repair.removing:
            await self._book.change(repair, acts.over, "succeeded", repair.removing, now)
        elif document is None:
            await self._book.change(repair, acts.over, "unknown", DELETED, now)
        elif uid_of(document) != repair.target.uid:
            await self._book.change(repair, acts.over, "unknown", REPLACED, now)
        else:
            return await self._judge(repair, document, now)
        return True

    async def _judge(self, repair: Repair, document: Mapping[str, Any], now: float) -> bool:
        """Update a running repair by its object. False where there was no answer."""
        outcome = acts.of_object(document)
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
        """Record the success, then delete the object. False where there was no answer."""
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

    async def _taken(self, repair: Repair, document: Mapping[str, Any], now: float) -> bool:
        """Handle an existing object of a repair that is to start: the repair runs if it is ours."""
        if is_of(document, repair.id):
            await self._book.change(repair, acts.began, uid_of(document), now)
        else:
            await self._book.change(repair, acts.over, "failed", FOREIGN, now)
        return True

    def _client(self) -> RepairApi:
        """Raises ApiRefusal for an unusable configuration."""
        if self._api is None:
            self._api = RepairApi()
        return self._api
