"""The clocks of a process, moved while it runs, below Python (faults/clocks.c)."""

from __future__ import annotations

import struct
from pathlib import Path

from testbed.faultycalls import library

DAY = 86_400


class MovedClocks:
    """The clocks of the processes that get `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clocks"
        self._set, self._passed = 0, 0
        self._write()

    @property
    def environment(self) -> dict[str, str]:
        """The variables of such a process, and of those that it starts."""
        return {"LD_PRELOAD": str(library("clocks")), "CLOCKS_FILE": str(self._file)}

    def set_by(self, seconds: int) -> None:
        """Let the time of day be wrong by so much from now on; the monotonic clock goes on."""
        self._set = seconds
        self._write()

    def pass_by(self, seconds: int) -> None:
        """Let so many seconds have passed."""
        self._passed += seconds
        self._write()

    def _write(self) -> None:
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=qq", self._set, self._passed))
