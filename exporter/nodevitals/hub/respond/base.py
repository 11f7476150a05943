"""What the modules of this folder share: the database, the servers that are asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Optional

from nodevitals.hub.respond.asking import Server
from nodevitals.hub.respond.database import FILE_NAME, Database
from nodevitals.hub.respond.settings import ServerSettings

if TYPE_CHECKING:
    from nodevitals.hub.context import Hub


class Respond:
    """The shared parts of one hub."""

    def __init__(self, hub: Hub) -> None:
        """Open the database. Raises StoreError."""
        self._hub = hub
        self.database = Database(hub.settings.state_directory)
        self._servers: dict[str, tuple[ServerSettings, Server]] = {}

    @property
    def prometheus(self) -> Optional[Server]:
        """Prometheus; None where none is set."""
        return self._server("prometheus", self._hub.settings.prometheus)

    @property
    def alertmanager(self) -> Optional[Server]:
        """Alertmanager; None where none is set."""
        return self._server("alertmanager", self._hub.settings.alertmanager)

    async def close(self) -> None:
        """Close what is open."""
        for _, server in self._servers.values():
            await server.close()
        await self.database.close()

    def _server(self, name: str, settings: Optional[ServerSettings]) -> Optional[Server]:
        """The server of the settings as they are now: SIGHUP may have replaced them."""
        if settings is None:
            return None
        kept = self._servers.get(name)
        if kept is None or kept[0] != settings:
            kept = self._servers[name] = settings, Server(name, settings)
        return kept[1]


def exists(hub: Hub) -> bool:
    """Whether there is a database: modules that nothing asks for do not make one."""
    return Path(hub.settings.state_directory, FILE_NAME).exists()


def of(hub: Hub) -> Respond:
    """The shared parts of this hub; made at the first use. Raises StoreError."""
    if hub.respond is None:
        hub.respond = Respond(hub)
    found: Respond = hub.respond
    return found
