"""`nodevitals rules check`: find rules that cannot fire, and alerts that lack what people need.

In: rule files of a site, the catalogue and the shipped rules. Out: the findings that no comment
silences (`# nodevitals disable ID: reason`, on a rule or directly above), and those about such
comments. `--strict` checks a folder of this project with `tests/` and `runbooks/` below it, and its
style. promtool judges the syntax; it is run as well where it is found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from nodevitals.commands.rules.check_alerts import check_alerts
from nodevitals.commands.rules.check_expressions import (
    check_selectors,
    check_strictly,
    check_thresholds,
)
from nodevitals.commands.rules.findings import IDS, STRICT_IDS, Finding, FindingId
from nodevitals.commands.rules.promql.check_meaning import check_meaning
from nodevitals.commands.rules.promql.knowledge import JOB, Knowledge
from nodevitals.commands.rules.rule_files import (
    SUFFIXES,
    Rule,
    RuleFile,
    read_rules,
    read_tests,
    rule_paths,
)
from nodevitals.commands.rules.silences import apply_silences
from nodevitals.commands.rules.site.pack import read_pack
from nodevitals.commands.shipped import page, shipped
from nodevitals.commands.terminal import CommandError, Subparsers, print_json, print_table

TIMEOUT_SECONDS = 600.0
# `rules/a.yaml: 5:9: …` for a rule, `line 9: …` for a key that promtool does not know.
_POSITION = re.compile(r": (\d+):\d+: |\bline (\d+): ")
_LINES = 4
"""Number of output lines that make a message."""
# Collecting garbage less often saves a fifth of promtool's time.
_ENVIRONMENT = {"GOGC": "400", **os.environ}


def add_to(actions: Subparsers) -> None:
    """Add `rules check` to the command line."""
    parser = actions.add_parser(
        "check",
        help="find rules that cannot fire or mean something else; runs promtool too",
        epilog=f"Every id, and how to silence a finding:\n  {page('docs/rules-check.md')}",
    )
    parser.add_argument(
        "files",
        nargs="*",
        default=["rules"],
        metavar="FILE",
        help="rule files, or folders of them (default: the folder rules)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="check the shipped rules themselves, and their style"
    )
    parser.add_argument(
        "--promtool", metavar="PATH", help="promtool to run (default: the one on PATH, if any)"
    )
    parser.add_argument(
        "--job", metavar="NAME", default=JOB, help="scrape job of the agents (default nodevitals)"
    )
    parser.add_argument(
        "--label",
        metavar="NAME",
        action="append",
        default=[],
        help="label that the scrape job adds to every series; may be repeated (default: none)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON array")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the findings; the status is 1 where there are any."""
    places = [Path(name) for name in options.files]
    for place in places:
        if not place.exists():
            raise CommandError(f"{place}: no such file or folder: name the rule files")
    promtool = options.promtool or shutil.which("promtool")
    findings = check(places, promtool, options.job, options.label, strict=options.strict)
    if options.json:
        print_json([{**msgspec.structs.asdict(one), "remedy": one.remedy} for one in findings])
    elif findings:
        rows = []
        for one in findings:
            rows += [(one.place, one.id, one.rule, one.message), ("", "", "", f"→ {one.remedy}")]
        print_table(("PLACE", "ID", "RULE", "WHAT, AND WHAT TO DO"), rows)
    else:
        not_run = "" if promtool else "; promtool was not found and not run"
        print(f"{', '.join(options.files)}: ok{not_run}")
    return int(bool(findings))


def check(
    places: Sequence[Path],
    promtool: str | None,
    job: str = JOB,
    added: Iterable[str] = (),
    *,
    strict: bool = False,
) -> list[Finding]:
    """Every finding that no comment silences, sorted, in files and folders of a site; `strict`: in
    one folder that has all rules that exist. `promtool` is a path; None: do not run it. `job` is
    the scrape job of the agents, `added` are labels that it adds.
    """
    findings: list[Finding] = []
    paths = rule_paths(places, findings)
    files = read_rules(paths, findings)
    findings += _without_rules(places, files, findings)
    test_paths = [
        path
        for place in places
        for suffix in SUFFIXES
        for path in sorted((place / "tests").glob(f"*{suffix}"))
    ]
    tested = read_tests(test_paths, findings)
    shipped_rules = () if strict else read_pack(shipped("rules")).rules
    known = Knowledge(
        [*shipped_rules, *(rule for file in files for rule in file.rules)], job, added
    )
    if not strict:
        files = _of_site(files, shipped_rules)
    rules = [rule for file in files for rule in file.rules]
    findings += check_selectors(rules, known)
    findings += check_meaning(files, known)
    if strict:
        findings += check_strictly(rules, known)
        findings += check_thresholds(rules)
        findings += check_alerts(rules, tested, places[0])
    if promtool is not None:
        lint = ("--lint=all", "--lint-fatal") if strict else ("--lint=none",)
        readable = [Path(file.path) for file in files if file.rules and not file.is_manifest]
        findings += run_promtool(paths if strict else readable, test_paths, promtool, lint)
    searched = IDS if strict else tuple(name for name in IDS if name not in STRICT_IDS)
    return sorted(set(apply_silences(files, findings, searched)))


def _without_rules(
    places: Iterable[Path], files: Iterable[RuleFile], findings: Iterable[Finding]
) -> list[Finding]:
    """The files that were named, could be read and have no rules."""
    explained = {file.path for file in files if file.rules} | {one.file for one in findings}
    text = "no rules (groups:) in it; render sampled rules first"
    return [
        Finding(str(place), 0, "file/missing", "", text)
        for place in places
        if place.is_file() and str(place) not in explained
    ]


def _of_site(files: Iterable[RuleFile], shipped_rules: Iterable[Rule]) -> tuple[RuleFile, ...]:
    """The files without those of the package, which a site's folder may hold as well."""
    groups = {rule.group for rule in shipped_rules}
    return tuple(
        file
        for file in files
        if not file.rules or any(rule.group not in groups for rule in file.rules)
    )


def run_promtool(
    files: Sequence[Path], tests: Sequence[Path], promtool: str, lint: tuple[str, ...]
) -> Iterator[Finding]:
    """Check every rule file and run every test, as many at once as there are CPUs.

    Raises CommandError where promtool does not run.
    """
    jobs: list[tuple[tuple[str, ...], Path, FindingId]] = [
        *((("check", "rules", *lint), file, "promtool/check") for file in files),
        *((("test", "rules"), file, "promtool/test") for file in tests),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for complaint in pool.map(lambda job: _complaint(promtool, *job), jobs):
            yield from complaint


def _complaint(
    promtool: str, arguments: tuple[str, ...], file: Path, name: FindingId
) -> list[Finding]:
    try:
        done = subprocess.run(
            [promtool, *arguments, str(file)],
            env=_ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"{promtool}: {error.strerror}; choose another --promtool") from None
    except subprocess.TimeoutExpired:
        return [Finding(str(file), 0, name, "", f"not finished after {TIMEOUT_SECONDS:g} s")]
    if done.returncode:
        text = _first_failure(done.stdout + done.stderr)
        position = _POSITION.search(text) if name == "promtool/check" else None
        line = int(position[1] or position[2]) if position else 0
        return [Finding(str(file), line, name, "", text.removeprefix(f"{file}: "))]
    return []


def _first_failure(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((index for index, line in enumerate(lines) if "FAILED" in line), 0)
    return " ".join(" ".join(lines[first : first + _LINES]).split()).removeprefix("FAILED: ")
