"""`nodevitals doctor`: prints a table about the agent and, with options, the pipeline behind it.

In: the options. Out: the findings, and an exit status. Servers, drivers and disks may hang, so the
process ends at the time limit with the findings so far.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from nodevitals.commands.doctor.findings import UNKNOWN, Finding, print_findings, status_of
from nodevitals.commands.options import add_node_options
from nodevitals.commands.terminal import CommandError, Subparsers, print_json
from nodevitals.quantities import parse_duration

_HTTP_CONFIG = "user, password, CA for it, in promtool's --http.config.file format (default: none)"
MIN_SECONDS = 2.0


class _OverdueError(BaseException):
    """The time limit is reached. Not an Exception, which a library could catch."""


def add_to(commands: Subparsers) -> None:
    """Add `doctor` to the command line."""
    parser = commands.add_parser(
        "doctor", help="check this node's agent, and the pipeline from it to Alertmanager"
    )
    add_node_options(parser)
    add = parser.add_argument
    add(
        "--url",
        default="http://localhost:9855",
        metavar="URL",
        help="the agent, with its telemetry path if that is not /metrics"
        " (default http://localhost:9855)",
    )
    add("--http.config.file", dest="url_http", metavar="FILE", help=_HTTP_CONFIG)
    for name in ("prometheus", "alertmanager"):
        add(f"--{name}", metavar="URL", help=f"check {name.capitalize()} as well (default: none)")
        add(f"--{name}.http.config.file", dest=f"{name}_http", metavar="FILE", help=_HTTP_CONFIG)
    add(
        "--job",
        default="nodevitals",
        metavar="NAME",
        help="scrape job that the rules read (default nodevitals)",
    )
    add(
        "--rules",
        metavar="FOLDER",
        help="rules that Prometheus should have loaded (default: the shipped ones)",
    )
    add("--timeout", default="20s", metavar="DURATION", help="time limit in all (default 20s)")
    add("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the findings and end the process: 0 no problem, 1 a problem, 2 something is unknown."""
    began = time.monotonic()
    try:
        seconds = parse_duration(options.timeout)
    except ValueError as error:
        raise CommandError(f"--timeout: {error}") from None
    if seconds < MIN_SECONDS:
        raise CommandError(f"--timeout: {options.timeout} is under {MIN_SECONDS:g}s")
    # requests is imported here, so that other commands need no time for it.
    from nodevitals.commands.doctor.examination import Examination

    logging.getLogger().addHandler(logging.NullHandler())  # failures are findings
    findings: list[Finding] = []
    examination = Examination(options, began, seconds)
    signal.signal(signal.SIGALRM, _overdue)
    signal.setitimer(signal.ITIMER_REAL, max(began + seconds - time.monotonic(), 0.01))
    try:
        for finding in examination.findings():
            findings.append(finding)  # at the time limit, the findings so far are printed
    except _OverdueError:
        text = f"not finished within {seconds:g} s"
        findings.append(Finding("doctor", UNKNOWN, text, "raise --timeout"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    if options.json:
        print_json(findings)
    else:
        print_findings(findings)
    sys.stdout.flush()
    os._exit(status_of(findings))  # threads may wait for servers, children for drivers


def _overdue(_number: int, _frame: FrameType | None) -> None:
    raise _OverdueError
