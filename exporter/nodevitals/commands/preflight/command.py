"""`nodevitals preflight`: is this node fit for a job that starts now?

In: the options. Out: the findings, and an exit status. The agent has looked already: its fresh
results are read, so drivers are not asked here. Everything else runs in threads or processes that
may hang; the process ends at the time limit with what it knows.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from nodevitals.commands.doctor.findings import UNKNOWN, Finding, print_findings, status_of
from nodevitals.commands.hub_client import add_hub_options
from nodevitals.commands.terminal import CommandError, Subparsers, print_json
from nodevitals.quantities import parse_duration

_HTTP_CONFIG = "user, password, CA for it, in promtool's --http.config.file format (default: none)"
AGENT = "http://localhost:9855"
MIN_SECONDS = 1.0
EXAMPLES = """\
examples:
  nodevitals preflight
  nodevitals preflight --prometheus http://prometheus:9090 --path /data --nodes 'gpu-[1-8]' --ssh
  nodevitals preflight --deep --hub https://hub.example.org --nodes gpu-7,gpu-8

Status 0: fit. 1: a defect was found. 2: something could not be found out."""


class _OverdueError(BaseException):
    """The time is up; not an Exception, which some library would catch."""


def add_to(commands: Subparsers) -> None:
    """Add `preflight` to the command line."""
    parser = commands.add_parser(
        "preflight", help="is this node fit for a job that starts now", epilog=EXAMPLES
    )
    add = parser.add_argument
    url = f"the agent, with its telemetry path if that is not /metrics (default {AGENT})"
    add("--url", default=AGENT, metavar="URL", help=url)
    add("--http.config.file", dest="url_http", metavar="FILE", help=_HTTP_CONFIG)
    add("--prometheus", metavar="URL", help="refuse also where alerts fire (default: none)")
    add("--prometheus.http.config.file", dest="prometheus_http", metavar="FILE", help=_HTTP_CONFIG)
    add(
        "--node", metavar="NAME", help="this node in alerts and on the hub (default: its host name)"
    )
    add("--cluster", default="", metavar="NAME", help="its cluster in alerts (default: any)")
    devices = "accelerators that the job uses, by index: 0,1 (default: all)"
    add("--devices", default="", metavar="LIST", help=devices)
    path = "a path that the job uses; may be repeated (default: none)"
    add("--path", action="append", default=[], metavar="PATH", help=path)
    add("--write", action="store_true", help="the paths must be writable")
    nodes = "all nodes of the job, as Slurm writes them, or @FILE (default: none)"
    add("--nodes", default="", metavar="LIST", help=nodes)
    add("--port", type=int, default=22, metavar="N", help="TCP port of the peers (default 22)")
    ssh = "log in to each peer, without a password, to a known host; compares clocks"
    add("--ssh", action="store_true", help=ssh)
    option = "option of ssh, such as -i=FILE; may be repeated (default: none)"
    add("--ssh-option", action="append", default=[], metavar="OPTION", help=option)
    add("--deep", action="store_true", help="also tests by the hub: needs --hub, and an idle node")
    add_hub_options(parser)
    add("--preset", default="", metavar="NAME", help="preset of the pair test (default: none)")
    limit = "time limit in all (default 10s, with --deep 5m)"
    add("--timeout", metavar="DURATION", help=limit)
    add("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the findings; end the process: 0 fit, 1 a defect, 2 something is unknown."""
    began = time.monotonic()
    seconds = _seconds(options)
    # requests is imported here: no other command pays for it.
    from nodevitals.commands.preflight.examination import Preflight

    examination = Preflight(options, began + 0.9 * seconds)
    findings: list[Finding] = []
    signal.signal(signal.SIGALRM, _overdue)
    signal.setitimer(signal.ITIMER_REAL, max(began + seconds - time.monotonic(), 0.01))
    try:
        _collect(examination.findings, findings)
    except _OverdueError:
        text = f"not finished within {seconds:g} s"
        findings.append(Finding("preflight", UNKNOWN, text, "raise --timeout"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    if options.json:
        print_json(findings)
    else:
        print_findings(findings)
    sys.stdout.flush()
    os._exit(status_of(findings))  # threads may wait for servers, children for file systems


def _collect(source: Callable[[], Iterator[Finding]], findings: list[Finding]) -> None:
    for finding in source():
        findings.append(finding)  # those so far count when the time is up


def _seconds(options: argparse.Namespace) -> float:
    if options.deep and not options.hub:
        raise CommandError("--deep needs --hub URL")
    try:
        seconds = parse_duration(options.timeout or ("5m" if options.deep else "10s"))
    except ValueError as error:
        raise CommandError(f"--timeout: {error}") from None
    if seconds < MIN_SECONDS:
        raise CommandError(f"--timeout: {options.timeout} is under {MIN_SECONDS:g}s")
    return seconds


def _overdue(_number: int, _frame: FrameType | None) -> None:
    raise _OverdueError
