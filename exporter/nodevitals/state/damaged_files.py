"""Renames damaged SQLite files: the new name contains the time, the folder stays the same.

In: the path of a database that cannot be used. Out: a line about it; the times of renamed files.
"""

from __future__ import annotations

import calendar
import contextlib
import os
import time
from pathlib import Path

MAX_KEPT = 3
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_TIME_PATTERN = f"{'[0-9]' * 8}T{'[0-9]' * 6}Z"
_LOGS = ("-wal", "-shm")


def set_aside(path: Path, reason: str, moment: time.struct_time | None = None) -> str:
    """Rename a damaged file and its log; remove the oldest file that was renamed before. `moment`
    is the time in UTC. Returns a line about it. Raises OSError.
    """
    aside = Path(f"{_prefix(path)}{time.strftime(_TIME_FORMAT, moment or time.gmtime())}")
    if os.path.lexists(aside):
        aside = aside.with_name(f"{aside.name}-{time.time_ns()}")
    # In this order: SQLite removes the log of a missing file.
    os.replace(path, aside)
    for suffix in _LOGS:
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    for file in _files(path)[:-MAX_KEPT]:
        for suffix in ("", *_LOGS):
            with contextlib.suppress(OSError):
                os.unlink(f"{file}{suffix}")
    short = " ".join(reason.split())
    return f"{path} is damaged ({short}): it is now {aside}, and a new one begins"


def times(path: Path) -> list[float]:
    """The times of the kept files' renames, in seconds since the epoch, oldest first."""
    start = len(_prefix(path).name)
    return [
        float(calendar.timegm(time.strptime(file.name[start:], _TIME_FORMAT)))
        for file in _files(path)
    ]


def _prefix(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged-")


def _files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{_prefix(path).name}{_TIME_PATTERN}"))
