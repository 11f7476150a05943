"""The `nodevitals` command: arguments in, an exit status out.

0: done; 1: the answer is no, or something named in one line on stderr is wrong; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import os
import re
import sqlite3
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from nodevitals import __version__, catalogue, logs, probes
from nodevitals.agent import Agent, run_once
from nodevitals.commands.fabric import commands as commands_of_fabric
from nodevitals.commands.rules import commands as commands_of_rules
from nodevitals.commands.terminal import CommandError, print_table
from nodevitals.config import Config, load
from nodevitals.document import DocumentError, parse_duration
from nodevitals.linux.host import Host
from nodevitals.state import history
from nodevitals.web.access import load as load_access
from nodevitals.web.server import Server

DEFAULT_ADDRESS = ":9855"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nodevitals", description="Per-node health exporter for AI clusters."
    )
    parser.add_argument("--version", action="version", version=f"nodevitals {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="probe this node and serve /metrics")
    _add_node_options(serve)
    add = serve.add_argument
    add(
        "--web.listen-address",
        dest="listen",
        default=DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"where to listen (default {DEFAULT_ADDRESS}, every address)",
    )
    add(
        "--web.telemetry-path",
        dest="telemetry_path",
        default="/metrics",
        metavar="PATH",
        help="the path of the metrics (default /metrics)",
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
    add("--log.level", dest="log_level", choices=logs.LEVELS, default="info", help="default info")
    add(
        "--log.format",
        dest="log_format",
        choices=logs.FORMATS,
        default="logfmt",
        help="default logfmt",
    )
    serve.set_defaults(run=_serve)

    probe = commands.add_parser("probe", help="run one probe once and print what it exposes")
    probe.add_argument("name", metavar="NAME")
    _add_node_options(probe)
    probe.set_defaults(run=_probe)

    check = commands.add_parser("check-config", help="tell every error of a configuration file")
    check.add_argument("file", metavar="FILE")
    check.set_defaults(run=_check_config)

    metrics = commands.add_parser("metrics", help="the catalogue of metric families")
    metrics.add_argument("--format", choices=("markdown", "json"), default="markdown")
    metrics.set_defaults(run=_metrics)

    _add_history(commands)
    commands_of_fabric.add_to(commands)
    commands_of_rules.add_to(commands)
    return parser


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--config.file", dest="config", metavar="FILE", help="YAML; without it, the defaults")
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


def _add_history(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "history", help="what happened to which device, when; `history forget DEVICE` retires one"
    )
    parser.add_argument("action", nargs="?", choices=("show", "forget"), default="show")
    parser.add_argument("name", nargs="?", metavar="DEVICE")
    parser.add_argument("--config.file", dest="config", metavar="FILE")
    parser.add_argument("--state-directory", metavar="DIRECTORY")
    parser.add_argument("--since", metavar="TIME", help="1h, 7d, or 2026-01-31[T12:00:00]")
    parser.add_argument("--device", metavar="DEVICE")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON array")
    output.add_argument("--csv", action="store_true")
    parser.set_defaults(run=_history)


def _host(options: argparse.Namespace) -> Host:
    return Host(rootfs=options.rootfs, procfs=options.procfs, sysfs=options.sysfs)


def _load(path: str | None) -> Config:
    try:
        return load(path, probes.registered())
    except DocumentError as error:
        raise CommandError("\n".join(f"{path}: {problem}" for problem in error.problems)) from None


def _serve(options: argparse.Namespace) -> int:
    config = _load(options.config)
    try:
        access = load_access(options.web_config)
    except DocumentError as error:
        lines = (f"{options.web_config}: {problem}" for problem in error.problems)
        raise CommandError("\n".join(lines)) from None
    agent = Agent(_host(options), options.config, options.web_config, config)
    try:
        server = Server(options.listen, agent, access, options.telemetry_path, options.lifecycle)
    except ValueError as error:
        raise CommandError(f"--web.listen-address: {error}") from None
    except OSError as error:
        text = f"cannot listen on {options.listen}: {error.strerror}"
        raise CommandError(f"{text}; choose another --web.listen-address") from None
    handler = logs.set_up(options.log_level, options.log_format)
    agent.serve(server, handler)
    # Not by way of exit hooks: a thread that waits in the kernel must not hold us.
    os._exit(0)


def _probe(options: argparse.Namespace) -> int:
    if options.name not in probes.registered():
        known = ", ".join(probes.registered())
        raise CommandError(f"no probe {options.name!r}; there are: {known}")
    logging.getLogger().addHandler(logging.NullHandler())  # the results say it, once
    text, results = run_once(_host(options), _load(options.config), options.name)
    print(text, end="")
    failed = False
    for target, result in results.items():
        outcome, message = result.outcome, result.text
        if outcome not in ("ok", "absent"):
            failed = True
            print(f"{options.name} {target}: {result.reason}: {message}", file=sys.stderr)
            print(result.trace, end="", file=sys.stderr)
        elif outcome == "absent":
            print(f"{options.name} {target}: absent: {message}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(failed))  # a stuck child must not hold us either


def _check_config(options: argparse.Namespace) -> int:
    _load(options.file)
    print(f"{options.file}: ok")
    return 0


def _metrics(options: argparse.Namespace) -> int:
    if options.format == "json":
        families = list(catalogue.all_families().values())
        print(msgspec.json.format(msgspec.json.encode(families), indent=2).decode())
    else:
        print(catalogue.markdown(), end="")
    return 0


def _history(options: argparse.Namespace) -> int:
    directory = options.state_directory or _load(options.config).state_directory
    if directory is None:
        raise CommandError("state_directory is null: there is no history")
    try:
        if options.action == "forget":
            return _forget(directory, options.name)
        with history.open_for_reading(directory) as connection:
            rows = history.query(connection, _since(options.since), options.device)
    except sqlite3.Error as error:
        raise CommandError(
            f"{directory}/{history.FILE_NAME}: {error}; has `nodevitals serve` run on this node?"
        ) from None
    if options.json:
        print(json.dumps(history.as_records(rows), ensure_ascii=False, indent=2))
    elif options.csv:
        writer = csv.writer(sys.stdout)
        writer.writerow(("time", "probe", "device", "state", "detail"))
        writer.writerows(msgspec.structs.astuple(row) for row in rows)
    else:
        print_table(
            ("TIME", "PROBE", "DEVICE", "STATE", "DETAIL"),
            [(_local_time(row.time), *msgspec.structs.astuple(row)[1:]) for row in rows],
        )
    return 0


def _forget(directory: str, device: str | None) -> int:
    if device is None:
        raise CommandError("history forget: name the device")
    if not os.path.exists(os.path.join(directory, history.FILE_NAME)):
        raise CommandError(f"{directory}: no history here")
    connection = history.connect(directory)
    known_by = history.forget(connection, device, time.time())
    connection.close()
    if not known_by:
        raise CommandError(f"{device}: not in the history of this node")
    print(f"{device}: forgotten ({', '.join(known_by)})")
    return 0


def _since(text: str | None) -> float:
    if text is None:
        return 0.0
    if re.fullmatch(r"\d.*[smhd]", text):
        try:
            return time.time() - parse_duration(text)
        except ValueError as error:
            raise CommandError(f"--since: {error}") from None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise CommandError(f"--since: {text!r} is neither like 1h nor like 2026-01-31") from None


def _local_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).astimezone().isoformat(" ", "seconds")
