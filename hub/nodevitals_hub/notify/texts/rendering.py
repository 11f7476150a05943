"""Titles and texts of notifications.

In: alerts, the cluster, the language, links. Out: a text within a limit in bytes of UTF-8. Plain
text, because the markdown dialects of robots and mail programs differ. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo
from typing import NamedTuple, TypeVar

from nodevitals_hub.notify.texts.chinese import CHINESE, CHINESE_BESIDE_ENGLISH
from nodevitals_hub.notify.texts.english import ENGLISH
from nodevitals_hub.notify.texts.grouping import Group, grouped
from nodevitals_hub.notify.texts.phrases import Phrases
from nodevitals_hub.plain_text import cut_bytes, length
from nodevitals_hub.records import Alert
from nodevitals_hub.settings.response import Language

MAX_TITLE_BYTES = 400
MAX_IN_FULL = 5
LEAST_BYTES = 300
"""No text is cut to less than this."""
_PHRASES: dict[Language, tuple[Phrases, ...]] = {
    "en": (ENGLISH,),
    "zh": (CHINESE,),
    "both": (CHINESE_BESIDE_ENGLISH, ENGLISH),
}


Made = TypeVar("Made")


class Text(NamedTuple):
    """A notification: the title in one line, and the body."""

    title: str
    body: str


class Room(NamedTuple):
    """The size limits of a channel."""

    max_bytes: int
    """Maximum of title and body together, in bytes of UTF-8."""
    excess: Callable[[Text], int] = lambda _: 0
    """By how many bytes the request for a text exceeds the limit of the other side."""


def render(
    alerts: Sequence[Alert],
    cluster: str,
    language: Language,
    external_url: str,
    incident: str,
    max_bytes: int,
    zone: tzinfo,
) -> Text:
    """The notification for alerts, at least one. `cluster` is used for alerts without that label;
    `incident` is the id of an incident, or ''.
    """
    groups = grouped(alerts)
    phrases = _PHRASES[language]
    title = _title([wording.title(groups, cluster) for wording in phrases], max_bytes)
    room = max_bytes - length(title) - 1
    feet = []
    for foot in _feet(alerts, phrases[0], external_url.rstrip("/"), incident):
        if length(foot) + 1 <= room:
            feet.append(foot)
            room -= length(foot) + 1
    parts: list[str] = []
    for left, wording in zip(range(len(phrases), 0, -1), phrases):
        part = _body(groups, wording, zone, (room - 2 * (left - 1)) // left)
        parts.append(part)
        room -= length(part) + 2
    body = "\n\n".join(part for part in parts if part)
    return Text(title, "\n".join(part for part in (body, *feet) if part))


def _feet(alerts: Sequence[Alert], phrases: Phrases, hub: str, incident: str) -> Iterator[str]:
    """The links to the hub: the incident, and the form of a check of the first node with one."""
    firing = [alert for alert in alerts if alert.status == "firing"]
    if hub and incident:
        yield phrases.incident(f"{hub}/incidents/{incident}", bool(firing))
    path = next((alert.check_path for alert in firing if alert.check_path), "")
    if hub and path and not any(alert.is_drill for alert in firing):
        yield phrases.check(f"{hub}{path}")


def fitted(made: Callable[[int], Made], text_of: Callable[[Made], Text], room: Room) -> Made:
    """The result of `made` for the largest size that the channel accepts. A request is larger than
    its text, by an amount that is known only for the whole request: `made` is called with smaller
    sizes until the request fits.
    """
    size = room.max_bytes
    while True:
        result = made(size)
        text = text_of(result)
        excess = room.excess(text)
        if excess <= 0 or size <= LEAST_BYTES:
            return result
        size = max(LEAST_BYTES, min(size, length(text.title) + 1 + length(text.body)) - excess)


def digest(texts: Sequence[Text], cluster: str, language: Language, max_bytes: int) -> Text:
    """Several notifications in one: all titles, and as many bodies as fit. The caller has checked
    with `fitting` that the titles fit.
    """
    title = _digest_title(texts, cluster, language, max_bytes)
    blocks = [f"{number}. {text.title}" for number, text in enumerate(texts, 1)]
    room = max_bytes - length(title) - sum(length(block) + 1 for block in blocks)
    for number, text in enumerate(texts):
        cost = length(text.body) + 2
        if text.body and cost <= room:
            blocks[number] += f"\n{text.body}\n"
            room -= cost
    return Text(title, "\n".join(blocks).rstrip("\n"))


def fitting(texts: Sequence[Text], cluster: str, language: Language, max_bytes: int) -> int:
    """Number of these notifications, in order, that one digest can name; 0 where not even the first
    title fits.
    """
    title = _digest_title(texts, cluster, language, max_bytes)
    room = max_bytes - length(title)
    for number, text in enumerate(texts):
        room -= length(f"{number + 1}. {text.title}") + 1
        if room < 0:
            return number
    return len(texts)


def _digest_title(texts: Sequence[Text], cluster: str, language: Language, max_bytes: int) -> str:
    drill = all(text.title.startswith(("[DRILL]", "[演练]")) for text in texts)
    titles = [wording.digest(cluster, len(texts), drill) for wording in _PHRASES[language]]
    return _title(titles, max_bytes)


def _title(titles: Sequence[str], max_bytes: int) -> str:
    return cut_bytes(" / ".join(titles), min(MAX_TITLE_BYTES, max_bytes // 2))


def _body(groups: Sequence[Group], phrases: Phrases, zone: tzinfo, room: int) -> str:
    """Groups in full while they fit, then headlines, then the number of the remaining alerts."""
    left, whole = sum(len(group.alerts) for group in groups), room
    blocks: list[str] = []
    for number, group in enumerate(groups):
        left -= len(group.alerts)
        reserved = length(phrases.more(left)) + 1 if left else 0
        headline = phrases.headline(group)
        full = "\n".join([headline, *phrases.details(group, zone)])
        choices = [full, headline] if number < MAX_IN_FULL else [headline]
        if not blocks:
            choices.append(cut_bytes(headline, max(room - reserved, 0)))
        block = next(
            (choice for choice in choices if length(choice) + 1 + reserved <= room + 1), None
        )
        if block is None:
            blocks.append(phrases.more(left + len(group.alerts)))
            break
        blocks.append(block)
        room -= length(block) + 1
    return cut_bytes("\n".join(blocks), max(whole, 0))
