"""The launcher of collectives that the hub's configuration names."""

from __future__ import annotations

from typing import Optional

from nodevitals.checks.launchers import Launcher
from nodevitals.checks.mpirun import MpirunLauncher
from nodevitals.hub.settings import CollectivesSettings


def launcher_of(settings: CollectivesSettings) -> Optional[Launcher]:
    """The launcher; None where collectives are refused."""
    if settings.launcher == "mpirun":
        return MpirunLauncher(settings.ssh_user)
    return None
