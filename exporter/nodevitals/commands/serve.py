"""`nodevitals serve`: probe this node and serve the metrics until SIGTERM."""

from __future__ import annotations

import argparse
import os

from nodevitals import logs
from nodevitals.agent import Agent, LoadError
from nodevitals.commands.options import add_node_options, files_of, host_of
from nodevitals.commands.terminal import CommandError, Subparsers
from nodevitals.web.server import Server

DEFAULT_ADDRESS = ":9855"


def add_to(commands: Subparsers) -> None:
    """Add `serve` to the command line."""
    parser = commands.add_parser("serve", help="probe this node and serve /metrics")
    add_node_options(parser)
    _add_web_options(parser)
    _add_log_options(parser)
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
    add(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="TLS and passwords, in the format of Prometheus' exporter-toolkit",
    )
    add(
        "--web.enable-lifecycle", dest="lifecycle", action="store_true", help="allow POST /-/reload"
    )


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--log.level", dest="log_level", choices=logs.LEVELS, default="info", help="default info")
    add(
        "--log.format",
        dest="log_format",
        choices=logs.FORMATS,
        default="logfmt",
        help="default logfmt",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; ends the process with status 0."""
    agent = Agent(host_of(options), files_of(options.config, options.web_config))
    agent.handle_signals()
    try:
        access = agent.load()
    except LoadError as error:
        raise CommandError(str(error)) from None
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
    agent.serve(server, handler)
    # Skips the exit hooks, which would wait for a thread that the kernel does not let go.
    os._exit(0)
