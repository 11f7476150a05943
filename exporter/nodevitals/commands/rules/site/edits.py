"""Changes to single rules of a file: its text and the changes in, the text out.

The file is not written anew from its values, so that comments, order and layout stay.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import yaml

from nodevitals.commands.rules.rule_files import Rule, RuleFile
from nodevitals.commands.terminal import FOUND_WRONG, CommandError


class RuleEdit(msgspec.Struct, frozen=True):
    """New values of keys of a rule, None to remove a key; or a rule that is not `kept`."""

    values: dict[str, Any] = {}
    kept: bool = True


def edited(file: RuleFile, edits: Iterable[tuple[Rule, RuleEdit]]) -> str:
    """The text of a file with these edits. Raises CommandError where a rule is not in block style:
    one line per key.
    """
    lines: list[str | None] = list(file.lines)
    inserted: dict[int, list[str]] = {}
    for rule, edit in edits:
        if not edit.kept:
            indent = " " * (_indent(file, rule) - 2)
            _replace(lines, (rule.first_line, rule.last_line), [f"{indent}# {rule.name} is off."])
            continue
        for key, value in edit.values.items():
            text = [] if value is None else _key(key, value, " " * _indent(file, rule))
            if key in rule.key_lines:
                _replace(lines, rule.key_lines[key], text)
            else:
                inserted.setdefault(rule.key_lines["expr"][1], []).extend(text)
    made = []
    for number, line in enumerate(lines, 1):
        made += [] if line is None else [line]
        made += inserted.get(number, [])
    return "\n".join(made)


def _indent(file: RuleFile, rule: Rule) -> int:
    """The column of the rule's keys."""
    starts = [first for first, _ in rule.key_lines.values()]
    if len(set(starts)) < len(starts):
        text = f"{file.path}:{rule.first_line}: write each key on a line of its own"
        raise CommandError(text, FOUND_WRONG)
    line = file.lines[rule.first_line - 1]
    return len(line) - len(line.lstrip(" -"))


def _replace(lines: list[str | None], span: tuple[int, int], text: list[str]) -> None:
    first, last = span
    lines[first - 1] = "\n".join(text) if text else None
    for number in range(first + 1, last + 1):
        lines[number - 1] = None


def _key(key: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, str) and "\n" in value:
        return [f"{indent}{key}: |", *(f"{indent}  {line}" for line in value.splitlines())]
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False
    )
    # A plain value is followed by the end of its document.
    return [f"{indent}{key}: {text.partition(chr(10))[0]}"]
