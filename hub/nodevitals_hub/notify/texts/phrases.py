"""The interface of a notification language (english.py, chinese.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import tzinfo

from nodevitals_hub.notify.texts.grouping import Group
from nodevitals_hub.records import Alert

MAX_TITLE_CHARACTERS = 100


class Phrases(ABC):
    """One language. Everything from labels and annotations is cleaned (plain_text.py)."""

    @abstractmethod
    def title(self, groups: Sequence[Group], cluster: str) -> str:
        """The states, the cluster and the most severe group."""

    @abstractmethod
    def headline(self, group: Group) -> str:
        """One line for a group."""

    @abstractmethod
    def details(self, group: Group, zone: tzinfo) -> list[str]:
        """The lines below the headline: time, impact, action and links."""

    @abstractmethod
    def more(self, alerts: int) -> str:
        """The line for alerts that are not in the text."""

    @abstractmethod
    def incident(self, url: str, firing: bool) -> str:
        """The link to the incident, which can be acknowledged while an alert fires."""

    @abstractmethod
    def check(self, url: str) -> str:
        """The link to the form of a check of the node."""

    @abstractmethod
    def digest(self, cluster: str, notifications: int, drill: bool) -> str:
        """The title of several notifications in one message."""


def counts(alerts: Sequence[Alert]) -> tuple[int, int]:
    """The numbers of firing and of resolved alerts."""
    firing = sum(alert.status == "firing" for alert in alerts)
    return firing, len(alerts) - firing


def alerts_of(groups: Sequence[Group]) -> list[Alert]:
    """All alerts of the groups."""
    return [alert for group in groups for alert in group.alerts]
