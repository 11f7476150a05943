"""`nodevitals selfcheck`: put this node under load, without a second node, and compare.

In: the tools that the node has. Out: a line per device and check, and an exit status. It refuses
where a job uses the node, and stops within a second where one starts.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Optional

import msgspec

from nodevitals.commands.options import add_node_options, host_of, load_config
from nodevitals.commands.terminal import (
    COULD_NOT_TELL,
    FOUND_WRONG,
    GOOD,
    CommandError,
    Subparsers,
    print_json,
    print_table,
)
from nodevitals.linux.host import Host
from nodevitals.linux.process import FORK_SERVER
from nodevitals.linux.sysfs import list_names, read_text
from nodevitals.probes.selfcheck.checks import Check, Offer, offer
from nodevitals.probes.selfcheck.execution import Execution
from nodevitals.probes.selfcheck.results import KINDS, Kind, Result, for_all, worst
from nodevitals.probes.selfcheck.settings import SelfcheckSettings
from nodevitals.probes.selfcheck.tools import dcgm
from nodevitals.quantities import parse_duration

LIMIT = "10m"
HEAD = ("CHECK", "DEVICE", "PORT", "OUTCOME", "GB/s", "EXPECTED", "NOTE")
NOTES = {
    "maintenance": "the node is in maintenance",
    "job_marker": "a job runs on the node",
    "accelerator_in_use": "a process has an accelerator open; --force checks all the same",
    "processes_unseen": "not all processes can be seen: run it as root, or with --force",
    "link_busy": "the port has traffic; --force checks all the same",
    "memory_short": "too little memory is available: lower memory_mebibytes",
    "time_limit": "the time is up: raise --time-limit",
}
EXAMPLES = """\
examples:
  nodevitals selfcheck
  nodevitals selfcheck --kind host_to_device --device 3
  nodevitals selfcheck --kind dcgm --dcgm-level 3 --time-limit 1h --json

Status 0: good. 1: slow, or a fault was found. 2: refused, or a tool failed, or there is none."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What --json prints. `absent` has the kinds that this node has no tool or device for."""

    results: list[Result]
    absent: dict[str, str]
    seconds: float


def add_to(commands: Subparsers) -> None:
    """Add `selfcheck` to the command line."""
    parser = commands.add_parser(
        "selfcheck", help="test the bandwidths inside this idle node now", epilog=EXAMPLES
    )
    add = parser.add_argument
    kind = "a check; may be repeated (default: those of the configuration)"
    add("--kind", action="append", default=[], choices=KINDS, help=kind)
    device = "index of a GPU or NPU, RDMA device or port; may be repeated (default: all)"
    add("--device", action="append", default=[], metavar="NAME", help=device)
    level = "level of dcgmi diag (default: that of the configuration, 1 without one)"
    add("--dcgm-level", type=int, choices=dcgm.LEVELS, help=level)
    add(
        "--time-limit",
        default=LIMIT,
        metavar="DURATION",
        help=f"time limit in all (default {LIMIT})",
    )
    force = "check also where a job seems to use the node (default: refuse)"
    add("--force", action="store_true", help=force)
    add("--json", action="store_true", help="one JSON object")
    add_node_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the checks one after the other; 0 good, 1 slow or failed, 2 could not tell."""
    try:
        limit = parse_duration(options.time_limit)
    except ValueError as error:
        raise CommandError(f"--time-limit: {error}") from None
    host, settings = host_of(options), _settings(options)
    began = time.monotonic()
    offered = offer(host, settings, _kinds(options, settings), options.device)
    execution = Execution(host, settings.gate, fork_servers(host) | {os.getpid()})
    results: list[Result] = []
    for check in offered.checks:
        if sys.stderr.isatty():
            print(f"{check.name} …", file=sys.stderr)
        results += _run(execution, check, began + limit, options.force)
    report = Report(
        results=results, absent=offered.absent, seconds=round(time.monotonic() - began, 3)
    )
    if options.json:
        print_json(report)
    else:
        _print(report)
    return _status(offered, results, explicit=bool(options.kind))


def fork_servers(host: Host) -> frozenset[int]:
    """The fork servers of agents on this node: their workers have the accelerators open, and are
    no job.
    """
    pids = set()
    for name in list_names(host.procfs):
        if name.isdecimal() and read_text(host.proc(f"{name}/comm")) == FORK_SERVER:
            pids.add(int(name))
    return frozenset(pids)


def _settings(options: argparse.Namespace) -> SelfcheckSettings:
    settings: SelfcheckSettings = load_config(options.config).probes["selfcheck"]
    if options.dcgm_level is None:
        return settings
    return msgspec.structs.replace(settings, dcgm_level=options.dcgm_level)


def _kinds(options: argparse.Namespace, settings: SelfcheckSettings) -> tuple[Kind, ...]:
    """The kinds to check. A level of DCGM asks for it."""
    if options.kind:
        return tuple(options.kind)
    return (*settings.kinds, *(("dcgm",) if options.dcgm_level is not None else ()))


def _run(execution: Execution, check: Check, end: float, forced: bool) -> list[Result]:
    left = end - time.monotonic()
    if left <= 0:
        return for_all(check.kind, check.devices, check.port, "refused", "time_limit")
    return list(execution.run(check, left, forced).results)


def _status(offered: Offer, results: list[Result], explicit: bool) -> int:
    """A kind that was requested and is not offered has no result: status 2."""
    outcome = worst(result.outcome for result in results)
    if outcome in ("failed", "slow"):
        return FOUND_WRONG
    unknown = outcome in (None, "harness", "refused", "skipped")
    return COULD_NOT_TELL if unknown or (explicit and offered.absent) else GOOD


def _print(report: Report) -> None:
    rows = [
        (
            *(result.kind, result.device or "-", result.port or "-", result.outcome),
            _giga(result.bandwidth_bytes_per_second),
            _giga(result.expected_bytes_per_second),
            NOTES.get(result.message, result.message),
        )
        for result in report.results
    ]
    if rows:
        print_table(HEAD, rows)
    for kind, why in report.absent.items():
        print(f"{kind} is not checked: {why}", file=sys.stderr)
    if not rows:
        print("nothing was checked", file=sys.stderr)


def _giga(value: Optional[float]) -> str:
    return "-" if value is None else f"{value / 1e9:.2f}"
