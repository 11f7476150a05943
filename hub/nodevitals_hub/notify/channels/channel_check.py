"""Checks the URLs of channels before the first notification needs one.

In: the settings. Out: a problem for each channel to which nothing can be sent. A file that cannot
be read is none, because it is read again for each message. No text repeats a URL.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping

import msgspec

from nodevitals.document import Problem
from nodevitals_hub.notify.channels import robots
from nodevitals_hub.notify.channels.channels import Channel, UnreadableFileError, owned
from nodevitals_hub.notify.channels.delivery import DeliveryError
from nodevitals_hub.settings.response import ChannelSettings

SECONDS = 60.0
_MODULE = f"{__package__}.apprise_sender"


def problems(channels: Mapping[str, ChannelSettings]) -> Iterator[Problem]:
    """The channels to which nothing can be sent."""
    for_apprise: dict[str, str] = {}
    for name, settings in channels.items():
        try:
            url = owned(Channel(name, settings).read_url(), "owner")
            if robots.parse_robot(url) is None:
                for_apprise[name] = url
        except UnreadableFileError:
            continue
        except (DeliveryError, ValueError) as error:
            yield _problem(name, settings, str(error))
    reasons = _errors_of_apprise([*for_apprise.values()])
    for name, reason in zip(for_apprise, reasons, strict=True):
        if reason:
            yield _problem(name, channels[name], reason)


def _problem(name: str, settings: ChannelSettings, text: str) -> Problem:
    text = text if text.startswith(settings.url_file) else f"{settings.url_file}: {text}"
    text = text if "write" in text else f"{text}: write the URL of this channel"
    return Problem(f"notify.channels.{name}.url_file", text)


def _errors_of_apprise(urls: list[str]) -> list[str]:
    """Why Apprise does not take a URL, or '', for each. In a process of its own, as for a message
    (apprise_process.py): its modules stay out of the hub.
    """
    if not urls:
        return []
    try:
        ended = subprocess.run(  # our own module
            [sys.executable, "-m", _MODULE, "check"],
            cwd="/",
            input=msgspec.json.encode(urls),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=True,
        )
        return msgspec.json.decode(ended.stdout, type=list[str])
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return [f"Apprise failed: {type(error).__name__}"] * len(urls)
