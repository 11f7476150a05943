"""`nodevitals drill`: rehearse the notification of a fault, through the hub.

In: a node, the name of a fault. Out: a drill of the hub, begun, ended or listed.
"""

from __future__ import annotations

import argparse
import time
from typing import Optional

import msgspec

from nodevitals.commands.terminal import (
    GOOD,
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
    printable,
)
from nodevitals.quantities import parse_duration

EXAMPLES = """\
examples:
  nodevitals drill gpu-7 --fault accelerator_lost --for 10m --hub https://hub.example.org
  nodevitals drill --end 20261123-031500-x7k2qp --hub https://hub.example.org
  nodevitals drill --hub https://hub.example.org

The alert has the label drill="true" and takes the way of a real one; nothing acts on it. It needs
drill.enabled in the hub's configuration and a token with the role act; without a node the drills
are listed. Exit status: 0 good, 2 refused or could not tell, 130 interrupted."""
DEFAULT_DURATION = "10m"
DRILLS_PATH = "/api/v1/drills"
COMPONENTS = ("accelerator", "agent", "fabric", "mount", "network", "node", "rdma")
SEVERITIES = ("critical", "warning", "info")


class _Drill(msgspec.Struct, frozen=True, kw_only=True):
    """A drill, as far as it is shown."""

    id: str
    node: str
    fault: str
    severity: str
    until: float
    by: str
    ended: Optional[float] = None


def add_to(commands: Subparsers) -> None:
    """Add `drill` to the command line."""
    from nodevitals.commands.hub.client import add_hub_options

    parser = commands.add_parser(
        "drill", help="rehearse the notification of a fault", epilog=EXAMPLES
    )
    add = parser.add_argument
    add("node", nargs="?", metavar="NODE", help="name of the node (default: none, list the drills)")
    add("--fault", metavar="NAME", help="fault to rehearse, such as accelerator_lost")
    severity = "severity, by which routes choose (default: critical)"
    add("--severity", choices=SEVERITIES, default="critical", help=severity)
    component = "component, by which routes choose (default: node)"
    add("--component", choices=COMPONENTS, default="node", help=component)
    add(
        "--for",
        dest="duration",
        default=DEFAULT_DURATION,
        metavar="DURATION",
        help=f"how long, such as 30m (default {DEFAULT_DURATION})",
    )
    add("--end", metavar="ID", help="end this drill (default: none)")
    add("--json", action="store_true", help="print JSON")
    add_hub_options(parser, needed=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Begin, end or list drills."""
    from nodevitals.commands.hub.client import client_of

    if options.end and (options.node or options.fault):
        raise CommandError("--end: write only the drill to end")
    if bool(options.node) != bool(options.fault):
        raise CommandError("write a node and --fault, or neither to list the drills")
    client = client_of(options)
    if options.end:
        drill = client.call("DELETE", f"{DRILLS_PATH}/{_identity(options.end)}", _Drill)
        return _print([drill], options)
    if options.node:
        return _print([client.call("POST", DRILLS_PATH, _Drill, _wanted(options))], options)
    return _print(client.call("GET", DRILLS_PATH, list[_Drill]), options)


def _wanted(options: argparse.Namespace) -> dict[str, object]:
    try:
        seconds = parse_duration(options.duration)
    except ValueError as error:
        raise CommandError(f"--for: {error}") from None
    return {
        "node": options.node,
        "fault": options.fault,
        "severity": options.severity,
        "component": options.component,
        "seconds": seconds,
    }


def _identity(text: str) -> str:
    if not (text.isascii() and text.replace("-", "").isalnum()):
        raise CommandError(f"--end: {printable(text)} is no drill: nodevitals drill lists them")
    return text


def _print(drills: list[_Drill], options: argparse.Namespace) -> int:
    if options.json:
        print_json(drills)
        return GOOD
    now = time.time()
    rows = [
        [
            *(drill.id, drill.node, drill.fault, drill.severity),
            "ended" if drill.ended is not None or drill.until <= now else local_time(drill.until),
            drill.by or "-",
        ]
        for drill in drills
    ]
    if rows:
        print_table(["drill", "node", "fault", "severity", "until", "by"], rows)
    else:
        print("no drill has been started yet")
    return GOOD
