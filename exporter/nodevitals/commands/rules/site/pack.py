"""The rule pack that the package ships, or another folder of the same shape, read once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nodevitals.commands.rules.findings import Finding
from nodevitals.commands.rules.rule_files import Rule, RuleFile, parse_rules
from nodevitals.commands.terminal import FOUND_WRONG, CommandError

THRESHOLD = "nodevitals:threshold"


class Pack(msgspec.Struct, frozen=True, kw_only=True):
    """Rule files and promtool tests by file name, and the pages of runbooks/ by their path."""

    files: dict[str, RuleFile]
    tests: dict[str, str]
    runbooks: dict[str, str]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, by file and in their order."""
        return tuple(rule for file in self.files.values() for rule in file.rules)

    @property
    def alerts(self) -> tuple[Rule, ...]:
        """All alerting rules."""
        return tuple(rule for rule in self.rules if rule.is_alert)

    @property
    def thresholds(self) -> dict[str, Rule]:
        """The rules that record thresholds, by the threshold's name."""
        return {
            rule.labels["threshold"]: rule
            for rule in self.rules
            if rule.name == THRESHOLD and "threshold" in rule.labels
        }


def read_pack(folder: Path) -> Pack:
    """Read a folder of rules. Raises CommandError with every file that cannot be used."""
    findings: list[Finding] = []
    files = {}
    for path in sorted(folder.glob("*.yaml")):
        file = read_text(path, path.read_bytes().decode(errors="replace"), findings)
        if file is not None:
            files[path.name] = file
    if findings:
        raise CommandError("\n".join(map(str, findings)), FOUND_WRONG)
    if not files:
        raise CommandError(f"{folder}: no rule file (*.yaml) here; name a folder with --rules")
    pages = sorted((folder / "runbooks").rglob("*.md"))
    return Pack(
        files=files,
        tests={
            path.name: path.read_text(encoding="utf-8")
            for path in sorted((folder / "tests").glob("*.yaml"))
        },
        runbooks={
            str(page.relative_to(folder / "runbooks")): page.read_text(encoding="utf-8")
            for page in pages
        },
    )


def read_text(path: Path, text: str, findings: list[Finding]) -> RuleFile | None:
    """A rule file from its text; its problems are added to `findings`."""
    return parse_rules(path, text.encode(), findings)
