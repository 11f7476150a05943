"""`nodevitals rules import FOLDER`: write RepairManager's files as rules and an Alertmanager
configuration, and print what each of its keys was converted to. Exit status 1: a rule was lost.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from nodevitals.commands.rules.repair_manager.convert import Converted, convert
from nodevitals.commands.rules.repair_manager.settings import FILES
from nodevitals.commands.terminal import (
    FOUND_WRONG,
    CommandError,
    Subparsers,
    print_json,
    print_table,
)
from nodevitals.document import DocumentError


def add_to(actions: Subparsers) -> None:
    """Add `rules import` to the command line."""
    parser = actions.add_parser(
        "import", help="convert RepairManager's files to rules and an Alertmanager configuration"
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of config.yaml and the others")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="where to write (needed)")
    parser.add_argument(
        "--map-metrics",
        action="store_true",
        help="replace the metrics of RepairManager's exporter (nvidiasmi_*) by those of nodevitals",
    )
    parser.add_argument(
        "--json", action="store_true", help="print what each key was converted to as JSON"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files that are converted and print the report."""
    source, output = Path(options.folder), Path(options.output)
    try:
        texts = {name: (source / name).read_bytes() for name in FILES if (source / name).exists()}
        if not texts:
            raise CommandError(f"{source}: none of {', '.join(FILES)} is here")
        converted = convert(texts, options.map_metrics)
        _write(output, converted.files)
    except DocumentError as error:
        problems = [f"{source}/{problem}" for problem in error.problems]
        raise CommandError("\n".join(problems), FOUND_WRONG) from None
    except FileExistsError as error:
        raise CommandError(f"{error.filename} already exists: choose another --output") from None
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    if options.json:
        print_json(converted.keys)
    else:
        _print_report(output, converted)
    lost = [key for key in converted.keys if key.rule_lost]
    for key in lost:
        print(f"{source / key.file}: {key.path}: rule lost: {key.why}", file=sys.stderr)
    return int(bool(lost))


def _write(output: Path, files: Mapping[str, str]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with (output / name).open("x") as file:  # never over a file that exists
            file.write(text)


def _print_report(output: Path, converted: Converted) -> None:
    rows = [
        (key.file, key.path, key.became or f"NOT CARRIED OVER: {key.why}") for key in converted.keys
    ]
    print_table(("FILE", "KEY", "BECAME"), rows)
    lost = sum(not key.became for key in converted.keys)
    print(f"\nWritten to {output}: {', '.join(converted.files)}.", end=" ")
    print(f"Not carried over: {lost} of {len(rows)} keys.")
