"""`nodevitals rules check`: find rules that cannot fire, and alerts that lack what people need.

In: a folder of rule files with `tests/` and `runbooks/` below it, and the catalogue. Out:
findings. promtool judges what PromQL means; it is run as well where it is found.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from nodevitals import catalogue
from nodevitals.commands.rules.check_alerts import check_alerts
from nodevitals.commands.rules.check_expressions import check_expressions, check_thresholds
from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.promtool import run_promtool
from nodevitals.commands.rules.rule_files import read_rules, read_tests
from nodevitals.commands.rules.silences import apply_silences
from nodevitals.commands.terminal import CommandError, Subparsers, print_json


def add_to(actions: Subparsers) -> None:
    """Add `rules check` to the command line."""
    parser = actions.add_parser(
        "check",
        help="find rules that cannot fire and alerts without runbooks or tests; runs promtool too",
        epilog="docs/rules-check.md explains every id and how to silence a finding.",
    )
    parser.add_argument(
        "folder", nargs="?", default="rules", metavar="FOLDER", help="rule files (default rules)"
    )
    parser.add_argument(
        "--promtool", metavar="PATH", help="promtool to run (default: the one on PATH, if any)"
    )
    parser.add_argument(
        "--job", metavar="NAME", help="find selectors of another scrape job (default: any is good)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; the status is 1 where there are any."""
    if not Path(options.folder).is_dir():
        raise CommandError(f"{options.folder}: no such folder: name the one of the rule files")
    promtool = options.promtool or shutil.which("promtool")
    findings = check(Path(options.folder), promtool, options.job)
    if options.json:
        print_json(findings)
    elif findings:
        print("\n".join(map(str, findings)))
    else:
        print(f"{options.folder}: ok{'' if promtool else '; promtool was not found and not run'}")
    return int(bool(findings))


def check(folder: Path, promtool: str | None, job: str | None = None) -> list[Finding]:
    """Every finding that no comment silences, sorted. `promtool` is a path; None: do not run it.
    `job` is the scrape job that all rules must select; None: any.
    """
    found: list[Finding] = []
    files = read_rules(folder, found)
    tested = read_tests(folder, found)
    rules = [rule for file in files for rule in file.rules]
    found += check_expressions(rules, catalogue.all_families(), catalogue.hub_families(), job)
    found += check_thresholds(rules)
    found += check_alerts(rules, tested, folder)
    if promtool is not None:
        found += run_promtool(folder, promtool)
    return sorted(set(apply_silences(files, found)))
