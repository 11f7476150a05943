"""Notifications to owners of jobs.

In: notices (owners.py), the keys of the jobs that were named before. Out: deliveries, and the keys
to remember. Pure: what is written in one transaction names each job once, across kills as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from nodevitals_hub.notify.owner_texts import owner_text
from nodevitals_hub.notify.owners import Notice, owner_channel
from nodevitals_hub.notify.texts.rendering import Room, fitted
from nodevitals_hub.records import Delivery
from nodevitals_hub.settings.notification_routes import zone_of
from nodevitals_hub.settings.response import ChannelSettings, NotifySettings


class Made(NamedTuple):
    """What notices make of themselves."""

    deliveries: tuple[Delivery, ...] = ()
    keys: tuple[str, ...] = ()
    """Of the jobs that they name."""


def made_of(
    notices: Sequence[Notice],
    named: Collection[str],
    settings: NotifySettings,
    cluster: str,
    room_of: Callable[[str, ChannelSettings], Room],
    now: float,
) -> Made:
    """One delivery per owner and kind, of the jobs that were not named before. `room_of` is what a
    channel takes.
    """
    if settings.owners is None:
        return Made()
    deliveries: list[Delivery] = []
    keys: list[str] = []
    for notice in notices:
        name = owner_channel(notice.owner, settings.owners)
        left = notice.without(named)
        if left is None or name not in settings.channels:
            continue
        own = [job.key for job in left.jobs]
        channel = settings.channels[name]
        language = channel.language or settings.language
        zone = zone_of(settings.time_zone)
        text = fitted(
            partial(owner_text, left, cluster, language, zone=zone),
            lambda found: found,
            room_of(name, channel),
        )
        deliveries.append(
            Delivery(
                id=f"owner-{sha256(' '.join([name, *own]).encode()).hexdigest()[:32]}",
                channel=name,
                created=now,
                title=text.title,
                text=text.body,
                severity="info",
                owner=notice.owner,
                next_try=now,
            )
        )
        keys += own
    return Made(tuple(deliveries), tuple(keys))
