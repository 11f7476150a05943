"""Comments that silence a finding: `# nodevitals disable ID: reason`, on a rule or directly above.

In: rule files and findings. Out: the findings that are left, and those about the comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional

import msgspec

from nodevitals.commands.rules.findings import IDS, Finding
from nodevitals.commands.rules.rule_files import Rule, RuleFile

_COMMENT = re.compile(r"(?:^|\s)#\s*nodevitals disable\b\s*(?P<id>[^\s:]*)\s*:?\s*(?P<reason>.*)$")


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

    def problem(self, findings: Iterable[Finding], searched: Sequence[str]) -> Finding | None:
        """What is wrong with the comment itself, if anything; `searched` are the ids that could be
        found.
        """
        name = self.rule.name if self.rule else ""
        if self.id not in IDS:
            text = f"no finding has the id {self.id!r}"
            return Finding(self.file, self.line, "silence/unknown", name, text)
        if not self.reason:
            text = f"write why: # nodevitals disable {self.id}: reason"
            return Finding(self.file, self.line, "silence/no-reason", name, text)
        if self.id in searched and not any(map(self.matches, findings)):
            text = f"{self.id} is not found here" if self.rule else "it is not at a rule"
            return Finding(self.file, self.line, "silence/unused", name, text)
        return None


def apply_silences(
    files: Iterable[RuleFile], findings: list[Finding], searched: Sequence[str]
) -> list[Finding]:
    """The findings that no comment silences, and those about comments.

    A comment without a reason silences nothing.
    """
    silences = [silence for file in files for silence in _silences(file)]
    reasoned = [silence for silence in silences if silence.reason]
    left = [
        finding for finding in findings if not any(silence.matches(finding) for silence in reasoned)
    ]
    problems = [silence.problem(findings, searched) for silence in silences]
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
