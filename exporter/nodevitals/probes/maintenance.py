"""Probe `maintenance`: whether planned work on the node is declared, by a file of the node.

In: the file, which `nodevitals maintenance` or any other tool writes. Out:
`nodevitals_node_maintenance*`. No file: not in maintenance. A regular file: in maintenance until
its end, also where its text is damaged. Anything else at the path, or a file that cannot be read:
unknown.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Optional

import msgspec

from nodevitals.probe import (
    Families,
    Host,
    Probe,
    ProbeError,
    ProbeSettings,
    Problem,
    Readings,
    Seconds,
)
from nodevitals.quantities import parse_duration, shown
from nodevitals.wire import without_controls

metrics = Families("node")
MAINTENANCE = metrics.gauge(
    "maintenance", "Whether the node's maintenance file declares planned work."
)
END = metrics.gauge(
    "maintenance_end_timestamp_seconds",
    "Unix time at which the maintenance ends, on the node's clock; missing outside maintenance.",
)
INFO = metrics.gauge("maintenance_info", "Always 1; reason of the maintenance.", "reason")

MAX_FILE_BYTES = 4096
MAX_REASON_CHARACTERS = 64


class MaintenanceSettings(ProbeSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file that declares planned work, and for how long one file can."""

    file: str = "/etc/nodevitals/maintenance"
    """While this file exists, the node is in maintenance: its alerts are muted. A path that is
    lost at a reboot (/run) ends the maintenance there. Only root should be able to write it."""
    default_duration: Seconds = 86400.0
    """Time from the last change of the file to the end, where the file has none."""
    max_duration: Seconds = 7 * 86400.0
    """Longest time from the last change of the file to the end."""

    def problems(self) -> Iterator[Problem]:
        """The path must be absolute, the default within the maximum."""
        if not self.file.startswith("/") or "\0" in self.file:
            yield Problem("file", "not an absolute path: begin it with /")
        if self.default_duration > self.max_duration:
            yield Problem("default_duration", "over max_duration: choose at most that")


class Declaration(msgspec.Struct, frozen=True):
    """The content of a maintenance file. `until` is a Unix time, `seconds` counts from the file's
    last change; None if the file has no such line. `problem` is what could not be parsed.
    """

    reason: str = ""
    until: Optional[float] = None
    seconds: Optional[float] = None
    problem: str = ""


class Maintenance(msgspec.Struct, frozen=True):
    """Planned work that a file declares: the Unix times of its last change and of the end."""

    since: float
    until: float
    reason: str
    problem: str


def parse_declaration(text: str) -> Declaration:
    """Lines `until=TIME` (with a zone, as 2026-01-31T18:00:00Z), `for=DURATION` and
    `reason=TEXT`; a line without any of these is the reason too, `#` starts a comment. The first
    line of each counts.
    """
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if name in ("until", "for", "reason") and equals:
            values.setdefault(name, value.strip())
        elif name and not name.startswith("#"):
            values.setdefault("reason", line.strip())
    reason = without_controls(values.get("reason", ""))
    until = seconds = None
    problem = ""
    try:
        until = parse_time(values["until"]) if "until" in values else None
        seconds = parse_duration(values["for"]) if "for" in values else None
    except ValueError as error:
        problem = str(error)
    return Declaration(reason[:MAX_REASON_CHARACTERS], until, seconds, problem)


def parse_time(text: str) -> float:
    """A time with its zone as Unix time. Raises ValueError with the format."""
    try:
        # Python 3.10 does not parse the Z.
        moment = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
        seconds = moment.timestamp() if moment.tzinfo is not None else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"{shown(text)} is not a time with its zone, as 2026-01-31T18:00:00Z")
    return seconds


def read_maintenance(path: str, settings: MaintenanceSettings) -> Maintenance | None:
    """The maintenance that a file declares, also if it has ended; None if there is no file.
    Symbolic links are followed (a ConfigMap is one). Raises OSError, also if it is no regular file,
    which is not opened for reading.
    """
    try:
        text, changed = _read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(text) > MAX_FILE_BYTES:
        said = Declaration(problem=f"larger than {MAX_FILE_BYTES} bytes")
    else:
        said = parse_declaration(text.decode("utf-8", "replace"))
    # ctime, because `touch` and `rsync --times` can set mtime.
    since = min(changed, time.time())
    until = since + settings.default_duration if said.until is None else said.until
    if said.seconds is not None:
        until = min(until if said.until is not None else math.inf, since + said.seconds)
    return Maintenance(since, min(until, since + settings.max_duration), said.reason, said.problem)


def _read(path: str) -> tuple[bytes, float]:
    """The first bytes of a regular file and the time of its last change."""
    entry = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(entry)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file", path)
        # O_NONBLOCK: another process's lease on the file would delay the opening.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(f"/proc/self/fd/{entry}", flags)
    finally:
        os.close(entry)
    try:
        return os.read(descriptor, MAX_FILE_BYTES + 1), status.st_ctime
    finally:
        os.close(descriptor)


class MaintenanceProbe(Probe):
    """Planned work on the node, declared by a file: its end and its reason."""

    name = "maintenance"
    default = "on"
    families = metrics
    shared = True
    Settings = MaintenanceSettings
    settings: MaintenanceSettings

    def run(self, readings: Readings) -> None:
        """Read the file."""
        path = maintenance_path(self.host, self.settings)
        try:
            maintenance = read_maintenance(path, self.settings)
        except OSError as error:
            raise ProbeError("file", f"{path}: {error.strerror}: state unknown") from None
        if maintenance is None or maintenance.until <= time.time():
            readings.add(MAINTENANCE, 0)
            readings.condition("maintenance", "none")
            return
        readings.add(MAINTENANCE, 1)
        readings.add(END, maintenance.until)
        readings.add(INFO, 1, maintenance.reason)
        readings.condition("maintenance", "in progress", maintenance.reason)
        if maintenance.problem:
            raise ProbeError(
                "content", f"{path}: {maintenance.problem}; in maintenance all the same"
            )


def maintenance_path(host: Host, settings: MaintenanceSettings) -> str:
    """The path of the file for this process."""
    return host.root(settings.file)
