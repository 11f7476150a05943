"""Makes text safe for any chat and mail: users may choose the values of labels and annotations.

In: values. Out: one line each without control characters, markup or mentions, bounded in length.
Pure.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, tzinfo

ELLIPSIS = "…"
MAX_URL_CHARACTERS = 300
# Robots execute <at user_id="all">, <!here>, <font …> and @all, also in plain text.
_MARKUP = str.maketrans({"<": "‹", ">": "›", "@": "＠", "`": "'"})
_URL = re.compile(r"https?://[0-9A-Za-z.:_%\[\]-]{1,255}(?:[/?#][!-;=?A-Z\[\]_a-z~]{0,1000})?")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def clean(text: str, characters: int = 300) -> str:
    """A value in one line, without anything that a robot would execute."""
    kept = text[:4000]
    if not (kept.isascii() and kept.isprintable()):
        # Control characters, line breaks, direction marks, surrogates.
        kept = "".join(
            " " if unicodedata.category(character)[0] in "CZ" else character for character in kept
        )
    # A markdown link may show another address than it opens.
    kept = " ".join(kept.translate(_MARKUP).split()).replace("](", "] (")
    return cut(kept, characters)


def cut(text: str, characters: int) -> str:
    """The text, cut to a number of characters."""
    return text if len(text) <= characters else text[: characters - 1].rstrip() + ELLIPSIS


def cut_bytes(text: str, size: int) -> str:
    """The text, cut to a number of bytes of UTF-8, at a character."""
    data = text.encode()
    if len(data) <= size:
        return text
    room = size - len(ELLIPSIS.encode())
    if room <= 0:
        return data[: max(size, 0)].decode(errors="ignore")
    return data[:room].decode(errors="ignore").rstrip() + ELLIPSIS


def length(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode())


def link(text: str) -> str:
    """A URL of http or https; '' for anything else."""
    fits = len(text) <= MAX_URL_CHARACTERS and "](" not in text
    return text if fits and _URL.fullmatch(text) else ""


def moment(text: str, zone: tzinfo) -> datetime | None:
    """The local time of a timestamp of Alertmanager; None where it is not set or not valid."""
    match = _TIME.fullmatch(text)
    if match is None or text.startswith("0001-"):
        return None
    try:
        stamp = match[1] + ("+00:00" if match[2] == "Z" else match[2])
        return datetime.fromisoformat(stamp).astimezone(zone)
    except (ValueError, OverflowError):
        return None
