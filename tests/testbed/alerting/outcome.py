"""What people were notified of in a scenario, counted as they would count it, and as it was wanted.

A page is a notification of the on-call receiver for a group that has no open incident: what
follows within the same incident is an update. A ticket is the same for the receivers of warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from testbed.alerting.pager import Notification

ON_CALL = "on-call"
TICKETS = ("hardware", "storage-and-network")
CHAT = "chat"
Count = int | tuple[int, int]
"""A number, or the least and the most."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The notifications that a scenario should have; by default none.

    Each of `titles` is in the title of some page, each of `texts` in the text of some page, each of
    `ticket_titles` in the title of some ticket, none of `never` in any title or text.
    `first_page_within` and `not_before` are seconds of the scenario. `receivers` must have been
    notified. `at_least_one`: a page or a ticket, whichever. `first_title` is in the title of the
    first page.
    """

    pages: Count = 0
    tickets: Count = 0
    updates: Count = (0, 3)
    titles: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    ticket_titles: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    first_page_within: float = math.inf
    not_before: float = 0.0
    receivers: tuple[str, ...] = ()
    at_least_one: bool = False
    first_title: str = ""

    def text(self) -> str:
        """Return it for a table."""
        if self.at_least_one:
            return "a page or a ticket"
        parts = [
            _counted(self.pages, "page"),
            _counted(self.tickets, "ticket"),
            *(f"“{one}”" for one in (*self.titles, *self.texts, *self.ticket_titles)),
            *(f"then {one}" for one in self.receivers),
        ]
        return ", ".join(part for part in parts if part) or "nothing"


class Outcome(msgspec.Struct):
    """What was sent. Titles are those of the first notification of each incident."""

    pages: list[Notification] = []
    updates: list[Notification] = []
    tickets: list[Notification] = []
    ticket_updates: int = 0
    chat: int = 0
    others: dict[str, int] = {}

    @classmethod
    def of(cls, notifications: Sequence[Notification]) -> Outcome:
        """Count notifications, which are in order of time."""
        outcome = cls()
        is_open: set[tuple[str, str]] = set()
        for one in notifications:
            incident = one.receiver, one.key
            outcome._add(one, incident in is_open)
            (is_open.add if one.status == "firing" else is_open.discard)(incident)
        return outcome

    def _add(self, one: Notification, is_open: bool) -> None:
        firing = one.status == "firing"
        if one.receiver == ON_CALL and firing:
            (self.updates if is_open else self.pages).append(one)
        elif one.receiver in TICKETS and firing:
            if is_open:
                self.ticket_updates += 1
            else:
                self.tickets.append(one)
        elif one.receiver == CHAT:
            self.chat += 1
        elif firing:
            self.others[one.receiver] = self.others.get(one.receiver, 0) + 1

    def text(self) -> str:
        """Return it for a table."""
        parts = [_counted(len(self.pages), "page"), _counted(len(self.tickets), "ticket")]
        return ", ".join(part for part in parts if part) or "nothing"

    def titles(self) -> list[str]:
        """Return time and title of each page and ticket."""
        return [f"{one.at:.0f}s {one.title}" for one in (*self.pages, *self.tickets)]


def judge(outcome: Outcome, wanted: Wanted) -> list[str]:
    """Return what is not as wanted."""
    problems = [
        f"{name}: {len(found)} instead of {_counted(count, name) or 0}"
        for name, found, count in (
            ("page", outcome.pages, wanted.pages),
            ("ticket", outcome.tickets, wanted.tickets),
            ("update", outcome.updates, wanted.updates),
        )
        if not _least(count) <= len(found) <= _most(count)
    ]
    for parts, found in (
        (wanted.titles, outcome.pages),
        (wanted.ticket_titles, outcome.tickets),
    ):
        titles = [one.title for one in found]
        problems += [f"no title with {part!r}" for part in parts if part not in "\n".join(titles)]
    texts = "\n".join(one.text for one in outcome.pages)
    problems += [f"no page whose text has {part!r}" for part in wanted.texts if part not in texts]
    everything = "\n".join(
        f"{one.title}\n{one.text}" for one in (*outcome.pages, *outcome.updates, *outcome.tickets)
    )
    problems += [f"has {part!r}" for part in wanted.never if part in everything]
    problems += [f"{name} not notified" for name in wanted.receivers if name not in outcome.others]
    first = outcome.pages[0] if outcome.pages else None
    if first and not wanted.not_before <= first.at <= wanted.first_page_within:
        problems.append(f"first page after {first.at:.0f} s")
    if first and wanted.first_title not in first.title:
        problems.append(f"{wanted.first_title!r} is not in the title of the first page")
    if wanted.at_least_one and not (outcome.pages or outcome.tickets):
        problems.append("no receiver was notified")
    limit = 2 * (_most(wanted.pages) + _most(wanted.updates)) * bool(_most(wanted.pages))
    if outcome.chat > limit:
        problems.append(f"{outcome.chat} chat messages instead of at most {limit}")
    return problems


def _least(count: Count) -> int:
    return count if isinstance(count, int) else count[0]


def _most(count: Count) -> int:
    return count if isinstance(count, int) else count[1]


def _counted(count: Count, noun: str) -> str:
    least, most = _least(count), _most(count)
    if not most:
        return ""
    plural = "" if most == 1 else "s"
    return f"{most} {noun}{plural}" if least == most else f"{least} to {most} {noun}{plural}"
