"""The parts of one hub, made in the order in which they need each other.

In: what all of them use (context.py). Out: works that run for ever, by name, and handlers of
Litestar for the web server.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from nodevitals_hub import metrics
from nodevitals_hub.alerting import receiver
from nodevitals_hub.context import Hub
from nodevitals_hub.incidents import drill, incidents
from nodevitals_hub.leases import lease_routes
from nodevitals_hub.notify import notify, owner_reader, watchdog
from nodevitals_hub.out_of_service import isolations
from nodevitals_hub.triggers import alerts, resources, schedules

Work = Callable[[], Awaitable[None]]
"""What ends only where it is cancelled, or has nothing to do."""


class Parts:
    """All parts of one hub but its web server."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def works(self) -> Mapping[str, Work]:
        """What runs beside the checks, by the name that the log has."""
        found = {
            "triggers.resources": resources.run,
            "triggers.schedules": schedules.run,
            "leases.lease_routes": lease_routes.run,
            "notify.notify": notify.run,
            "notify.watchdog": watchdog.run,
            "notify.owner_reader": owner_reader.run,
            "incidents.incidents": incidents.run,
            "out_of_service.isolations": isolations.run,
            "incidents.drill": drill.run,
            "metrics": metrics.run,
        }
        return {f"nodevitals_hub.{name}": partial(run, self._hub) for name, run in found.items()}

    def handlers(self) -> list[Any]:
        """What the web server serves beside the checks."""
        hub = self._hub
        return [
            *schedules.routes(hub),
            *alerts.routes(hub),
            *lease_routes.routes(hub),
            *receiver.routes(hub),
            *notify.routes(hub),
            *incidents.routes(hub),
            *isolations.routes(hub),
            *drill.routes(hub),
            *metrics.routes(hub),
        ]
