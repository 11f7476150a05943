"""Device files of GPUs: those of the memory devices of this machine, bound to their names."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.probes.nvidia import listing

MAJOR = 1  # of /dev/null


class DeviceFolder:
    """A folder that stands for /dev."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bound: list[Path] = []

    def add(self, name: str, device: str = "null", options: str = "") -> None:
        """A device file of this name, without permission to make one."""
        path = self.folder / name
        subprocess.run(self.command_to_add(name, device), shell=True, check=True)
        if options:
            subprocess.run(["mount", "-o", f"remount,bind,{options}", path], check=True)

    def command_to_add(self, name: str, device: str = "null") -> str:
        """The shell command that makes one; it has run when `remove_all` is called."""
        path = self.folder / name
        self._bound.append(path)
        return f"touch {path} && mount --bind /dev/{device} {path}"

    def remove(self, name: str) -> None:
        """Remove a device file."""
        path = self.folder / name
        subprocess.run(["umount", path], check=True)
        path.unlink()
        self._bound.remove(path)

    def remove_all(self) -> None:
        """Remove what was added."""
        for path in tuple(self._bound):
            self.remove(path.name)


def device_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceFolder]:
    """A folder that the probe takes for /dev, as long as a test lasts."""
    path.mkdir()
    made = DeviceFolder(path)
    monkeypatch.setattr(listing, "FOLDER", path)
    monkeypatch.setattr(listing, "MAJOR", MAJOR)
    yield made
    made.remove_all()
