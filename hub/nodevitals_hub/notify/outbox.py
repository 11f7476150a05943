"""Sends the deliveries of one channel: in order, within its limit per minute, at least once.

In: deliveries that are due. Out: messages on a channel, the new states of the deliveries. More
deliveries than the limit allows are sent as one message (a digest). After a failure the channel
pauses, up to ten minutes; a delivery that fails for `give_up_after` is dropped, counted and shown.
At most one delivery per thread waits: a newer one replaces an older one, which could otherwise be
sent after it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from nodevitals.checks.deadlines import within
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError
from nodevitals_hub.notify.texts.rendering import Text
from nodevitals_hub.records import Delivery
from nodevitals_hub.settings.response import ChannelSettings
from nodevitals_hub.store import delivery_tables as tables
from nodevitals_hub.store.check_store import StoreError
from nodevitals_hub.store.response_database import Database

if TYPE_CHECKING:
    import sqlite3

MINUTE_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 5.0
IDLE_SECONDS = 5.0
MOST_IN_A_DIGEST = 100
REST_SHARE = 10.0
LONGEST_REST_SECONDS = 0.25
"""After a message, a channel pauses ten times as long as sending took, at most this long. A hub
that is killed between an answer and recording it sends that message again; with the pause, a kill
rarely hits that moment, even in an alert storm on a slow machine.
"""

log = logging.getLogger(__name__)


class Sends(Protocol):
    """A channel (channels.Channel)."""

    async def send(
        self, title: str, text: str, owner: str = "", context: Context | None = None
    ) -> None:
        """Send a message. Raises DeliveryError."""


class Digest(NamedTuple):
    """One message of several deliveries."""

    text: Text
    named: int
    """Number of deliveries that it names, in order; the next digest has the others."""


class Texts(NamedTuple):
    """The functions that make the text of a notification when it is sent."""

    linked: Callable[[Sequence[Delivery]], Awaitable[list[Delivery]]]
    """Adds the signed links, which are in no database."""
    digest: Callable[[Sequence[Delivery]], Digest]


class Sender:
    """Sends to one channel until cancelled."""

    def __init__(
        self,
        name: str,
        settings: ChannelSettings,
        channel: Sends,
        database: Database,
        texts: Texts,
        counts: Counter[tuple[str, str]],
        same_within: Callable[[], float],
    ) -> None:
        """`same_within`: seconds within which the same states of alerts are not sent again."""
        self._name, self._settings, self._channel = name, settings, channel
        self._database, self._texts, self._counts = database, texts, counts
        self._same_within = same_within
        self._sent: deque[float] = deque()
        """Times of the messages of the last minute, by the monotonic clock."""
        self._failures = 0
        self.queued = asyncio.Event()
        """Set when a new delivery is stored."""

    async def run(self) -> None:
        """Send for ever. Raises StoreError."""
        now = time.time()
        earlier = await self._database.do(
            lambda connection: tables.sent_since(connection, self._name, now - MINUTE_SECONDS)
        )
        self._sent.extend(time.monotonic() - (now - moment) for moment in earlier if moment <= now)
        while True:
            self.queued.clear()
            chosen = await self._chosen()
            if chosen:
                began = time.monotonic()
                await self._send(chosen)
                took = time.monotonic() - began
                await asyncio.sleep(min(REST_SHARE * took, LONGEST_REST_SECONDS))
            else:
                await self._wait(IDLE_SECONDS)

    async def _wait(self, longest: float) -> None:
        """Wait for a new delivery, or until the next attempt is due."""
        now = time.time()
        due = await self._database.do(lambda connection: tables.next_try(connection, self._name))
        seconds = longest if due is None else max(0.05, min(longest, due - now))
        try:
            await within(self.queued.wait(), seconds)
        except TimeoutError:
            return

    async def _chosen(self) -> list[Delivery]:
        """The deliveries of the next message: one, or all if more wait than may be sent."""
        now, same_within = time.time(), self._same_within()

        def work(connection: sqlite3.Connection) -> tuple[int, list[Delivery]]:
            ended = tables.supersede(connection, self._name, now, same_within)
            return len(ended), tables.due(connection, self._name, now, MOST_IN_A_DIGEST)

        superseded, due = await self._database.do(work)
        self._counts[self._name, "superseded"] += superseded
        if not due:
            return []
        allowed = await self._allowance()
        turn = due[0].attempts // tables.ATTEMPTS_OF_A_TURN
        if turn == 0 and len(due) > allowed:
            return [
                delivery
                for delivery in due
                if delivery.attempts < tables.ATTEMPTS_OF_A_TURN and delivery.owner == due[0].owner
            ]
        return due[:1]

    async def _allowance(self) -> int:
        """Number of messages that may be sent now; waits until it is at least one."""
        most = self._settings.per_minute
        while True:
            now = time.monotonic()
            while self._sent and now - self._sent[0] >= MINUTE_SECONDS:
                self._sent.popleft()
            if len(self._sent) < most:
                return most - len(self._sent)
            await asyncio.sleep(self._sent[len(self._sent) - most] + MINUTE_SECONDS - now)

    async def _send(self, chosen: Sequence[Delivery]) -> None:
        linked = await self._texts.linked(chosen)
        self._sent.append(time.monotonic())
        try:
            first = linked[0]
            text = Text(first.title, first.text)
            if len(linked) > 1:
                text, named = self._texts.digest(linked)
                chosen = chosen[:named]
            await self._channel.send(text.title, text.body, first.owner, _context(chosen))
        except DeliveryError as error:
            await self._failed(chosen, error)
            return
        except Exception as error:  # noqa: BLE001 - its text may hold what the URL holds
            await self._failed(chosen, DeliveryError(f"failed: {type(error).__name__}"))
            return
        now = time.time()
        if self._failures:
            log.info("channel %s: delivers again", self._name)
        self._failures = 0
        self._counts[self._name, "sent"] += len(chosen)
        now_sent = {"state": "sent", "ended": now, "next_try": now, "error": "", "alerts": ()}
        done = [
            replace(delivery, attempts=delivery.attempts + 1, **now_sent) for delivery in chosen
        ]
        await self._write(done)

    async def _failed(self, chosen: Sequence[Delivery], error: DeliveryError) -> None:
        self._failures += 1
        self._counts[self._name, "failed"] += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10), _LONGEST)
        pause = max(pause, min(error.retry_after or 0.0, _LONGEST))
        if self._failures in (1, 10) or self._failures % 100 == 0:
            log.warning(
                "channel %s: %s; %d tries so far, next in %g s",
                *(self._name, error, self._failures, pause),
            )
        now = time.time()
        later = [
            replace(
                delivery, attempts=delivery.attempts + 1, next_try=now + pause, error=str(error)
            )
            for delivery in chosen
        ]
        await self._write(later)
        await asyncio.sleep(pause)

    async def _write(self, deliveries: Sequence[Delivery]) -> None:
        """Write, and retry until it succeeds: a full disk must not make a message sent again."""
        pause = 1.0
        while True:
            try:
                await self._database.do(lambda connection: tables.write(connection, deliveries))
                return
            except StoreError:  # logged by the database
                await asyncio.sleep(pause)
                pause = min(2 * pause, MINUTE_SECONDS)


def _context(chosen: Sequence[Delivery]) -> Context:
    """The context for a channel; a digest belongs to no thread."""
    if len(chosen) > 1:
        return Context()
    return Context(chosen[0].severity, chosen[0].resolved, chosen[0].thread)


_LONGEST = tables.LONGEST_WAIT_SECONDS
