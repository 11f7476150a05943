"""`nodevitals rules check`: find rules that cannot fire, and alerts that lack what people need.

In: a folder of rule files with `tests/` and `runbooks/` below it, and the catalogue. Out: the
findings that no comment silences (`# nodevitals disable ID: reason`, on a rule or directly above),
and those about such comments. promtool judges what PromQL means; it is run as well where it is
found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Optional

import msgspec

from nodevitals import catalogue
from nodevitals.commands.rules.check_alerts import check_alerts
from nodevitals.commands.rules.check_expressions import check_expressions, check_thresholds
from nodevitals.commands.rules.findings import IDS, Finding, FindingId
from nodevitals.commands.rules.rule_files import Rule, RuleFile, read_rules, read_tests
from nodevitals.commands.terminal import CommandError, Subparsers, print_json

TIMEOUT_SECONDS = 600.0
# `rules/a.yaml: 5:9: …` for a rule, `line 9: …` for a key that promtool does not know.
_POSITION = re.compile(r": (\d+):\d+: |\bline (\d+): ")
_LINES = 4
"""Number of output lines that make a message."""
# Collecting garbage less often saves a fifth of promtool's time.
_ENVIRONMENT = {"GOGC": "400", **os.environ}
_COMMENT = re.compile(r"(?:^|\s)#\s*nodevitals disable\b\s*(?P<id>[^\s:]*)\s*:?\s*(?P<reason>.*)$")


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
    findings: list[Finding] = []
    files = read_rules(folder, findings)
    tested = read_tests(folder, findings)
    rules = [rule for file in files for rule in file.rules]
    findings += check_expressions(rules, catalogue.all_families(), catalogue.hub_families(), job)
    findings += check_thresholds(rules)
    findings += check_alerts(rules, tested, folder)
    if promtool is not None:
        findings += run_promtool(folder, promtool)
    return sorted(set(apply_silences(files, findings)))


def run_promtool(folder: Path, promtool: str) -> Iterator[Finding]:
    """Check every rule file and run every test, as many at once as there are CPUs.

    Raises CommandError where promtool does not run.
    """
    checked, tested = sorted(folder.glob("*.yaml")), sorted((folder / "tests").glob("*.yaml"))
    arguments = ("check", "rules", "--lint=all", "--lint-fatal")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = [
            *(
                pool.submit(_complaint, promtool, arguments, file, "promtool/check")
                for file in checked
            ),
            *(
                pool.submit(_complaint, promtool, ("test", "rules"), file, "promtool/test")
                for file in tested
            ),
        ]
        for complaint in started:
            yield from complaint.result()


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


class Silence(msgspec.Struct, frozen=True):
    """One comment; `rule` is None where it is neither on a rule nor directly above one."""

    file: str
    line: int
    id: str
    reason: str
    rule: Optional[Rule]

    def matches(self, finding: Finding) -> bool:
        """Whether this comment silences the finding."""
        return (
            self.rule is not None
            and (self.file, self.id) == (finding.file, finding.id)
            and self.rule.first_line <= finding.line <= self.rule.last_line
        )

    def problem(self, findings: Iterable[Finding]) -> Finding | None:
        """What is wrong with the comment itself, if anything."""
        name = self.rule.name if self.rule else ""
        if self.id not in IDS:
            text = f"no finding has the id {self.id!r}"
            return Finding(self.file, self.line, "silence/unknown", name, text)
        if not self.reason:
            text = f"write why: # nodevitals disable {self.id}: reason"
            return Finding(self.file, self.line, "silence/no-reason", name, text)
        if not any(map(self.matches, findings)):
            text = f"{self.id} is not found here" if self.rule else "it is not at a rule"
            return Finding(self.file, self.line, "silence/unused", name, text)
        return None


def apply_silences(files: Iterable[RuleFile], findings: list[Finding]) -> list[Finding]:
    """The findings that no comment silences, and those about comments.

    A comment without a reason silences nothing.
    """
    silences = [silence for file in files for silence in _silences(file)]
    reasoned = [silence for silence in silences if silence.reason]
    left = [
        finding for finding in findings if not any(silence.matches(finding) for silence in reasoned)
    ]
    problems = [silence.problem(findings) for silence in silences]
    return left + [problem for problem in problems if problem is not None]


def _silences(file: RuleFile) -> Iterator[Silence]:
    for number, line in enumerate(file.lines, 1):
        match = _COMMENT.search(line)
        if match:
            rule = _rule_at(file, number)
            yield Silence(file.path, number, match["id"], match["reason"].strip(), rule)


def _rule_at(file: RuleFile, number: int) -> Rule | None:
    """The rule that contains this line, or that starts below this line's block of comments."""
    for rule in file.rules:
        if rule.first_line <= number <= rule.last_line:
            return rule
    while number <= len(file.lines) and file.lines[number - 1].lstrip().startswith("#"):
        number += 1
    return next((rule for rule in file.rules if rule.first_line == number), None)
