"""`nodevitals serve`: probe this node and serve the metrics until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import re

from nodevitals import logs, probes
from nodevitals.agent import Agent, LoadError
from nodevitals.commands.options import (
    add_log_options,
    add_node_options,
    add_web_config_option,
    files_of,
    host_of,
)
from nodevitals.commands.terminal import COULD_NOT_TELL, FOUND_WRONG, CommandError, Subparsers
from nodevitals.linux import capabilities
from nodevitals.web.server import Server

DEFAULT_ADDRESS = ":9855"
EXAMPLES = """\
examples:
  nodevitals serve
  nodevitals serve --config.file /etc/nodevitals/nodevitals.yaml --web.listen-address 127.0.0.1:9855

SIGHUP reloads the files, SIGTERM ends the agent with status 0."""
log = logging.getLogger(__name__)
_OWN_PATHS = ("/", "/healthz", "/readyz")
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def add_to(commands: Subparsers) -> None:
    """Add `serve` to the command line."""
    parser = commands.add_parser(
        "serve", help="probe this node and serve /metrics", epilog=EXAMPLES
    )
    add_node_options(parser)
    _add_web_options(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def _add_web_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"address to listen on (default {DEFAULT_ADDRESS}, every address)",
    )
    add(
        "--web.telemetry-path",
        dest="telemetry_path",
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (default /metrics)",
    )
    add_web_config_option(parser)
    add(
        "--web.enable-lifecycle",
        dest="lifecycle",
        action="store_true",
        help="allow POST /-/reload (default: only SIGHUP reloads)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; ends the process with status 0."""
    _check_path(options.telemetry_path)
    refused = _check_capabilities()
    agent = Agent(host_of(options), files_of(options.config, options.web_config))
    agent.handle_signals()
    agent.start_fork_server()
    try:
        access = agent.load()
    except LoadError as error:
        raise CommandError(str(error), FOUND_WRONG if error.invalid else COULD_NOT_TELL) from None
    if access is None:  # SIGTERM
        return 0
    try:
        server = Server(options.listen, agent, access, options.telemetry_path, options.lifecycle)
    except ValueError as error:
        raise CommandError(f"--web.listen-address: {error}") from None
    except OSError as error:
        text = f"cannot listen on {options.listen}: {error.strerror}"
        raise CommandError(f"{text}; choose another --web.listen-address") from None
    handler = logs.set_up(options.log_level, options.log_format)
    if refused:
        log.error("%s", refused)
    agent.serve(server, handler)
    # Skip the exit hooks, which would wait for a thread that hangs in the kernel.
    os._exit(0)


def _check_capabilities() -> str:
    """The capabilities that workers of other probes cannot give up, with the remedy; '' for none.
    Raises CommandError for an invalid variable.
    """
    try:
        kept = capabilities.kept_by_environment()
    except ValueError as error:
        raise CommandError(f"{capabilities.VARIABLE}: {error}") from None
    unknown = sorted(kept.keys() - probes.registered().keys()) if kept else []
    if unknown:
        known = ", ".join(probes.registered())
        text = f"{capabilities.VARIABLE}: unknown probe {unknown[0]!r}; known probes: {known}"
        raise CommandError(text)
    if not kept:
        return ""
    try:
        capabilities.drop(frozenset())
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        remedy = "add SystemCallFilter=capset to the drop-in"
        return f"every probe keeps what {capabilities.VARIABLE} names: {why}; {remedy}"
    return ""


def _check_path(path: str) -> None:
    """Raise CommandError for a path that no scrape would reach."""
    wrong = ""
    if path in _OWN_PATHS or path.startswith("/-/"):
        wrong = "the server has its own page there"
    elif not path.startswith("/"):
        wrong = "it does not begin with /"
    elif not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        wrong = "use letters, digits and . _ ~ - between single slashes"
    if wrong:
        text = f"--web.telemetry-path: {path!r}: {wrong}; choose another, such as /metrics"
        raise CommandError(text)
