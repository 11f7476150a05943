"""`nodevitals hub`: the cluster's service, which runs checks on demand, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import sys

from nodevitals import logs
from nodevitals.commands.options import add_web_config_option
from nodevitals.commands.terminal import CommandError, Subparsers, document_error
from nodevitals.document import DocumentError
from nodevitals.errors import ProbeError
from nodevitals.web_config import read

DEFAULT_ADDRESS = "127.0.0.1:9857"
LOWEST_PYTHON = (3, 10)
"""Of lightkube 1.0; the agent runs on an older one."""
EXAMPLES = """\
examples:
  nodevitals hub --config.file hub.yaml
  nodevitals hub --config.file hub.yaml --check-config
  nodevitals hub --config.file /etc/nodevitals/hub.yaml --web.listen-address :9857 \\
    --web.config.file /etc/nodevitals/web.yaml

SIGHUP reloads the configuration. SIGTERM ends the hub with status 0; with 1 where a part of it did
not end within 20 s, which the log names."""


def add_to(commands: Subparsers) -> None:
    """Add `hub` to the command line."""
    parser = commands.add_parser(
        "hub", help="run checks on demand, for a whole cluster", epilog=EXAMPLES
    )
    add = parser.add_argument
    config = "configuration file (needed)"
    add("--config.file", dest="config", metavar="FILE", required=True, help=config)
    check = "check the configuration file and the files of its repairs, and end"
    add("--check-config", action="store_true", help=check)
    add(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"address to listen on (default {DEFAULT_ADDRESS})",
    )
    add_web_config_option(parser)
    add(
        "--log.level",
        dest="log_level",
        choices=logs.LEVELS,
        default="info",
        help="lowest level that is logged (default info)",
    )
    add(
        "--log.format",
        dest="log_format",
        choices=logs.FORMATS,
        default="logfmt",
        help="format of a line of the log (default logfmt)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    if sys.version_info < LOWEST_PYTHON:
        needed, found = ".".join(map(str, LOWEST_PYTHON)), ".".join(map(str, sys.version_info[:3]))
        raise CommandError(f"the hub needs Python {needed} or later, and this is Python {found}")
    try:
        from nodevitals.hub.service import Service, load, modules
        from nodevitals.hub.store import StoreError
        from nodevitals.hub.web.server import bind

        modules()  # what only some of them import is missing now, not after the start
    except ModuleNotFoundError as error:
        text = f"the package {error.name} is missing: pip install 'nodevitals[hub]'"
        raise CommandError(text) from None
    if options.check_config:
        try:
            load(options.config)
        except DocumentError as error:
            raise document_error(options.config, error) from None
        print(f"{options.config}: ok")
        return 0
    try:
        read(options.web_config)
    except DocumentError as error:
        raise document_error(options.web_config, error) from None
    try:
        listening = bind(options.listen)
    except ValueError as error:
        raise CommandError(f"--web.listen-address: {error}") from None
    except OSError as error:
        text = f"cannot listen on {options.listen}: {error.strerror}"
        raise CommandError(f"{text}; choose another --web.listen-address") from None
    try:
        service = Service(options.config, options.listen, options.web_config, listening=listening)
    except DocumentError as error:
        raise document_error(options.config, error) from None
    except (ProbeError, StoreError) as error:
        raise CommandError(str(error)) from None
    handler = logs.set_up(options.log_level, options.log_format)
    try:
        asyncio.run(service.serve())
    except StoreError as error:
        raise CommandError(str(error)) from None
    finally:
        handler.drain(0.2)
    return 0
