"""What a language must be able to say about alerts (english.py, chinese.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import tzinfo

from nodevitals_hub.notify.texts.grouping import Group
from nodevitals_hub.records import Alert

MAX_TITLE_CHARACTERS = 100


class Phrases(ABC):
    """One language. All that comes from labels and annotations is cleaned (plain.py)."""

    @abstractmethod
    def title(self, groups: Sequence[Group], cluster: str) -> str:
        """The marks, the cluster and the most severe."""

    @abstractmethod
    def headline(self, group: Group) -> str:
        """One line for a group."""

    @abstractmethod
    def details(self, group: Group, zone: tzinfo) -> list[str]:
        """The lines below it: what it does, what to do, since when, where to read."""

    @abstractmethod
    def more(self, alerts: int) -> str:
        """So many alerts are not in the text."""

    @abstractmethod
    def incident(self, url: str, firing: bool) -> str:
        """Where it is, and can be acknowledged while an alert of it fires."""

    @abstractmethod
    def digest(self, cluster: str, notifications: int, drill: bool) -> str:
        """Title of several notifications in one."""


def counts(alerts: Sequence[Alert]) -> tuple[int, int]:
    """How many fire, and how many are resolved."""
    firing = sum(alert.status == "firing" for alert in alerts)
    return firing, len(alerts) - firing


def alerts_of(groups: Sequence[Group]) -> list[Alert]:
    """All alerts of the groups."""
    return [alert for group in groups for alert in group.alerts]
