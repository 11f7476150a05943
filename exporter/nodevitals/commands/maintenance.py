"""`nodevitals maintenance`: declare planned work on this node, end it, print it.

In: the file of the probe `maintenance`. `start` writes it at once as a whole, `end` removes it; the
agent needs no signal and may be down.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from datetime import datetime, timezone
from typing import NoReturn, Optional, cast

import msgspec

from nodevitals.commands.options import add_config_option, load_config
from nodevitals.commands.terminal import (
    FOUND_WRONG,
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
)
from nodevitals.linux.host import Host
from nodevitals.probes.maintenance import (
    MAX_REASON_CHARACTERS,
    Maintenance,
    MaintenanceSettings,
    maintenance_path,
    read_maintenance,
)
from nodevitals.quantities import parse_duration

EXAMPLES = """\
examples:
  nodevitals maintenance start --for 2h --reason "replace GPU 3"
  nodevitals maintenance end"""


class Shown(msgspec.Struct, frozen=True):
    """What `--json` prints; times are Unix times, None without a file."""

    maintenance: bool
    file: str
    since: Optional[float] = None
    until: Optional[float] = None
    reason: str = ""


def add_to(commands: Subparsers) -> None:
    """Add `maintenance` to the command line."""
    parser = commands.add_parser(
        "maintenance",
        help="mute this node's alerts during planned work: start, end, show",
        epilog=EXAMPLES,
    )
    parser.add_argument("action", choices=("start", "end", "show"), help="what to do: %(choices)s")
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="DURATION",
        help="start: time to the end, such as 2h (default: probes.maintenance.default_duration)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="start: one short line (default: none)")
    add_config_option(parser)
    parser.add_argument(
        "--path.rootfs", dest="rootfs", default="/", metavar="PATH", help="the node's / (default /)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write, remove or read the file; then print the current maintenance."""
    settings = cast("MaintenanceSettings", load_config(options.config).probes["maintenance"])
    path = maintenance_path(Host(rootfs=options.rootfs), settings)
    if options.action != "start" and (options.duration is not None or options.reason is not None):
        raise CommandError(f"maintenance {options.action}: --for and --reason belong to start")
    if settings.enabled is False:
        raise CommandError("probes.maintenance is not enabled: the agent does not read the file")
    ended = False
    try:
        if options.action == "start":
            _write(path, _content(options, settings))
        elif options.action == "end":
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
                ended = True
        declared = read_maintenance(path, settings)
    except OSError as error:
        _fail(path, error)
    if declared is not None and declared.problem:
        raise CommandError(
            f"{path}: {declared.problem}; maintenance start writes it anew", FOUND_WRONG
        )
    _print(path, declared, as_json=options.json)
    if ended and not options.json:
        print("alerts stay muted for 10 minutes more")
    return 0


def _content(options: argparse.Namespace, settings: MaintenanceSettings) -> str:
    reason = options.reason or ""
    if len(reason) > MAX_REASON_CHARACTERS or not reason.isprintable():
        raise CommandError(f"--reason: one line of at most {MAX_REASON_CHARACTERS} characters")
    seconds = settings.default_duration
    if options.duration is not None:
        try:
            seconds = parse_duration(options.duration)
        except ValueError as error:
            raise CommandError(f"--for: {error}") from None
    if seconds > settings.max_duration:
        unit, name = (86400, "d") if settings.max_duration % 86400 == 0 else (3600, "h")
        limit = f"{settings.max_duration / unit:g}{name}"
        text = f"--for: {options.duration} is longer than {limit}: choose a shorter time, or a"
        raise CommandError(f"{text} larger probes.maintenance.max_duration")
    end = datetime.fromtimestamp(time.time() + seconds, timezone.utc)
    return f"until={end.isoformat(timespec='seconds')}\nreason={reason}\n"


def _write(path: str, text: str) -> None:
    """Replace the file: readers get the old or the new text, also after a power loss."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    descriptor, new = tempfile.mkstemp(prefix=".maintenance-", dir=folder)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, 0o644)  # the agent may run as another user
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _fail(path: str, error: OSError) -> NoReturn:
    hint = ""
    if isinstance(error, PermissionError):
        hint = "; run it as root"
    elif isinstance(error, IsADirectoryError):
        hint = "; remove it, or set probes.maintenance.file"
    raise CommandError(f"{path}: {error.strerror}{hint}") from None


def _print(path: str, declared: Maintenance | None, *, as_json: bool) -> None:
    active = declared is not None and declared.until > time.time()
    if as_json:
        rest = () if declared is None else (declared.since, declared.until, declared.reason)
        print_json(Shown(active, path, *rest))
        return
    if declared is None:
        print(f"not in maintenance (no {path})")
        return
    print_table(
        ("MAINTENANCE", "SINCE", "UNTIL", "REASON", "FILE"),
        [
            (
                "in progress" if active else "ended",
                local_time(declared.since),
                local_time(declared.until),
                declared.reason or "-",
                path,
            )
        ],
    )
