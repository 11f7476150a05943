"""The registry of faults, rules/faults/: its form, and what is missing from it.

One file per rule file that has alerts. An item of a group is a fault with its alert, an alert on
something else, or a recording rule; CONTRIBUTING.md shows one. In: YAML. Out: structs, and problems
that name file and item.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nodevitals.commands.rules.check_alerts import SEVERITIES
from nodevitals.document import DocumentError, parse_yaml

ACTIONS = (
    "none",
    "investigate",
    "restart_app",
    "reset_device",
    "drain",
    "reboot_node",
    "replace",
)
SCOPES = ("device", "node", "fleet", "job")
_ABSENT = re.compile(r"absent\(nodevitals:threshold\{[^}]*\}\)")
_READ = re.compile(r'nodevitals:threshold\{[^}]*threshold="(\w+)"')


class RegistryError(Exception):
    """A source file that cannot be read; the text names file, item and field."""


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a source file; an unknown key is an error."""


class Threshold(Form, kw_only=True):
    """A limit that a site may change: `nodevitals:threshold{threshold=NAME}`."""

    name: str
    value: int | float | str
    unit: str
    """What is counted or measured: seconds, errors per hour, share of …"""
    meaning: str = ""
    """Where the value comes from, and when to change it; lines of a comment."""


class Chinese(Form, kw_only=True):
    """What Chinese notifications call a fault."""

    name: str
    impact: str = ""
    """What it does to jobs; empty: what severity and component say (chinese.yaml)."""


class Preflight(Form, kw_only=True):
    """The same fault in a sample of the agent: `nodevitals preflight` waits for nothing."""

    part: str
    """What of the node is unfit: `accelerators`, `mounts`, …"""
    when: str
    """`FAMILY{LABEL="VALUE"} < FAMILY`: PromQL of one comparison (preflight_rows.py)."""
    subject: str
    """The object; it, `text` and `remedy` may name labels, {value} and {limit}."""
    text: str
    remedy: str


class Texts(Form, kw_only=True):
    """What every alert has; `action` and the runbook are for the person who gets it."""

    summary: str
    description: str
    action: str
    wait: str = msgspec.field(default="", name="for")
    keep_firing_for: str = ""
    labels: dict[str, str] = {}
    """In place of those of the fault, or added to them."""
    runbook: str = ""
    """The page of another alert."""
    note: str = ""


class FaultAlert(Texts, kw_only=True):
    """The alert on a recorded fault."""

    name: str
    faults: list[str] = []
    """All its faults, where it has more than this one."""
    expr: str = ""
    """Where it is not just `nodevitals:fault{fault=…}`."""


class Fault(Form, kw_only=True):
    """A row of `nodevitals:fault`, with the alert that fires when it lasts."""

    fault: str
    severity: str
    scope: str
    expr: str
    """True while the fault lasts."""
    action: str = ""
    """Empty where the series have a label `action`."""
    component: str = ""
    """Empty: that of the file."""
    note: str = ""
    """Why the expression is as it is: a comment in the rule file."""
    alert: FaultAlert | None = None
    """Empty where another item has it."""
    chinese: Chinese | None = None
    """In one item per fault."""
    thresholds: list[Threshold] = []
    preflight: list[Preflight] = []

    @property
    def title(self) -> str:
        """How problems name it."""
        return f"fault {self.fault}"


class Alert(Texts, kw_only=True):
    """An alert on something else than a fault of this group; its labels are all here."""

    alert: str
    expr: str = ""
    each_threshold: str = ""
    """Instead of `expr`: one term per threshold, whose name replaces NAME."""
    chinese: Chinese | None = None
    kinds: dict[str, Chinese] = {}
    """By its label `kind`, which the Chinese texts use in place of the fault."""
    thresholds: list[Threshold] = []
    preflight: list[Preflight] = []

    @property
    def title(self) -> str:
        """How problems name it."""
        return f"alert {self.alert}"


class Record(Form, kw_only=True):
    """A recording rule that is no fault."""

    record: str
    expr: str
    help: str = ""
    """What the series is, and its unit: in the first item of this name (recorded_series.py)."""
    labels: dict[str, str] = {}
    note: str = ""

    @property
    def title(self) -> str:
        """How problems name it."""
        return f"record {self.record}"


Item = Fault | Alert | Record
_Form = TypeVar("_Form", bound=Form)


class Group(Form, kw_only=True):
    """A group of rules. Alerts of faults are evaluated after all other rules of it."""

    name: str
    rules: list[Any]
    """Items; `read_sources` converts each for itself, so that a problem names it."""
    interval: str = ""
    note: str = ""

    @property
    def items(self) -> list[Item]:
        """The converted rules."""
        return self.rules


class Source(Form, kw_only=True):
    """A source file."""

    about: str
    """What the file is about: the comment at its head."""
    groups: list[Group] = []
    name: str = ""
    """That of the file, and of the rule file made from it."""
    component: str = ""
    thresholds: list[Threshold] = []
    """Those that several items read, or rules of other files."""

    @property
    def items(self) -> list[Item]:
        """All items in their order."""
        return [item for group in self.groups for item in group.items]

    @property
    def all_thresholds(self) -> list[Threshold]:
        """Those of the file, then those of its items."""
        owners = [item for item in self.items if not isinstance(item, Record)]
        return [*self.thresholds, *(one for item in owners for one in item.thresholds)]


class SharedWords(Form, kw_only=True):
    """chinese.yaml: Chinese words that faults share, by the value of a label."""

    severities: dict[str, str]
    other_severity: str
    actions: dict[str, str]
    domains: dict[str, str]
    first_steps: dict[str, str]
    """For many nodes with one fault, by what they have in common."""
    other_first_step: str
    planned: str
    critical_impact: str
    component_impacts: dict[str, str]
    other_impact: str


class Registry(msgspec.Struct, frozen=True):
    """All of rules/faults/."""

    sources: list[Source]
    words: SharedWords

    @property
    def items(self) -> list[tuple[Source, Item]]:
        """All items with their files."""
        return [(source, item) for source in self.sources for item in source.items]

    @property
    def thresholds(self) -> list[Threshold]:
        """All thresholds."""
        return [one for source in self.sources for one in source.all_thresholds]


def read_registry(folder: Path) -> Registry:
    """Read all source files. Raises RegistryError."""
    words = folder / "chinese.yaml"
    paths = [path for path in sorted(folder.glob("*.yaml")) if path != words]
    return Registry([_read(path) for path in paths], _converted(_load(words), SharedWords, words))


def _read(path: Path) -> Source:
    source = _converted(_load(path), Source, path)
    source.name = path.stem
    for group in source.groups:
        group.rules = [_item(path, rule) for rule in group.rules]
    return source


def _load(path: Path) -> Any:
    try:
        return parse_yaml(path.read_bytes())
    except DocumentError as error:
        raise RegistryError(f"{path.name}: {error}") from None


def _item(path: Path, rule: Any) -> Item:
    kinds: dict[str, type[Item]] = {"fault": Fault, "record": Record, "alert": Alert}
    names = rule if isinstance(rule, dict) else {}
    kind = next((kind for kind in kinds if isinstance(names.get(kind), str)), None)
    if kind is None:
        raise RegistryError(f"{path.name}: an item with none of {', '.join(kinds)}: {rule}")
    return _converted(rule, kinds[kind], path, f"{kind} {rule[kind]}: ")


def _converted(document: Any, form: type[_Form], path: Path, item: str = "") -> _Form:
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as error:
        raise RegistryError(f"{path.name}: {item}{error}") from None


def problems(registry: Registry, made: Mapping[Path, str], rules: Path) -> Iterator[str]:
    """Return what is missing or declared twice: `made` has the rule files that the registry makes,
    `rules` is the folder with those written by hand, tests/ and runbooks/.
    """
    yield from _fault_problems(registry)
    by_hand = {path: path.read_text() for path in rules.glob("*.yaml") if path not in made}
    yield from _threshold_problems(registry, {**by_hand, **made})
    tests = "".join(path.read_text() for path in sorted((rules / "tests").glob("*.yaml")))
    for source, item in registry.items:
        for name, page, critical in _alerts(item):
            where = f"{source.name}.yaml: alert {name}"
            if f"alertname: {name}" not in tests:
                yield f"{where}: no promtool test in rules/tests/"
            folders = ("runbooks", "runbooks/zh") if critical else ("runbooks",)
            for folder in folders:
                if not (rules / folder / f"{page}.md").is_file():
                    yield f"{where}: no page rules/{folder}/{page}.md"


def _alerts(item: Item) -> Iterator[tuple[str, str, bool]]:
    """The name of the alert, its runbook, and whether it can be critical."""
    if isinstance(item, Fault) and item.alert:
        severity = item.alert.labels.get("severity", item.severity)
        yield item.alert.name, item.alert.runbook or item.alert.name, severity == "critical"
    if isinstance(item, Alert):
        critical = item.labels.get("severity") == "critical"
        yield item.alert, item.runbook or item.alert, critical


def _fault_problems(registry: Registry) -> Iterator[str]:
    owners: dict[str, str] = {}
    named: Counter[str] = Counter()
    for source, item in registry.items:
        if isinstance(item, Record):
            continue
        where = f"{source.name}.yaml: {item.title}"
        if isinstance(item, Fault):
            fault = item.fault
            labels = {"severity": item.severity, "scope": item.scope, "action": item.action}
            if not (item.component or source.component):
                yield f"{where}: no component"
        else:
            fault, labels = item.labels.get("fault", ""), item.labels
        for label, known in (("severity", SEVERITIES), ("scope", SCOPES), ("action", ACTIONS)):
            value = labels.get(label, "")
            if value and value not in known:
                yield f"{where}: {label} {value!r} is none of {', '.join(known)}"
        if fault and fault != "none":
            owners.setdefault(fault, where)
        named[fault] += item.chinese is not None
    for fault, where in owners.items():
        if named[fault] != 1:
            yield f"{where}: {named[fault]} items of this fault have `chinese`; one must"


def _threshold_problems(registry: Registry, rules: Mapping[Path, str]) -> Iterator[str]:
    declared = Counter(one.name for one in registry.thresholds)
    read: set[str] = set()
    for path, text in sorted(rules.items()):
        names = set(_READ.findall(_ABSENT.sub("", text)))
        read |= names
        for name in sorted(names - declared.keys()):
            yield f"{path.name}: threshold {name}: no item declares it"
    for name, times in declared.items():
        if times > 1:
            yield f"threshold {name}: declared {times} times"
        if name not in read:
            yield f"threshold {name}: no rule reads it"
