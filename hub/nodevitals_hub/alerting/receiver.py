"""Alertmanager's webhook: stores a message, once per reader, before it acknowledges it.

In: messages (webhook, version 4). Out: rows of the inbox. A message that was received before is
acknowledged and not stored again, also after a restart and from another Alertmanager of a cluster.
A message that cannot be stored is refused with HTTP 503: Alertmanager sends it again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, post
from litestar.exceptions import ClientException

from nodevitals_hub.checks.check_requests import RefusedError
from nodevitals_hub.records import Alert, Message
from nodevitals_hub.settings.response import NotifySettings
from nodevitals_hub.store import delivery_tables, inbox_tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.web.limits import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

PATH = "/api/v1/notifications"
READERS = ("notify", "incidents", "owners")
MAX_LABEL_CHARACTERS = 4096
MAX_FIELD_CHARACTERS = 64 << 10
"""Limit for a URL, a time, or the name of a group."""
MAX_CLUSTERS = 1000
WATCHDOG = "Watchdog"


class Receiver:
    """Stores messages, and wakes their readers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.counts: Counter[str] = Counter()
        """Messages since the start by outcome: accepted, repeated, refused."""
        self.arrived = {reader: asyncio.Event() for reader in READERS}
        """Set when a message was stored for a reader."""
        self.beats: dict[str, float] = {}
        """Time of the last Watchdog by cluster, by the monotonic clock."""

    async def take(self, message: Message, now: float | None = None) -> bool:
        """Store a message; False where it is a repetition. Raises RefusedError."""
        now = time.time() if now is None else now
        settings = self._hub.settings.notify
        beats = [alert for alert in message.alerts if alert.labels.get("alertname") == WATCHDOG]
        if beats:
            self._take_beats(beats)
            if len(beats) == len(message.alerts):
                self.counts["accepted"] += 1
                return True

        readers = readers_of(settings)

        def store(connection: sqlite3.Connection) -> bool | None:
            queued = inbox_tables.waiting(connection)
            queued += sum(waiting.number for waiting in delivery_tables.waiting(connection))
            if queued >= settings.max_queued:
                return None
            return inbox_tables.add(connection, message, readers, now, settings.same_within)

        try:
            stored = await self._hub.database.do(store)
        except StoreError as error:
            self.counts["refused"] += 1
            raise RefusedError("unavailable", str(error)) from None
        if stored is None:
            self.counts["refused"] += 1
            text = f"{settings.max_queued} messages and notifications wait (notify.max_queued)"
            raise RefusedError("unavailable", f"{text}; send it again later")
        self.counts["accepted" if stored else "repeated"] += 1
        if stored:
            for event in self.arrived.values():
                event.set()
        return stored

    def _take_beats(self, beats: Sequence[Alert]) -> None:
        for alert in beats:
            if alert.status == "firing":
                cluster = alert.labels.get("cluster") or self._hub.settings.cluster
                if cluster in self.beats or len(self.beats) < MAX_CLUSTERS:
                    self.beats[cluster] = time.monotonic()


def readers_of(settings: NotifySettings) -> list[str]:
    """The readers that need messages, by the settings."""
    reads = {"notify": settings.channels, "owners": settings.owners and settings.channels}
    return [reader for reader in READERS if reads.get(reader, True)]


def decode(body: bytes) -> Message:
    """The message in a body. Raises ValueError with one line."""
    try:
        message = msgspec.json.decode(body, type=Message)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = "nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"not a message of Alertmanager's webhook, version 4: {text}") from None
    long = {"groupKey": message.group_key, "receiver": message.receiver}
    for alert in message.alerts:
        long |= {"startsAt": alert.starts_at, "endsAt": alert.ends_at}
        long["generatorURL"] = alert.generator_url
        for name, value in long.items():
            if len(value) > MAX_FIELD_CHARACTERS:
                raise ValueError(f"{name}: longer than {MAX_FIELD_CHARACTERS} characters")
        for texts in (alert.labels, alert.annotations):
            for name, value in texts.items():
                if len(name) + len(value) > MAX_LABEL_CHARACTERS:
                    where = f"{alert.fingerprint}: {name[:40]}"
                    raise ValueError(f"{where}: longer than {MAX_LABEL_CHARACTERS} characters")
    return message


def handlers(receiver: Receiver) -> list[Any]:
    """The webhook."""

    @post(PATH, status_code=200, request_max_body_size=MAX_MESSAGE_BYTES)
    async def take(request: Request[Any, Any, Any]) -> dict[str, bool]:
        """Take a message of Alertmanager (webhook, version 4) for people and incidents."""
        try:
            message = decode(await request.body())
        except ValueError as error:
            raise ClientException(str(error)) from None
        return {"new": await receiver.take(message)}

    return [take]
