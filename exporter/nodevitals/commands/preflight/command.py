"""`nodevitals preflight`: is this node fit for a job that starts now?

In: the options. Out: the findings, and an exit status. The agent's fresh results are read, so this
command calls no driver. Everything else runs in threads or processes that may hang; the process
ends at the time limit with the findings so far.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from nodevitals.commands.doctor.findings import (
    UNKNOWN,
    Finding,
    print_findings,
    printable,
    status_of,
)
from nodevitals.commands.hub.client import add_hub_options
from nodevitals.commands.terminal import CommandError, Subparsers, print_json
from nodevitals.quantities import parse_duration

if TYPE_CHECKING:
    from nodevitals.commands.preflight.examination import Preflight

_HTTP_CONFIG = "user, password, CA for it, in promtool's --http.config.file format (default: none)"
AGENT = "http://localhost:9855"
MIN_SECONDS = 1.0
# Shares of the time limit: after the first, answers are ignored; at the second, the hub must have
# canceled its checks.
_SHARES = (0.9, 0.95)
_LIMIT_SHARE = 0.97
_OUTPUT_SECONDS = 0.5
_AGAIN_SECONDS = 0.2
EXAMPLES = """\
examples:
  nodevitals preflight
  nodevitals preflight --prometheus http://prometheus:9090 --path /data --nodes 'gpu-[1-8]' --ssh
  nodevitals preflight --deep --hub https://hub.example.org --nodes gpu-7,gpu-8 --preset links

Status 0: fit. 1: a defect was found. 2: something could not be found out."""


class _OverdueError(BaseException):
    """The time is up; not an Exception, which some library would catch."""


class _EndedError(BaseException):
    """SIGTERM."""


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
    devices = "accelerators that must be free: all, or indices such as 0,1 (default: not checked)"
    add("--devices", default="", metavar="LIST", help=devices)
    procfs = "the node's procfs: the processes on accelerators (default /proc)"
    add("--path.procfs", dest="procfs", default="/proc", metavar="PATH", help=procfs)
    path = "a path that the job uses; may be repeated (default: none)"
    add("--path", action="append", default=[], metavar="PATH", help=path)
    add("--write", action="store_true", help="the paths must be writable")
    nodes = "all nodes of the job, as Slurm writes them (default: none)"
    add("--nodes", default="", metavar="LIST", help=nodes)
    add(
        "--nodes-file",
        metavar="FILE",
        help="a file with such a list, or a line per node (default: none)",
    )
    only = "what is wrong with other nodes is unknown, not a defect of this one: for a prolog"
    add("--this-node", action="store_true", help=only)
    add("--port", type=int, default=22, metavar="N", help="TCP port of the peers (default 22)")
    ssh = "log in to each peer, without a password, to a known host; compares clocks"
    add("--ssh", action="store_true", help=ssh)
    option = "option of ssh, such as i=FILE; may be repeated (default: F=none, no ssh_config)"
    add("--ssh-option", action="append", default=[], metavar="OPTION", help=option)
    add("--deep", action="store_true", help="also tests by the hub: needs --hub, and an idle node")
    add_hub_options(parser)
    add("--preset", default="", metavar="NAME", help="preset of the pair test (default: none)")
    limit = "time limit in all (default 10s, with --deep 5m)"
    add("--timeout", metavar="DURATION", help=limit)
    add("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the findings and end the process: 0 fit, 1 a defect, 2 something is unknown. An error
    in the options or in this program is no defect of the node.
    """
    began = time.monotonic()
    findings: list[Finding] = []
    seconds = _seconds(options)
    _arm(_raise_overdue, began + _LIMIT_SHARE * seconds)
    signal.signal(signal.SIGTERM, _raise_ended)
    examination: Preflight | None = None
    try:
        # requests is imported here, so that other commands need no time for it.
        from nodevitals.commands.preflight import examination as module

        deadline, end = (began + share * seconds for share in _SHARES)
        examination = module.Preflight(options, deadline, end)
        _collect(examination.findings, findings)
        _disarm()
    except _OverdueError:
        _disarm()
        text = f"not finished within {seconds:g} s"
        findings.append(Finding("preflight", UNKNOWN, text, "raise --timeout"))
    except (_EndedError, KeyboardInterrupt):
        _disarm()
        findings.append(Finding("preflight", UNKNOWN, "ended by a signal"))
        if examination is not None:
            examination.stop()
    except CommandError as error:
        _disarm()
        raise CommandError(str(error)) from None  # status 2, also for a file with mistakes
    except Exception as error:  # noqa: BLE001 # with status 1, a prolog would drain the node
        _disarm()
        text = printable(f"a defect of nodevitals: {type(error).__name__}: {error}")
        findings.append(Finding("preflight", UNKNOWN, text, "report it, with the command line"))
    _finish(options, findings, began + seconds)


def _finish(options: argparse.Namespace, findings: list[Finding], limit: float) -> NoReturn:
    """Print and end the process, also where the output is not read."""
    status = status_of(findings)
    _arm(lambda *_: os._exit(status), max(limit, time.monotonic() + _OUTPUT_SECONDS))
    if options.json:
        print_json(findings)
    else:
        print_findings(findings)
    sys.stdout.flush()
    os._exit(status)  # threads may wait for servers, children for file systems


def _arm(handler: Callable[[int, FrameType | None], None], end: float) -> None:
    """Call the handler at this time, and again: Python drops an exception in a destructor."""
    signal.signal(signal.SIGALRM, handler)
    left = max(end - time.monotonic(), 0.01)
    signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_SECONDS)


def _disarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _collect(source: Callable[[], Iterator[Finding]], findings: list[Finding]) -> None:
    for finding in source():
        findings.append(finding)  # at the time limit, the findings so far are printed


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


def _raise_overdue(_number: int, _frame: FrameType | None) -> None:
    raise _OverdueError


def _raise_ended(_number: int, _frame: FrameType | None) -> None:
    raise _EndedError
