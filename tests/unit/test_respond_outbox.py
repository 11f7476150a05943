"""What one channel's sender does with deliveries that its channel does not take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodevitals_hub.notify import outbox
from nodevitals_hub.notify.channels.delivery import DeliveryError
from nodevitals_hub.notify.outbox import Digest, Sender, Texts
from nodevitals_hub.records import Delivery
from nodevitals_hub.settings.response import ChannelSettings
from nodevitals_hub.store import delivery_tables
from nodevitals_hub.store.response_database import Database


class FarChannel:
    """Takes what it is sent, but for some titles."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        self.errors, self.taken = errors, list[str]()

    async def send(self, title: str, text: str, owner: str = "", context: Any = None) -> None:
        """Take a message."""
        if title in self.errors:
            raise self.errors[title]
        self.taken.append(title)


def digest(chosen: Sequence[Delivery]) -> Digest:
    raise KeyError("a channel that was removed")


async def unlinked(chosen: Sequence[Delivery]) -> list[Delivery]:
    return list(chosen)


def sent(
    folder: Path,
    errors: dict[str, Exception],
    deliveries: Sequence[Delivery],
    is_done: Callable[[FarChannel, Counter[tuple[str, str]], list[Delivery]], bool],
    per_minute: int = 1000,
) -> tuple[FarChannel, list[Delivery]]:
    """What a channel has taken, and what still waits."""

    async def main() -> tuple[FarChannel, list[Delivery]]:
        database, channel = Database(str(folder)), FarChannel(errors)
        await database.do(lambda connection: delivery_tables.write(connection, deliveries))
        settings = ChannelSettings(url_file="/none", per_minute=per_minute)
        counts: Counter[tuple[str, str]] = Counter()
        task = asyncio.ensure_future(
            Sender(
                *("chat", settings, channel, database),
                *(Texts(unlinked, digest), counts, lambda: 3600.0),
            ).run()
        )
        left = list(deliveries)
        while not is_done(channel, counts, left):
            assert not task.done(), task.exception()
            await asyncio.sleep(0.01)
            left = await database.do(lambda one: delivery_tables.newest(one, "waiting", 1000))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await database.close()
        return channel, left

    return asyncio.run(asyncio.wait_for(main(), 60))


def delivery(number: int, **more: Any) -> Delivery:
    name = f"{number:03}"
    return Delivery(id=name, channel="chat", created=1.0, title=name, text="x", **more)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(outbox, "_LONGEST", 0.001)


@pytest.mark.parametrize("error", [DeliveryError("refused"), ValueError("s3cret"), KeyError("x")])
def test_what_a_channel_does_not_take_holds_up_no_other(tmp_path: Path, error: Exception) -> None:
    deliveries = [delivery(number) for number in range(4)]
    channel, left = sent(
        tmp_path,
        {"001": error},
        deliveries,
        lambda one, _, left: len(one.taken) == 3 and any(waiting.error for waiting in left),
    )
    assert sorted(channel.taken) == ["000", "002", "003"]
    assert [one.title for one in left if one.error] == ["001"]
    assert "s3cret" not in left[0].error


def test_many_that_are_never_taken_hold_up_no_new_one(tmp_path: Path) -> None:
    """More than a sender looks at in one go."""
    bad = [delivery(number, attempts=9) for number in range(outbox.MOST_IN_A_DIGEST + 5)]
    errors: dict[str, Exception] = {one.title: DeliveryError("refused") for one in bad}
    channel, _ = sent(tmp_path, errors, [*bad, delivery(900)], lambda one, *_: bool(one.taken))
    assert channel.taken == ["900"]


def test_an_older_one_that_was_tried_does_not_follow_a_newer_one(tmp_path: Path) -> None:
    """What was tried often has its turn after the others: FIRING after RESOLVED."""
    firing, resolved = delivery(0, thread="t", attempts=3), delivery(1, thread="t", resolved=True)
    channel, left = sent(
        tmp_path, {}, [firing, resolved, delivery(2)], lambda _, __, left: not left
    )
    assert (channel.taken, left) == (["001", "002"], [])


def test_a_digest_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    """Its channel was removed, as SIGHUP does, between two reads of the settings."""
    _, left = sent(
        tmp_path,
        {},
        [delivery(1), delivery(2)],
        lambda _, counts, __: counts["chat", "failed"] > 0,
        per_minute=1,
    )
    assert {one.error for one in left} <= {"", "failed: KeyError"}
