"""What every way of sending has in common: its error, what it may know beside the text, its log."""

from __future__ import annotations

import logging
from typing import NamedTuple, Optional


class DeliveryError(Exception):
    """A notification was not delivered; the text says why, in one line without secrets."""

    def __init__(self, text: str, retry_after: Optional[float] = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """Seconds that the other side asks to wait."""


class Context(NamedTuple):
    """What a channel may use beside the text."""

    severity: str = ""
    resolved: bool = False
    thread: str = ""
    """Notifications with the same are about one thing: one thread of mails, one incident of a
    pager. Letters, digits and - only.
    """


def quiet() -> None:
    """Keep the messages of libraries that may have a URL from the log."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    for name in ("urllib3", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.ERROR)
