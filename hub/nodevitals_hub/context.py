"""The objects that most parts of a hub use."""

from __future__ import annotations

from nodevitals_hub.checks.coordinator import Coordinator
from nodevitals_hub.checks.members import Members
from nodevitals_hub.settings.hub import HubSettings
from nodevitals_hub.store.check_store import Store
from nodevitals_hub.store.response_database import Database


class Hub:
    """The core of a hub. Parts read `settings` at each use: SIGHUP replaces them."""

    def __init__(
        self, settings: HubSettings, store: Store, members: Members, checks: Coordinator
    ) -> None:
        self.settings = settings
        self.store = store
        self.database = Database(settings.state_directory)
        """The records made from alerts: messages, notifications, incidents, isolations."""
        self.members = members
        self.checks = checks
