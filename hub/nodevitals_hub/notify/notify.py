"""Notifications: from Alertmanager's messages to the channels of people.

In: the inbox (receiver.py), settings. Out: deliveries, which outbox.py sends. A message and what
was made of it change in one transaction: a kill loses no notification and queues none twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nodevitals.checks.deadlines import within
from nodevitals_hub import families
from nodevitals_hub.alerting import setting_aside
from nodevitals_hub.alerting.receiver import Receiver
from nodevitals_hub.incidents import delivery_links, signed_links
from nodevitals_hub.incidents.incidents import Incidents
from nodevitals_hub.notify.channels.channels import Channel
from nodevitals_hub.notify.outbox import Digest, Sender, Texts
from nodevitals_hub.notify.routing import channels_for
from nodevitals_hub.notify.texts.rendering import Room, Text, digest, fitted, fitting, render
from nodevitals_hub.records import Alert, Delivery, Received
from nodevitals_hub.settings.notification_routes import zone_of
from nodevitals_hub.settings.response import ChannelSettings
from nodevitals_hub.store import delivery_tables, inbox_tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.triggers.alert_plan import node_of

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub

READER = "notify"
LOOK_SECONDS = 5.0
HOUSEKEEPING_SECONDS = 60.0

log = logging.getLogger(__name__)


class Notifier:
    """All notifications of one hub."""

    def __init__(self, hub: Hub, receiver: Receiver, incidents: Incidents) -> None:
        self._hub, self._receiver, self._incidents = hub, receiver, incidents
        self.counts: Counter[tuple[str, str]] = Counter()
        """Since the start, by channel and outcome: sent, failed (attempts), dropped, superseded."""
        self.waiting: list[delivery_tables.Waiting] = []
        """What waited when it was looked at last."""
        self._last_care = 0.0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="texts")
        self._senders: dict[str, Sender] = {}
        self._tasks: dict[str, tuple[ChannelSettings, asyncio.Task[None]]] = {}
        self._channels: dict[str, tuple[ChannelSettings, Channel]] = {}

    async def run(self) -> None:
        """Read the inbox, and keep one sender per channel; nothing where no channel is set."""
        while not self._hub.settings.notify.channels:
            await asyncio.sleep(LOOK_SECONDS)
        await self._incidents.read_link_key()
        arrived = self._receiver.arrived[READER]
        try:
            while True:
                arrived.clear()
                self._keep_senders()
                # Logged by the database. The senders go on: one that cannot note what it has sent
                # would send it again.
                with suppress(StoreError):
                    await self._round()
                try:
                    await within(arrived.wait(), LOOK_SECONDS)
                except TimeoutError:
                    continue
        finally:
            tasks = [task for _, task in self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _round(self) -> None:
        """Take what has come, and keep house. Raises StoreError."""
        database = self._hub.database
        while await setting_aside.read(database, READER, self._read_one):
            pass
        if time.monotonic() - self._last_care >= HOUSEKEEPING_SECONDS:
            await self._keep_house()
            self._last_care = time.monotonic()
        self.waiting = await database.do(delivery_tables.waiting)

    async def _read_one(self) -> bool:
        """Make deliveries of the oldest message; False where none waits."""
        database, channels = (
            self._hub.database,
            self._hub.settings.notify.channels,
        )

        def read(connection: sqlite3.Connection) -> tuple[Received | None, dict[str, Delivery]]:
            received = inbox_tables.oldest(connection, READER)
            thread = _thread(received.message.group_key) if received else ""
            found = {one: delivery_tables.newest_of(connection, one, thread) for one in channels}
            return received, {name: one for name, one in found.items() if one is not None}

        received, undelivered = await database.do(read)
        if received is None:
            return False
        # Threads of asyncio may wait for a name server.
        made = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._deliveries, received, undelivered, time.time()
        )

        def store(connection: sqlite3.Connection) -> None:
            delivery_tables.write(connection, made)
            inbox_tables.remove(connection, received.number)

        await database.do(store)
        for channel in {one.channel for one in made}:
            if channel in self._senders:
                self._senders[channel].queued.set()
        return True

    def _deliveries(
        self, received: Received, undelivered: Mapping[str, Delivery], now: float
    ) -> list[Delivery]:
        """What a message makes of itself: one delivery per channel, with what an earlier one of its
        group has not delivered there.
        """
        hub = self._hub
        settings, message = hub.settings.notify, received.message
        members = {member.name: member for member in hub.checks.members()}

        def pool_of(alert: Alert) -> str:
            node = node_of(alert.labels, members)
            own = members[node].labels.get("pool", "") if node else ""
            return alert.labels.get("pool") or own

        found = []
        for name, alerts in channels_for(message, settings, pool_of, received.time).items():
            if name not in settings.channels:
                continue  # the settings were replaced meanwhile
            older = undelivered.get(name)
            alerts = _merged(older.alerts if older else (), alerts)
            place = delivery_links.place_of(hub, alerts)
            text = self._text(name, settings.channels[name], alerts, place.address)
            found.append(
                Delivery(
                    id=f"{received.number}-{name}",
                    channel=name,
                    created=received.time,
                    title=text.title,
                    text=text.body,
                    severity=_worst(alerts),
                    thread=_thread(message.group_key),
                    resolved=all(one.status == "resolved" for one in alerts),
                    incident_key=place.key if hub.settings.external_url else "",
                    next_try=now,
                    alerts=alerts,
                    says=_says(alerts),
                    since=(older.since or older.created) if older else None,
                )
            )
        return found

    def _text(
        self, name: str, channel: ChannelSettings, alerts: Sequence[Alert], incident: str
    ) -> Text:
        settings = self._hub.settings

        def made(max_bytes: int) -> Text:
            return render(
                alerts,
                cluster=settings.cluster,
                language=channel.language or settings.notify.language,
                external_url=settings.external_url,
                incident=incident,
                max_bytes=max_bytes - (signed_links.GROWTH_BYTES if incident else 0),
                zone=zone_of(settings.notify.time_zone),
            )

        # What is sent has a longer link.
        return fitted(
            made,
            lambda text: Text(text.title, signed_links.longest(text.body)),
            self.room_of(name, channel),
        )

    def room_of(self, name: str, settings: ChannelSettings) -> Room:
        """What a channel takes, with settings that may have been replaced since."""
        return self._channel_of(name, settings).room

    def wake(self) -> None:
        """Something was stored by another module."""
        for sender in self._senders.values():
            sender.queued.set()

    def _channel_of(self, name: str, settings: ChannelSettings) -> Channel:
        """The channel with these settings."""
        kept = self._channels.get(name)
        if kept is None or kept[0] != settings:
            kept = self._channels[name] = settings, Channel(name, settings)
        return kept[1]

    def _digest_of(
        self, name: str, channel: ChannelSettings
    ) -> Callable[[Sequence[Delivery]], Digest]:
        def made(deliveries: Sequence[Delivery]) -> Digest:
            settings = self._hub.settings
            how = settings.cluster, channel.language or settings.notify.language
            texts = [Text(one.title, one.text) for one in deliveries]

            def of_bytes(max_bytes: int) -> Digest:
                named = fitting(texts, *how, max_bytes)
                if named < 2:
                    return Digest(texts[0], 1)
                return Digest(digest(texts[:named], *how, max_bytes), named)

            return fitted(of_bytes, lambda found: found.text, self.room_of(name, channel))

        return made

    async def _linked(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await delivery_links.linked(self._hub.database, self._incidents, deliveries)

    def _keep_senders(self) -> None:
        """One sender per channel of the settings as they are now; one that failed starts again."""
        channels = self._hub.settings.notify.channels
        for name, (settings, task) in list(self._tasks.items()):
            if channels.get(name) != settings:
                task.cancel()
            elif task.done() and not task.cancelled() and task.exception() is not None:
                log.error("channel %s: %s; started again", name, task.exception())
            if task.done() or channels.get(name) != settings:
                del self._tasks[name], self._senders[name]
        for name, settings in channels.items():
            if name not in self._tasks:
                sender = self._senders[name] = Sender(
                    name,
                    settings,
                    self._channel_of(name, settings),
                    self._hub.database,
                    Texts(self._linked, self._digest_of(name, settings)),
                    self.counts,
                    lambda: self._hub.settings.notify.same_within,
                )
                self._tasks[name] = settings, asyncio.ensure_future(sender.run())

    async def _keep_house(self) -> None:
        """Drop what could not be delivered for too long; forget what nothing needs."""
        settings, now = self._hub.settings.notify, time.time()

        def work(connection: sqlite3.Connection) -> list[Delivery]:
            old = delivery_tables.too_old(connection, now - settings.give_up_after)
            dropped = [replace(one, state="dropped", ended=now, alerts=()) for one in old]
            delivery_tables.write(connection, dropped)
            delivery_tables.prune(connection, now)
            inbox_tables.forget(connection, now)
            return dropped

        for one in await self._hub.database.do(work):
            self.counts[one.channel, "dropped"] += 1
            log.error("channel %s: dropped %r: %s", one.channel, one.title, one.error)

    def samples(self) -> Iterator[tuple[Any, tuple[str, ...], float]]:
        """What /metrics shows; nothing where no channel is set."""
        if not self._hub.settings.notify.channels:
            return
        waiting = {one.channel: one for one in self.waiting}
        for name in self._hub.settings.notify.channels:
            for outcome in families.NOTIFICATION_OUTCOMES:
                count = self.counts[name, outcome]
                yield families.NOTIFICATIONS, (name, outcome), count
            yield (
                families.NOTIFICATIONS_WAITING,
                (name,),
                (waiting[name].number if name in waiting else 0),
            )
            if name in waiting:
                yield families.NOTIFICATIONS_OLDEST, (name,), waiting[name].oldest
        for outcome in ("accepted", "repeated", "refused"):
            yield families.MESSAGES, (outcome,), self._receiver.counts[outcome]


def _thread(group_key: str) -> str:
    """The same for all notifications about a group."""
    return sha256(group_key.encode()).hexdigest()[:32]


def _merged(older: Sequence[Alert], newer: Sequence[Alert]) -> tuple[Alert, ...]:
    """The newer alerts, and those of the older ones that they do not mention: Alertmanager sends an
    end once.
    """
    found = {one.fingerprint: one for one in older} | {one.fingerprint: one for one in newer}
    return tuple(found.values())


def _says(alerts: Sequence[Alert]) -> str:
    """The same for the same alerts in the same states."""
    states = sorted(
        (one.fingerprint, one.status, one.starts_at if one.status == "firing" else "")
        for one in alerts
    )
    return sha256(msgspec.json.encode(states)).hexdigest()[:32]


def _worst(alerts: Sequence[Alert]) -> str:
    found = {one.labels.get("severity", "") for one in alerts if one.status == "firing"}
    return next((one for one in ("critical", "warning", "info") if one in found), "")
