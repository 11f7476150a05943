"""Writes rendered files to a folder, over what an earlier run wrote and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from nodevitals.commands.rules.site.rendering import HEAD
from nodevitals.commands.terminal import CommandError

_FOLDERS = ("", "tests", "tests/defaults")


def write(folder: Path, files: Mapping[str, str]) -> int:
    """Write files by their path in the folder, and remove rendered files of an earlier run that
    are no longer made: Prometheus would load them as well. Return the number of those.

    Raises CommandError, before anything is written, where a file that was not rendered is in the
    way.
    """
    try:
        before = {path for name in _FOLDERS for path in (folder / name).glob("*.yaml")}
        ours = {path for path in before if _is_ours(path)}
        wanted = {folder / name: text for name, text in files.items()}
        taken = sorted(str(path) for path in wanted if path in before - ours)
        if taken:
            text = "was not written by rules render: choose another --output"
            raise CommandError("\n".join(f"{path}: {text}" for path in taken))
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.new")
            new.write_text(text)
            os.replace(new, path)
        stale = ours - set(wanted)
        for path in stale:
            path.unlink()
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    return len(stale)


def _is_ours(path: Path) -> bool:
    with path.open() as file:
        return file.readline().startswith(HEAD)
