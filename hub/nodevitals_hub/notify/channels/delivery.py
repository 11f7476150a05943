"""What all ways of sending share: the error, the context beside the text, quiet logs."""

from __future__ import annotations

import logging
from email.utils import parsedate_to_datetime
from typing import NamedTuple

MAX_RETRY_AFTER_SECONDS = 3600.0


class DeliveryError(Exception):
    """A notification was not delivered; the text is the reason, in one line without secrets."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """Seconds that the other side asks to wait."""


def retry_after(text: str, now: float) -> float | None:
    """Seconds of a header Retry-After, which is a number or an HTTP date; at most an hour. None
    where it is neither. https://www.rfc-editor.org/rfc/rfc9110#field.retry-after
    """
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER_SECONDS)
    try:
        moment = parsedate_to_datetime(text[:100]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
    return min(max(moment - now, 0.0), MAX_RETRY_AFTER_SECONDS)


class Context(NamedTuple):
    """What a channel may use beside the text."""

    severity: str = ""
    resolved: bool = False
    thread: str = ""
    """Equal for notifications that belong together: one thread of mails, one incident of a pager.
    Only letters, digits and -.
    """


def quiet() -> None:
    """Keep library messages that may contain a URL out of the log."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    for name in ("urllib3", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.ERROR)
