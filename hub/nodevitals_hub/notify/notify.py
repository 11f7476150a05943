"""Makes notifications for channels from Alertmanager's messages.

In: the inbox (receiver.py), settings. Out: deliveries, which outbox.py sends. One transaction
removes a message and stores its deliveries: a kill loses no notification and queues none twice.
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
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nodevitals.checks.deadlines import within
from nodevitals_hub import families
from nodevitals_hub.alerting import setting_aside
from nodevitals_hub.alerting.receiver import Receiver
from nodevitals_hub.checks.newest import Sample
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
        """The waiting deliveries by channel, as of the last round."""
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
                # The database logs the error. The senders keep running: a sender that has sent but
                # not yet recorded a message would send it again if it were stopped.
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
        """Read new messages; remove old records once a minute. Raises StoreError."""
        database = self._hub.database
        while await setting_aside.read(database, READER, self._read_one):
            pass
        if time.monotonic() - self._last_care >= HOUSEKEEPING_SECONDS:
            await self._keep_house()
            self._last_care = time.monotonic()
        self.waiting = await database.do(delivery_tables.waiting)

    async def _read_one(self) -> bool:
        """Make deliveries of the oldest message; False where none waits."""
        database, channels = self._hub.database, self._hub.settings.notify.channels

        def read(connection: sqlite3.Connection) -> tuple[Received | None, dict[str, Delivery]]:
            received = inbox_tables.oldest(connection, READER)
            thread = _thread(received.message.group_key) if received else ""
            newest = {
                name: delivery_tables.newest_of(connection, name, thread) for name in channels
            }
            return received, {
                name: delivery for name, delivery in newest.items() if delivery is not None
            }

        received, undelivered = await database.do(read)
        if received is None:
            return False
        # Not in a thread of asyncio: those may all wait for a name server.
        made = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._deliveries, received, undelivered, time.time()
        )

        def store(connection: sqlite3.Connection) -> None:
            delivery_tables.write(connection, made)
            inbox_tables.remove(connection, received.number)

        await database.do(store)
        for channel in {delivery.channel for delivery in made}:
            if channel in self._senders:
                self._senders[channel].queued.set()
        return True

    def _deliveries(
        self, received: Received, undelivered: Mapping[str, Delivery], now: float
    ) -> list[Delivery]:
        """One delivery per channel for a message, with the alerts that an earlier delivery of the
        same group has not delivered yet.
        """
        hub = self._hub
        settings, message = hub.settings.notify, received.message
        members = hub.members.by_name

        def pool_of(alert: Alert) -> str:
            node = node_of(alert.labels, members)
            own = members[node].labels.get("pool", "") if node else ""
            return alert.labels.get("pool") or own

        deliveries = []
        for name, alerts in channels_for(message, settings, pool_of, received.time).items():
            if name not in settings.channels:
                continue  # the settings were replaced meanwhile
            older = undelivered.get(name)
            alerts = _merged(older.alerts if older else (), alerts)
            place = delivery_links.place_of(hub, alerts)
            text = self._text(name, settings.channels[name], alerts, place.address)
            deliveries.append(
                Delivery(
                    id=f"{received.number}-{name}",
                    channel=name,
                    created=received.time,
                    title=text.title,
                    text=text.body,
                    severity=_worst(alerts),
                    thread=_thread(message.group_key),
                    resolved=all(alert.status == "resolved" for alert in alerts),
                    incident_key=place.key if hub.settings.external_url else "",
                    next_try=now,
                    alerts=alerts,
                    says=_says(alerts),
                    since=(older.since or older.created) if older else None,
                )
            )
        return deliveries

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

        # The text that is sent has a longer link.
        return fitted(
            made,
            lambda text: Text(text.title, signed_links.longest(text.body)),
            self.room_of(name, channel),
        )

    def room_of(self, name: str, settings: ChannelSettings) -> Room:
        """The size limit of a channel, by settings that may have been replaced since."""
        return self._channel_of(name, settings).room

    def wake(self) -> None:
        """Notify all senders that another module has stored a delivery."""
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
            texts = [Text(delivery.title, delivery.text) for delivery in deliveries]

            def of_bytes(max_bytes: int) -> Digest:
                named = fitting(texts, *how, max_bytes)
                if named < 2:
                    return Digest(texts[0], 1)
                return Digest(digest(texts[:named], *how, max_bytes), named)

            return fitted(of_bytes, lambda message: message.text, self.room_of(name, channel))

        return made

    async def _linked(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        return await delivery_links.linked(self._hub.database, self._incidents, deliveries)

    def _keep_senders(self) -> None:
        """Keep one sender per channel of the current settings; restart one that failed."""
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
        """Drop deliveries that failed for too long; remove old records."""
        settings, now = self._hub.settings.notify, time.time()

        def work(connection: sqlite3.Connection) -> list[Delivery]:
            old = delivery_tables.too_old(connection, now - settings.give_up_after)
            dropped = [replace(delivery, state="dropped", ended=now, alerts=()) for delivery in old]
            delivery_tables.write(connection, dropped)
            delivery_tables.prune(connection, now)
            inbox_tables.forget(connection, now)
            return dropped

        for delivery in await self._hub.database.do(work):
            self.counts[delivery.channel, "dropped"] += 1
            log.error(
                "channel %s: dropped %r: %s", delivery.channel, delivery.title, delivery.error
            )

    def samples(self) -> Iterator[Sample]:
        """What /metrics shows; nothing where no channel is set."""
        if not self._hub.settings.notify.channels:
            return
        waiting = {queue.channel: queue for queue in self.waiting}
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
    """Equal for all notifications about one group."""
    return sha256(group_key.encode()).hexdigest()[:32]


def _merged(older: Sequence[Alert], newer: Sequence[Alert]) -> tuple[Alert, ...]:
    """The newer alerts, and the older ones that they do not contain: Alertmanager sends the end of
    an alert only once.
    """
    by_fingerprint = {alert.fingerprint: alert for alert in older} | {
        alert.fingerprint: alert for alert in newer
    }
    return tuple(by_fingerprint.values())


def _says(alerts: Sequence[Alert]) -> str:
    """Equal for the same alerts in the same states."""
    states = sorted(
        (alert.fingerprint, alert.status, alert.starts_at if alert.status == "firing" else "")
        for alert in alerts
    )
    return sha256(msgspec.json.encode(states)).hexdigest()[:32]


def _worst(alerts: Sequence[Alert]) -> str:
    severities = {alert.labels.get("severity", "") for alert in alerts if alert.status == "firing"}
    return next(
        (severity for severity in ("critical", "warning", "info") if severity in severities), ""
    )
