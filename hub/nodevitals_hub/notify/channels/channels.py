"""Channels: where notifications are sent.

In: a title and a text. Out: nothing, or DeliveryError, within DEADLINE_SECONDS. The URL, which has
the secret, is read from its file when that has changed; it is in no log, error or metric.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import stat
from collections.abc import Callable
from typing import Literal
from urllib.parse import quote, urlsplit

from nodevitals.checks.deadlines import within
from nodevitals.document import DocumentError, read_file
from nodevitals_hub.notify.channels import apprise_process, robots
from nodevitals_hub.notify.channels.apprise_process import Message
from nodevitals_hub.notify.channels.attempt import Attempt
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError
from nodevitals_hub.notify.texts.rendering import Room, Text
from nodevitals_hub.settings.response import ChannelSettings

DEADLINE_SECONDS = 15.0
MAX_HANGING = 3
"""Threads of one robot that may still wait after the deadline."""
PLACE = "{owner}"

ChannelKind = Literal[
    "dingtalk",
    "discord",
    "email",
    "feishu",
    "lark",
    "other",
    "pagerduty",
    "slack",
    "sms",
    "teams",
    "telegram",
    "webhook",
    "wecom",
]
_KINDS: dict[str, ChannelKind] = {
    "discord": "discord",
    "form": "webhook",
    "forms": "webhook",
    "json": "webhook",
    "jsons": "webhook",
    "mailto": "email",
    "mailtos": "email",
    "msteams": "teams",
    "pagerduty": "pagerduty",
    "slack": "slack",
    "sns": "sms",
    "tgram": "telegram",
    "twilio": "sms",
    "vonage": "sms",
    "workflow": "teams",
    "workflows": "teams",
    "xml": "webhook",
    "xmls": "webhook",
}
# Of addresses as the services' own pages show them.
_HOSTS: dict[str, ChannelKind] = {
    ".logic.azure.com": "teams",
    ".powerplatform.com": "teams",
    "discord.com": "discord",
    "hooks.slack.com": "slack",
}
# Longest messages: https://developer.pagerduty.com/docs/send-alert-event (summary),
# https://discord.com/developers/docs/resources/message,
# https://core.telegram.org/bots/api#sendmessage (4096 characters, of which Apprise adds a few) and
# https://api.slack.com/changelog/2018-04-truncating-really-long-messages (40,000 characters).
_ROOMS: dict[ChannelKind, int] = {
    "pagerduty": 1024,
    "teams": 10_000,
    "discord": 2000,
    "slack": 35_000,
    "sms": 1600,
    "telegram": 4000,
}
# https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
TEAMS_REQUEST_BYTES, TEAMS_CARD_BYTES = 28_000, 2000
"""JSON of the whole request, in which Apprise writes a Chinese character as 6 bytes; of that, the
rest beside the text."""
_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")

log = logging.getLogger(__name__)

__all__ = ["Channel", "Context", "DeliveryError"]


def _teams_excess(text: Text) -> int:
    said = json.dumps([text.title, text.body.replace("\n", "\n\n")])
    return len(said) + TEAMS_CARD_BYTES - TEAMS_REQUEST_BYTES


_EXCESSES: dict[ChannelKind, Callable[[Text], int]] = {"teams": _teams_excess}


class _LineError(Exception):
    """A file has no URL; the text says why, without what is in it."""


class Channel:
    """One channel of the settings."""

    def __init__(self, name: str, settings: ChannelSettings) -> None:
        self._name, self._settings = name, settings
        self._stamp: tuple[int, ...] = ()
        self._kept_url = ""
        self._warned = ""
        self._hanging = 0

    @property
    def kind(self) -> ChannelKind:
        """What it is, for metrics; `other` as well while its file cannot be read."""
        try:
            return _kind_of(self._url())
        except DeliveryError:
            return "other"

    @property
    def room(self) -> Room:
        """What a title and a text may have together: the smaller of the setting and of what the
        other side takes.
        """
        most = self._settings.max_bytes
        try:
            url = self._url()
            robot = robots.parse_robot(url)
        except (DeliveryError, ValueError):
            return Room(most)
        if robot is not None:
            found = robot
            most = min(most, robots.room_of(robot))
            return Room(most, lambda text: robots.excess(found, text.title, text.body))
        kind = _kind_of(url)
        return Room(min(most, _ROOMS.get(kind, most)), _EXCESSES.get(kind, lambda _: 0))

    async def send(
        self, title: str, text: str, owner: str = "", context: Context | None = None
    ) -> None:
        """Send one message; `owner` takes the place of {owner} in the URL. Raises DeliveryError."""
        url = owned(self._url(), owner)
        try:
            robot = robots.parse_robot(url)
        except ValueError as error:
            raise DeliveryError(str(error)) from None

        try:
            if robot is None:
                message = Message(url, title, text, context or Context())
                await apprise_process.send(message, DEADLINE_SECONDS)
            else:
                await self._by_robot(robot, title, text)
        except TimeoutError:
            raise DeliveryError(f"no answer within {DEADLINE_SECONDS:g} s") from None

    async def _by_robot(self, robot: robots.Robot, title: str, text: str) -> None:
        """Send in a thread, which a name server that does not answer holds beyond the deadline."""

        def work() -> None:
            asyncio.run(within(robots.send(robot, title, text), DEADLINE_SECONDS))

        if self._hanging >= MAX_HANGING:
            raise DeliveryError(f"{self._hanging} earlier attempts have not ended yet")
        self._hanging += 1
        attempt = Attempt(work, self._ended)
        await within(asyncio.shield(attempt.done), DEADLINE_SECONDS)

    def _ended(self) -> None:
        self._hanging -= 1

    def _url(self) -> str:
        """The URL, of the file as it is now."""
        path = self._settings.url_file
        try:
            found = os.stat(path)
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size, found.st_dev)
            if stamp != self._stamp:
                self._kept_url = _single_line(read_file(path))
                self._stamp = stamp
        except (OSError, DocumentError, _LineError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise DeliveryError(f"{path}: {' '.join(str(reason).split())[:200]}") from None
        if found.st_mode & stat.S_IROTH and self._warned != path:
            self._warned = path
            log.warning(
                "notify.channels.%s: every user can read %s: remove the permission (chmod o-r)",
                self._name,
                path,
            )
        return self._kept_url


def owned(url: str, owner: str) -> str:
    """The URL of an owner's channel. Raises DeliveryError: neither scheme, user nor host depend on
    an owner, and a name is letters, digits, dots, _ and - only.
    """
    if PLACE not in url:
        return url
    parts = urlsplit(url)
    # In a scheme there is no brace: that is all of it.
    if not parts.scheme or PLACE in parts.netloc:
        raise DeliveryError("{owner} may stand in the path and behind ? only: change the URL")
    if not _OWNER.fullmatch(owner) or ".." in owner:
        raise DeliveryError("the name of this owner cannot be part of a URL: name its channel")
    return url.replace(PLACE, quote(owner, safe=""))


def _kind_of(url: str) -> ChannelKind:
    try:
        robot = robots.parse_robot(url)
        scheme, host = urlsplit(url).scheme.lower(), urlsplit(url).hostname or ""
    except ValueError:
        return "other"
    if robot is not None:
        return robot.kind
    if scheme == "https":
        return next((kind for name, kind in _HOSTS.items() if host.endswith(name)), "other")
    return _KINDS.get(scheme, "other")


def _single_line(content: bytes) -> str:
    try:
        lines = [line.strip() for line in content.decode("utf-8", "strict").splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        if len(lines) == 1:
            urlsplit(lines[0])
    except ValueError:  # its words may repeat the host, and the password before it
        raise _LineError("not a URL") from None
    if len(lines) != 1:
        raise _LineError(f"has {len(lines)} lines: write one URL")
    return lines[0]
