"""`nodevitals probe NAME`: run one probe once and print what it reads."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from nodevitals import catalogue, probes
from nodevitals.agent import run_once
from nodevitals.commands.options import add_node_options, host_of, load_config
from nodevitals.commands.probe_table import Shown, tables
from nodevitals.commands.probe_values import seconds
from nodevitals.commands.rights import lacks
from nodevitals.commands.terminal import (
    FOUND_WRONG,
    GOOD,
    CommandError,
    Subparsers,
    print_json,
    print_table,
)
from nodevitals.config import Config
from nodevitals.document import meant
from nodevitals.wire import ProbeResult

EXAMPLES = """\
examples:
  nodevitals probe nvidia
  nodevitals probe mounts --config.file /etc/nodevitals/nodevitals.yaml --describe
  nodevitals probe node --raw | grep clock

Hardware that is absent is status 0, unless the configuration has enabled: true."""


def add_to(commands: Subparsers) -> None:
    """Add `probe` to the command line."""
    parser = commands.add_parser(
        "probe", help="run one probe once and print what it reads", epilog=EXAMPLES
    )
    names = ", ".join(probes.registered())
    parser.add_argument("name", metavar="NAME", help=f"the probe: {names}")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--raw", action="store_true", help="the exposition, as in /metrics")
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--describe", action="store_true", help="also the help of each metric")
    add_node_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the samples on stdout and failures on stderr.

    Ends the process: with status 0, or 1 where a target failed. An absent target is no failure.
    """
    name = options.name
    if name not in probes.registered():
        known = ", ".join(probes.registered())
        text = f"unknown probe {name!r}; known probes: {known}{meant(name, probes.registered())}"
        raise CommandError(text)
    logging.getLogger().addHandler(logging.NullHandler())  # failures are printed below
    config = load_config(options.config)
    text, results = run_once(host_of(options), config, name)
    if options.raw:
        print(text, end="")
    elif options.json:
        print_json({"samples": _samples(text), "targets": _outcomes(results)})
    else:
        _print_tables(text, results, options.describe)
    if not results:
        print(f"{name}: {_why_none(name, config)}", file=sys.stderr)
    for lack in lacks(_parsed(text)):
        print(f"{name}: {lack.text}; {lack.remedy}", file=sys.stderr)
    failed = _print_failures(name, results)
    sys.stdout.flush()
    sys.stderr.flush()
    # The exit hooks would wait for a stuck child.
    os._exit(FOUND_WRONG if failed else GOOD)


def _print_failures(name: str, results: Mapping[str, ProbeResult]) -> bool:
    failed = False
    for target, result in results.items():
        outcome, message = result.outcome, result.text
        if outcome not in ("ok", "absent"):
            failed = True
            print(f"{name} {target}: {result.reason}: {message}", file=sys.stderr)
            print(result.trace, end="", file=sys.stderr)
        elif outcome == "absent":
            print(f"{name} {target}: absent: {message}", file=sys.stderr)
    return failed


def _print_tables(text: str, results: Mapping[str, ProbeResult], describe: bool) -> None:
    families = catalogue.all_families()
    shown = [Shown(families[name], labels, value) for name, labels, value in _parsed(text)]
    for head, *rows in tables(shown, describe):
        print_table(head, rows)
        print()
    if results:
        print_table(
            ("TARGET", "OUTCOME", "DURATION", "REASON"),
            [
                (target, one.outcome, seconds(one.duration_seconds), one.reason or "-")
                for target, one in results.items()
            ],
        )


def _parsed(text: str) -> list[tuple[str, dict[str, str], float]]:
    """The samples of the probe; those about the run and its processes are left out."""
    from prometheus_client.parser import text_string_to_metric_families

    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.startswith(("nodevitals_probe_", "nodevitals_worker_"))
    ]


def _samples(text: str) -> list[dict[str, object]]:
    return [
        {"metric": metric, "labels": labels, "value": value}
        for metric, labels, value in _parsed(text)
    ]


def _outcomes(results: Mapping[str, ProbeResult]) -> list[dict[str, object]]:
    return [
        {
            "target": target,
            "outcome": one.outcome,
            "reason": one.reason,
            "message": one.text,
            "duration_seconds": one.duration_seconds,
        }
        for target, one in results.items()
    ]


def _why_none(name: str, config: Config) -> str:
    """Why no target of a probe was run, and which key would change it."""
    if config.probes[name].enabled is False:
        return f"not enabled: set probes.{name}.enabled to true"
    keys = probes.registered()[name].needs
    if not keys:
        return "no targets"
    places = " or ".join(f"probes.{name}.{key}" for key in keys)
    return f"no targets: set {places}"
