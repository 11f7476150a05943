"""Notifies when the alert Watchdog stops arriving, and when it arrives again.

In: the time of its last message (receiver.py). Out: deliveries. The database keeps the clusters
whose Watchdog has arrived once, so that a missing one is also noticed after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from nodevitals_hub.alerting.receiver import Receiver
from nodevitals_hub.checks.coordinator import new_identity
from nodevitals_hub.notify.notify import Notifier
from nodevitals_hub.plain_text import clean
from nodevitals_hub.records import Delivery
from nodevitals_hub.settings.response import WatchdogSettings
from nodevitals_hub.store import aside_tables, delivery_tables
from nodevitals_hub.store.check_store import StoreError

if TYPE_CHECKING:
    import sqlite3

    from nodevitals_hub.context import Hub


from nodevitals_hub.notify.texts.rendering import Text
from nodevitals_hub.settings.response import Language

_MISSING = Text(
    "[FIRING] {name}: no alerts arrive",
    "The alert Watchdog of {name}, which always fires, has not come for {minutes:g} minutes:"
    " Prometheus or Alertmanager is down, or cannot reach the hub. Other alerts do not arrive"
    " either.\nCheck both, and the network from them to the hub.",
)
_BACK = Text("[RESOLVED] {name}: alerts arrive again", "The alert Watchdog has come again.")
_MISSING_ZH = Text(
    "[告警] {name}：告警通道中断",
    "{name} 的 Watchdog 告警（正常时持续触发）已中断 {minutes:g} 分钟：Prometheus 或"
    " Alertmanager 停止运行，或无法访问 hub，其他告警也无法送达。\n"
    "请检查两者的运行状态，以及它们到 hub 的网络。",
)
_BACK_ZH = Text("[已恢复] {name}：告警通道恢复", "已重新收到 Watchdog 告警。")


def text_of(cluster: str, missing: float | None, language: Language) -> Text:
    """The notification; `missing` is the seconds without a Watchdog, None where it is back."""
    name, minutes = clean(cluster, 80) or "cluster", (missing or 0.0) / 60
    english, chinese = (_BACK, _BACK_ZH) if missing is None else (_MISSING, _MISSING_ZH)
    first, second = (
        Text(*(part.format(name=name, minutes=minutes) for part in text))
        for text in (english, chinese)
    )
    if language == "both":
        return Text(second.title, f"{second.body}\n\n{first.body}")
    return second if language == "zh" else first


LOOK_SECONDS = 1.0
FACT = "watchdog clusters"

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """A cluster whose Watchdog stopped, or arrived again."""

    cluster: str
    state: Literal["missing", "back"]


class Watch:
    """Which clusters have no Watchdog. No I/O; it only keeps state."""

    def __init__(self, clusters: Mapping[str, float]) -> None:
        """`clusters`: the expected clusters, each with a start by the monotonic clock."""
        self.last = dict(clusters)
        self.missing: set[str] = set()

    def look(self, beats: Mapping[str, float], now: float, after: float) -> list[Change]:
        """The changes since the last call."""
        changes = []
        self.last.update(beats)
        for cluster, moment in self.last.items():
            is_missing = now - moment >= after
            if is_missing and cluster not in self.missing:
                self.missing.add(cluster)
                changes.append(Change(cluster, "missing"))
            elif not is_missing and cluster in self.missing:
                self.missing.remove(cluster)
                changes.append(Change(cluster, "back"))
        return changes


class Watchdog:
    """The watch over all clusters of one hub."""

    def __init__(self, hub: Hub, receiver: Receiver, notifier: Notifier) -> None:
        self._hub, self._receiver, self._notifier = hub, receiver, notifier

    async def run(self) -> None:
        """Check until cancelled; wait where the setting is absent."""
        while self._hub.settings.notify.watchdog is None:
            await asyncio.sleep(LOOK_SECONDS)
        database = self._hub.database
        known = await database.do(_read)
        start = time.monotonic()
        watch = Watch(dict.fromkeys(known or [self._hub.settings.cluster], start))
        while True:
            settings = self._hub.settings.notify.watchdog
            if settings is not None:
                beats = self._receiver.beats
                changes = watch.look(beats, time.monotonic(), settings.after)
                new = sorted(set(beats) - set(known))
                if changes or new:
                    known = sorted({*known, *new})
                    made = [
                        delivery for change in changes for delivery in self._made(change, settings)
                    ]
                    await self._store(made, known)
                    self._notifier.wake()
            await asyncio.sleep(LOOK_SECONDS)

    async def _store(self, made: list[Delivery], known: list[str]) -> None:
        """Store, and retry until it succeeds: the change is not detected a second time."""
        while True:
            try:
                await self._hub.database.do(lambda connection: _write(connection, made, known))
                return
            except StoreError:  # logged by the database
                await asyncio.sleep(LOOK_SECONDS)

    def _made(self, change: Change, settings: WatchdogSettings) -> list[Delivery]:
        log.warning("watchdog of %s: %s", clean(change.cluster, 80) or "the cluster", change.state)
        notify, now = self._hub.settings.notify, time.time()
        thread = sha256(f"watchdog {change.cluster}".encode()).hexdigest()[:32]
        deliveries = []
        for name in settings.channels:
            channel = notify.channels.get(name)
            if channel is None:
                continue
            language = channel.language or notify.language
            missing = settings.after if change.state == "missing" else None
            text = text_of(change.cluster, missing, language)
            deliveries.append(
                Delivery(
                    id=f"{new_identity()}-{name}",
                    channel=name,
                    created=now,
                    title=text.title,
                    text=text.body,
                    severity="critical",
                    thread=thread,
                    resolved=change.state == "back",
                    next_try=now,
                )
            )
        return deliveries


def _read(connection: sqlite3.Connection) -> list[str]:
    return aside_tables.fact(connection, FACT, msgspec.json.Decoder(list[str]).decode) or []


def _write(connection: sqlite3.Connection, deliveries: list[Delivery], clusters: list[str]) -> None:
    delivery_tables.write(connection, deliveries)
    value = msgspec.json.encode(clusters)
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (FACT, value))
