"""Channels: where notifications are sent.

In: a title and a text. Out: nothing, or DeliveryError, within DEADLINE_SECONDS. The URL contains
the secret: it is read from its file whenever the file changes, and is in no log, error or metric.
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
from nodevitals.document import DocumentError, UnreadableError, read_file
from nodevitals_hub.notify.channels import apprise_process, robots
from nodevitals_hub.notify.channels.apprise_process import Message
from nodevitals_hub.notify.channels.attempt import Attempt
from nodevitals_hub.notify.channels.delivery import Context, DeliveryError
from nodevitals_hub.notify.texts.rendering import Room, Text
from nodevitals_hub.settings.response import ChannelSettings

DEADLINE_SECONDS = 15.0
MAX_HANGING = 3
"""Limit for threads of one robot that still wait after the deadline."""
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
# Hosts of the URLs that the services' own pages show.
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
"""The JSON of the whole request, in which Apprise writes a Chinese character as 6 bytes; the part
of it that is not the text."""
_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")

log = logging.getLogger(__name__)

__all__ = ["Channel", "Context", "DeliveryError"]


def _teams_excess(text: Text) -> int:
    encoded = json.dumps([text.title, text.body.replace("\n", "\n\n")])
    return len(encoded) + TEAMS_CARD_BYTES - TEAMS_REQUEST_BYTES


_EXCESSES: dict[ChannelKind, Callable[[Text], int]] = {"teams": _teams_excess}


class _LineError(Exception):
    """A file has no URL; the text is the reason, without the file's content."""


class UnreadableFileError(DeliveryError):
    """The file of a URL cannot be read now."""


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
        """The kind for metrics; `other` also while the file cannot be read."""
        try:
            return _kind_of(self.read_url())
        except DeliveryError:
            return "other"

    @property
    def room(self) -> Room:
        """The size limit of a title and a text together: the smaller of the setting and the limit
        of the other side.
        """
        most = self._settings.max_bytes
        try:
            url = self.read_url()
            robot = robots.parse_robot(url)
        except (DeliveryError, ValueError):
            return Room(most)
        if robot is not None:
            known_robot = robot
            most = min(most, robots.room_of(robot))
            return Room(most, lambda text: robots.excess(known_robot, text.title, text.body))
        kind = _kind_of(url)
        return Room(min(most, _ROOMS.get(kind, most)), _EXCESSES.get(kind, lambda _: 0))

    async def send(
        self, title: str, text: str, owner: str = "", context: Context | None = None
    ) -> None:
        """Send one message; `owner` replaces {owner} in the URL. Raises DeliveryError."""
        url = owned(self.read_url(), owner)
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
        """Send in a thread: a name server that does not answer may block it beyond the deadline."""

        def work() -> None:
            asyncio.run(within(robots.send(robot, title, text), DEADLINE_SECONDS))

        if self._hanging >= MAX_HANGING:
            raise DeliveryError(f"{self._hanging} earlier attempts have not ended yet")
        self._hanging += 1
        attempt = Attempt(work, self._ended)
        await within(asyncio.shield(attempt.done), DEADLINE_SECONDS)

    def _ended(self) -> None:
        self._hanging -= 1

    def read_url(self) -> str:
        """The URL in the current file. Raises DeliveryError."""
        path = self._settings.url_file
        try:
            status = os.stat(path)
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size, status.st_dev)
            if stamp != self._stamp:
                self._kept_url = _single_line(read_file(path))
                self._stamp = stamp
        except (OSError, DocumentError, _LineError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            text = f"{path}: {' '.join(str(reason).split())[:200]}"
            unreadable = isinstance(error, (OSError, UnreadableError))
            raise (UnreadableFileError if unreadable else DeliveryError)(text) from None
        if status.st_mode & stat.S_IROTH and self._warned != path:
            self._warned = path
            log.warning(
                "notify.channels.%s: every user can read %s: remove the permission (chmod o-r)",
                self._name,
                path,
            )
        return self._kept_url


def owned(url: str, owner: str) -> str:
    """The URL of an owner's channel. Raises DeliveryError: scheme, user and host must not depend on
    an owner, and a name has only letters, digits, dots, _ and -.
    """
    if PLACE not in url:
        return url
    parts = urlsplit(url)
    # A scheme cannot contain a brace, so with {owner} in it urlsplit returns no scheme.
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
    except ValueError:  # its text may repeat the host, and the password before it
        raise _LineError("not a URL") from None
    if len(lines) != 1:
        raise _LineError(f"has {len(lines)} lines: write one URL")
    return lines[0]
