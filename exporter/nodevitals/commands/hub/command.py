"""`nodevitals hub`: starts the cluster's service, which is a package of its own, nodevitals-hub."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from types import ModuleType

from nodevitals import __version__, logs
from nodevitals.commands.options import add_log_options, add_web_config_option
from nodevitals.commands.terminal import CommandError, Subparsers, document_error, print_warnings
from nodevitals.document import DocumentError
from nodevitals.web_config import read

DEFAULT_ADDRESS = "127.0.0.1:9857"
LOWEST_PYTHON = (3, 11)
"""Of nodevitals-hub; the agent runs on an older one."""
INSTALL = f"nodevitals-hub=={__version__}"
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
    check = "check the configuration file, the URLs of its channels and the files of its repairs, "
    add("--check-config", action="store_true", help=f"{check}and end")
    strict = "with --check-config: treat each warning as an error"
    add("--strict", action="store_true", help=strict)
    add(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"address to listen on (default {DEFAULT_ADDRESS})",
    )
    add_web_config_option(parser)
    add_log_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM."""
    hub = _package()
    if options.check_config:
        try:
            _, warnings = hub.check(options.config)
        except DocumentError as error:
            raise document_error(options.config, error) from None
        lines = [warning.within(options.config) for warning in warnings]
        print_warnings(lines, strict=options.strict)
        print(f"{options.config}: ok")
        return 0
    try:
        read(options.web_config)
    except DocumentError as error:
        raise document_error(options.web_config, error) from None
    try:
        hub.serve(
            options.config,
            options.listen,
            options.web_config,
            lambda: logs.set_up(options.log_level, options.log_format),
        )
    except DocumentError as error:
        raise document_error(options.config, error) from None
    except hub.StartError as error:
        raise CommandError(str(error)) from None
    return 0


def _package() -> ModuleType:
    """The module with which the package of the hub is started."""
    if sys.version_info < LOWEST_PYTHON:
        needed, version = (
            ".".join(map(str, LOWEST_PYTHON)),
            ".".join(map(str, sys.version_info[:3])),
        )
        raise CommandError(f"the hub needs Python {needed} or later, and this is Python {version}")
    try:
        return import_module("nodevitals_hub.start")
    except ModuleNotFoundError as error:
        what = "hub" if error.name == "nodevitals_hub" else f"package {error.name}"
        raise CommandError(f"the {what} is missing: pip install {INSTALL}") from None
