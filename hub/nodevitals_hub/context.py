"""What every module of the hub is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store
from nodevitals_hub.store.response_database import Database


class Hub:
    """The hub's parts. Modules read `settings` at each use: SIGHUP replaces them."""

    def __init__(
        self,
        settings: HubSettings,
        store: Store,
        members: Members,
        coordinator: Coordinator,
    ) -> None:
        self.settings = settings
        self.store = store
        self.database = Database(settings.state_directory)
        """What came of alerts: messages, notifications, incidents, isolations."""
        self.lists = members
        self.coordinator = coordinator
        self.leases: Any = None
        """Made by leases.of(hub)."""
        self.metrics: Any = None
        """Made by metrics.of(hub)."""
        self.respond: Any = None
        """Made by alerting.backends.of(hub)."""
        self.receiver: Any = None
        """Made by alerting.receiver.of(hub)."""
        self.notifier: Any = None
        """Made by notify.notify.of(hub)."""
        self.incidents: Any = None
        """Made by incidents.incidents.of(hub)."""
        self.drills: Any = None
        """Made by incidents.drill.of(hub)."""
        self.isolations: Any = None
        """Made by out_of_service.isolations.of(hub)."""
        self.schedules: Any = None
        """Made by schedules.of(hub)."""
        self.schedule_states: Callable[[], Sequence[Any]] = tuple
        """The schedules, as triggers.schedule_book.ScheduleState; set by schedules.py."""

    @property
    def checks(self) -> Coordinator:
        """The checks."""
        return self.coordinator
