"""Options that several commands share: the configuration file and the paths of the node."""

from __future__ import annotations

import argparse
import os

from nodevitals import logs, probes
from nodevitals.commands.terminal import document_error
from nodevitals.config import Config, load
from nodevitals.document import DocumentError
from nodevitals.engine.protocol import Files
from nodevitals.linux.host import Host


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add --config.file."""
    parser.add_argument(
        "--config.file",
        dest="config",
        metavar="FILE",
        help="configuration file (default: none, every setting has its default)",
    )


def add_web_config_option(parser: argparse.ArgumentParser) -> None:
    """Add --web.config.file."""
    parser.add_argument(
        "--web.config.file",
        dest="web_config",
        metavar="FILE",
        help="TLS and passwords, in the format of Prometheus' exporter-toolkit (default: neither)",
    )


def add_strict_option(parser: argparse.ArgumentParser) -> None:
    """Add --strict, of commands that check configuration files."""
    parser.add_argument("--strict", action="store_true", help="treat each warning as an error")


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add --log.level and --log.format."""
    add = parser.add_argument
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


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add --config.file and the --path options."""
    add_config_option(parser)
    add_path_options(parser)


def add_path_options(parser: argparse.ArgumentParser) -> None:
    """Add the --path options."""
    add = parser.add_argument
    add(
        "--path.rootfs", dest="rootfs", default="/", metavar="PATH", help="the node's / (default /)"
    )
    add(
        "--path.procfs",
        dest="procfs",
        default="/proc",
        metavar="PATH",
        help="the node's procfs (default /proc)",
    )
    add(
        "--path.sysfs",
        dest="sysfs",
        default="/sys",
        metavar="PATH",
        help="the node's sysfs (default /sys)",
    )


def host_of(options: argparse.Namespace) -> Host:
    """The node that the --path options describe."""
    return Host(rootfs=options.rootfs, procfs=options.procfs, sysfs=options.sysfs)


def files_of(config: str | None, web_config: str | None) -> Files:
    """The files of `serve`: the process that loads them has another working directory."""
    return Files(
        *(path if path is None else os.path.abspath(path) for path in (config, web_config))
    )


def load_config(path: str | None) -> Config:
    """The configuration of a file, or the defaults. Raises CommandError with every problem."""
    try:
        return load(path, probes.registered())
    except DocumentError as error:
        raise document_error(path, error) from None
