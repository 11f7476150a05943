"""The parts of one hub, made in the order in which they need each other.

In: the objects that most of them use (context.py). Out: their endless tasks by name, and Litestar
handlers for the web server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from nodevitals_hub import metrics
from nodevitals_hub.alerting import receiver
from nodevitals_hub.alerting.servers import Servers
from nodevitals_hub.context import Hub
from nodevitals_hub.incidents import drill, incident_routes
from nodevitals_hub.incidents.incident_intake import Intake
from nodevitals_hub.incidents.incidents import Incidents
from nodevitals_hub.leases import lease_pages, lease_routes
from nodevitals_hub.leases.lease_client import LeaseClient
from nodevitals_hub.leases.leases import Leases
from nodevitals_hub.notify import notify_routes
from nodevitals_hub.notify.notify import Notifier
from nodevitals_hub.notify.owner_reader import Owners
from nodevitals_hub.notify.watchdog import Watchdog
from nodevitals_hub.out_of_service import isolation_routes
from nodevitals_hub.out_of_service.isolations import Isolations
from nodevitals_hub.triggers import alerts, proposals, resources, schedules

Work = Callable[[], Awaitable[None]]
"""Runs until cancelled, or returns at once if there is nothing to do."""


class Parts:
    """All parts of one hub except its web server. A part that is not configured does nothing."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.leases = Leases(
            lambda: hub.settings.leases,
            hub.settings.state_directory,
            hub.checks.members,
            LeaseClient(hub.settings.agents).send,
        )
        self.schedules = schedules.Schedules(hub)
        self.alerts = alerts.Alerts(lambda: hub.settings, hub.checks, self.leases.ask_for_alert)
        self.servers = Servers(hub)
        self.receiver = receiver.Receiver(hub)
        self.incidents = Incidents(hub)
        self.intake = Intake(hub, self.servers, self.receiver, self.incidents)
        self.drills = drill.Drills(hub)
        self.notifier = Notifier(hub, self.receiver, self.incidents)
        self.watchdog = Watchdog(hub, self.receiver, self.notifier)
        self.owners = Owners(hub, self.servers, self.receiver, self.notifier)
        self.isolations = Isolations(hub, self.servers)
        self.metrics = metrics.HubMetrics(
            hub,
            [
                self.leases.samples,
                self.schedules.samples,
                self.incidents.samples,
                self.drills.samples,
                self.notifier.samples,
                self.isolations.samples,
            ],
        )

    def works(self) -> Mapping[str, Work]:
        """The endless tasks beside the checks, by their name in the log."""
        works: dict[str, Work] = {
            "triggers.resources": partial(resources.run, self.hub),
            "triggers.schedules": self.schedules.run,
            "leases.lease_routes": self.leases.run,
            "notify.notify": self.notifier.run,
            "notify.watchdog": self.watchdog.run,
            "notify.owner_reader": self.owners.run,
            "incidents.incidents": self.intake.run,
            "out_of_service.isolations": self.isolations.run,
            "incidents.drill": self.drills.run,
            "metrics": self.metrics.run,
        }
        return {f"nodevitals_hub.{name}": work for name, work in works.items()}

    def handlers(self) -> list[Any]:
        """The handlers for the web server, besides those of checks."""
        hub = self.hub
        return [
            *schedules.handlers(hub, self.schedules),
            *alerts.handlers(self.alerts),
            *proposals.handlers(hub, self.alerts),
            *lease_routes.handlers(hub, self.leases),
            *lease_pages.handlers(hub, self.leases),
            *receiver.handlers(self.receiver),
            *notify_routes.handlers(hub),
            *incident_routes.handlers(hub, self.incidents),
            *isolation_routes.handlers(hub, self.isolations),
            *drill.handlers(self.drills),
            *metrics.handlers(self.metrics),
        ]
