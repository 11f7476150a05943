"""The servers that the hub queries, by the current settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodevitals_hub.alerting.prometheus_queries import Server
from nodevitals_hub.settings.response import ServerSettings

if TYPE_CHECKING:
    from nodevitals_hub.context import Hub


class Servers:
    """One connection per server, which is replaced when SIGHUP changes the server's settings."""

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
        """Close the connections."""
        for _, server in self._servers.values():
            await server.close()

    def _server(self, name: str, settings: ServerSettings | None) -> Server | None:
        if settings is None:
            return None
        kept = self._servers.get(name)
        if kept is None or kept[0] != settings:
            kept = self._servers[name] = settings, Server(name, settings)
        return kept[1]
