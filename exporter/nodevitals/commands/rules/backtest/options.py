"""The options of `nodevitals rules backtest`; the command itself is imported when it runs."""

from __future__ import annotations

import argparse
from importlib import import_module

from nodevitals.commands.shipped import page
from nodevitals.commands.terminal import Subparsers


def add_to(actions: Subparsers) -> None:
    """Add `rules backtest` to the command line."""
    parser = actions.add_parser(
        "backtest",
        help="how often the alerts would have fired over the last days, by a Prometheus' history",
        epilog=f"The figures, and what they leave out:\n  {page('docs/backtest.md')}",
    )
    add = parser.add_argument
    add("--prometheus", required=True, metavar="URL", help="as http://host:9090 (needed)")
    add(
        "--days",
        type=float,
        default=30.0,
        metavar="N",
        help="days of the span (default 30)",
    )
    add("--end", metavar="TIME", help="end of the span, as 2026-11-22T10:00:00Z (default now)")
    add("--rules", default="rules", metavar="DIR", help="folder of rule files (default rules)")
    add(
        "--alertmanager-config",
        metavar="FILE",
        help="whose routes name the receivers, by amtool (default: none are named)",
    )
    add("--amtool", metavar="PATH", help="amtool to run (default: the one on PATH)")
    add(
        "--step",
        default="1m",
        metavar="DURATION",
        help="between two samples, up to 4m (default 1m)",
    )
    add(
        "--timeout",
        default="120s",
        metavar="DURATION",
        help="longest time of a query (default 120s)",
    )
    add("--json", action="store_true", help="one JSON object with every episode")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    # requests takes 36 ms and 7 MiB, which other commands do not need.
    command = import_module("nodevitals.commands.rules.backtest.command")
    status: int = command.run(options)
    return status
