"""The servers that are asked, and what /metrics shows of what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nodevitals_hub import families
from nodevitals_hub.alerting.prometheus_queries import Server
from nodevitals_hub.settings.response import ServerSettings
from nodevitals_hub.store import aside_tables

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub


class Respond:
    """The shared parts of one hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._servers: dict[str, tuple[ServerSettings, Server]] = {}

    @property
    def prometheus(self) -> Server | None:
        """Prometheus; None where none is set."""
        return self._server("prometheus", self._hub.settings.prometheus)

    @property
    def alertmanager(self) -> Server | None:
        """Alertmanager; None where none is set."""
        return self._server("alertmanager", self._hub.settings.alertmanager)

    async def close(self) -> None:
        """Close what is open."""
        for _, server in self._servers.values():
            await server.close()

    def _server(self, name: str, settings: ServerSettings | None) -> Server | None:
        """The server of the settings as they are now: SIGHUP may have replaced them."""
        if settings is None:
            return None
        kept = self._servers.get(name)
        if kept is None or kept[0] != settings:
            kept = self._servers[name] = settings, Server(name, settings)
        return kept[1]


def samples(hub: Hub) -> Iterator[tuple[Any, tuple[str, ...], float]]:
    """What /metrics shows of what could not be read."""
    found = {one.kind: (one.number, one.newest) for one in hub.database.aside}
    times = [*hub.store.set_aside, *hub.database.set_aside]
    if times:
        number, newest = found.get("file", (0, 0.0))
        found["file"] = number + len(times), max(newest, *times)
    for kind in aside_tables.KINDS:
        number, newest = found.get(kind, (0, 0.0))
        yield families.SET_ASIDE, (kind,), number
        if number:
            yield families.SET_ASIDE_NEWEST, (kind,), newest


def of(hub: Hub) -> Respond:
    """The shared parts of this hub; made at the first use."""
    if hub.respond is None:
        hub.respond = Respond(hub)
    found: Respond = hub.respond
    return found
