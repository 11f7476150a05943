"""`nodevitals metrics`: print the catalogue of metric families."""

from __future__ import annotations

import argparse

from nodevitals import catalogue
from nodevitals.commands.generated.recorded import metrics_page, recorded_series
from nodevitals.commands.terminal import Subparsers, print_json


def add_to(commands: Subparsers) -> None:
    """Add `metrics` to the command line."""
    parser = commands.add_parser("metrics", help="print the catalogue of metric families")
    parser.add_argument(
        "--format",
        choices=("markdown", "json"),
        default="markdown",
        help="markdown as docs/METRICS.md, or one JSON array (default markdown)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print docs/METRICS.md, or the families as JSON."""
    if options.format == "json":
        families = {**catalogue.all_families(), **catalogue.hub_families()}
        print_json([family for _, family in sorted(families.items())])
    else:
        print(metrics_page(recorded_series().values()), end="")
    return 0
