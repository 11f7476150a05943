"""Rule files and their tests: a folder in, rules with their line numbers out.

Only the shape that the checks need is required here; promtool checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

import msgspec
import yaml

from nodevitals.commands.rules.findings import Finding
from nodevitals.document import DocumentError, Problem, parse_yaml, translated

# libyaml's parser where PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MANIFEST = "PrometheusRule"
SUFFIXES = (".yaml", ".yml")
_Shape = TypeVar("_Shape")


class Rule(msgspec.Struct, frozen=True):
    """A rule as its file has it; line numbers start at 1."""

    file: str
    name: str
    is_alert: bool
    expression: str
    labels: dict[str, str]
    annotations: dict[str, str]
    first_line: int
    last_line: int
    expression_line: int
    """The line where the expression starts."""
    wait: str = ""
    """`for`, as it is written; '' without."""
    keep_firing_for: str = ""
    key_lines: dict[str, tuple[int, int]] = {}
    """First and last line of each key."""
    group: str = ""
    """The name of its group."""


class RuleFile(msgspec.Struct, frozen=True):
    """A rule file that could be read."""

    path: str
    lines: tuple[str, ...]
    rules: tuple[Rule, ...]
    is_manifest: bool = False
    """Whether it is a PrometheusRule of Kubernetes, which promtool does not read."""


class _RuleShape(msgspec.Struct):
    record: str = ""
    alert: str = ""
    expr: Union[str, int, float] = ""
    labels: Optional[dict[str, Any]] = None
    annotations: Optional[dict[str, Any]] = None
    wait: Union[str, int] = msgspec.field(default="", name="for")
    keep_firing_for: Union[str, int] = ""


class _GroupShape(msgspec.Struct):
    name: str = ""
    rules: Optional[list[_RuleShape]] = None


class _RulesShape(msgspec.Struct):
    groups: Optional[list[_GroupShape]] = None
    kind: str = ""
    spec: Optional[Any] = None


class _CaseShape(msgspec.Struct):
    alertname: str = ""
    exp_alerts: Optional[list[Any]] = None


class _TestShape(msgspec.Struct):
    alert_rule_test: Optional[list[_CaseShape]] = None


class _TestsShape(msgspec.Struct):
    tests: Optional[list[_TestShape]] = None


def rule_paths(places: Iterable[Path], findings: list[Finding]) -> list[Path]:
    """The rule files among files and folders; a folder without any is added to `findings`."""
    paths: dict[Path, None] = {}
    for place in places:
        found = [place]
        if place.is_dir():
            found = sorted(path for path in place.iterdir() if path.suffix in SUFFIXES)
            if not found:
                text = "no rule file (*.yaml or *.yml) here"
                findings.append(Finding(str(place), 0, "file/missing", "", text))
        paths.update(dict.fromkeys(found))
    return list(paths)


def read_rules(paths: Iterable[Path], findings: list[Finding]) -> tuple[RuleFile, ...]:
    """The rule files; files that cannot be read are added to `findings`."""
    files = []
    for path in paths:
        file = parse_rules(path, _read(path, findings), findings)
        if file is not None:
            files.append(file)
    return tuple(files)


def parse_rules(path: Path, text: bytes, findings: list[Finding]) -> RuleFile | None:
    """The rule file with this text; None where it has no rules, or, with a finding added to
    `findings`, is no rule file.
    """
    shape = _shape(path, text, _RulesShape, findings)
    if shape is not None and shape.kind == MANIFEST:
        shape = _manifest(path, shape, findings)
    return _rule_file(str(path), text, shape) if text and shape is not None else None


def _manifest(path: Path, shape: _RulesShape, findings: list[Finding]) -> _RulesShape | None:
    """The rules within a PrometheusRule."""
    try:
        inner = msgspec.convert(shape.spec, _RulesShape)
    except msgspec.ValidationError as error:
        text = translated(error)
        findings.append(Finding(str(path), 0, "file/invalid", "", f"spec: {text}"))
        return None
    return msgspec.structs.replace(inner, kind=MANIFEST)


def read_tests(paths: Iterable[Path], findings: list[Finding]) -> dict[str, set[bool]]:
    """For each alert that tests name: whether a test expects it firing (True), silent (False)."""
    tested: dict[str, set[bool]] = {}
    for path in paths:
        shape = _shape(path, _read(path, findings), _TestsShape, findings)
        for test in (shape.tests if shape else None) or ():
            for case in test.alert_rule_test or ():
                tested.setdefault(case.alertname, set()).add(bool(case.exp_alerts))
    return tested


def _read(path: Path, findings: list[Finding]) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        findings.append(Finding(str(path), 0, "file/invalid", "", message))
        return b""


def _shape(path: Path, text: bytes, shape: type[_Shape], findings: list[Finding]) -> _Shape | None:
    """The document as a shape; None where it is empty or is not that."""
    try:
        document = parse_yaml(text)
        return None if document is None else msgspec.convert(document, shape)
    except msgspec.ValidationError as error:
        problems: tuple[Problem, ...] = (Problem("", translated(error)),)
    except DocumentError as error:
        problems = error.problems
    for problem in problems:
        findings.append(Finding(str(path), problem.line, "file/invalid", "", str(problem)))
    return None


def _rule_file(path: str, text: bytes, shape: _RulesShape) -> RuleFile:
    lines = tuple(text.decode(errors="replace").split("\n"))
    root: Any = yaml.compose(text, Loader=_Loader)
    is_manifest = shape.kind == MANIFEST
    nodes = list(_rule_nodes(_value(root, "spec") if is_manifest else root))
    shapes = [(group.name, rule) for group in shape.groups or () for rule in group.rules or ()]
    if len(nodes) != len(shapes):  # a merge key (<<) brought rules that have no line here
        nodes = [root] * len(shapes)
    rules = (_rule(path, group, rule, node, lines) for (group, rule), node in zip(shapes, nodes))
    return RuleFile(path, lines, tuple(rules), is_manifest)


def _rule(
    path: str, group: str, shape: _RuleShape, node: yaml.Node, lines: tuple[str, ...]
) -> Rule:
    return Rule(
        file=path,
        name=shape.alert or shape.record,
        is_alert=bool(shape.alert),
        expression=str(shape.expr),
        labels={name: str(value) for name, value in (shape.labels or {}).items()},
        annotations={name: str(value or "") for name, value in (shape.annotations or {}).items()},
        first_line=node.start_mark.line + 1,
        last_line=_last_line(node, lines),
        expression_line=_first_text_line(_value(node, "expr") or node),
        wait=str(shape.wait),
        keep_firing_for=str(shape.keep_firing_for),
        key_lines={
            str(key.value): (key.start_mark.line + 1, _last_line(value, lines))
            for key, value in (node.value if isinstance(node, yaml.MappingNode) else ())
        },
        group=group,
    )


def _rule_nodes(root: yaml.Node | None) -> Iterator[yaml.Node]:
    for group in _items(_value(root, "groups")):
        yield from _items(_value(group, "rules"))


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _first_text_line(node: yaml.Node) -> int:
    """The line of a scalar's text: a block (| or >) starts on the line below its indicator."""
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(node.start_mark.line) + (2 if block else 1)


def _last_line(node: yaml.Node, lines: tuple[str, ...]) -> int:
    """The line of the last text in a rule; comments and blank lines below it are not the rule's."""
    if isinstance(node, yaml.ScalarNode):
        end = min(int(node.end_mark.line) + (1 if node.end_mark.column else 0), len(lines))
        while end > 1 and not lines[end - 1].strip():
            end -= 1
        return end
    pairs = node.value if isinstance(node, yaml.MappingNode) else [(item,) for item in node.value]
    ends = [_last_line(part, lines) for pair in pairs for part in pair]
    return max(ends, default=int(node.start_mark.line) + 1)
