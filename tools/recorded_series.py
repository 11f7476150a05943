"""The catalogue of the series that rules record: their help, and their labels by the expressions.

The help stands in the rule files, as Prometheus writes it: `# HELP NAME TEXT`, once per name. A
series with the name of an exposed family is that family, and needs none. In: the rules. Out: the
JSON that generated/recorded.py reads, and what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from nodevitals.catalogue import all_families, hub_families
from nodevitals.commands.generated.recorded import Recorded
from nodevitals.commands.rules.rule_files import Rule
from nodevitals.commands.rules.site.pack import Pack
from testbed.promql import TARGET, Known

# As in the rules: where a series is, then what it is of.
_FIRST = ("cluster", "instance", "job", "pool")
# Of a target whose own metrics have a label `job`: no rule keeps it on purpose.
_NOT_SHOWN = frozenset({"exported_job"})
_MOST_VALUES = 12
_HELP = re.compile(r"^\s*# HELP (\S+) (.*\S)\s*$")


def recorded_json(pack: Pack, folder: Path) -> str:
    """Return the catalogue of all recorded series that are no exposed family; `pack` is read from
    the folder.
    """
    helps, known = _helps(pack), Known(folder)
    found = [
        Recorded(
            name=name,
            file=_file(rules),
            help=helps.get(name, [""])[0],
            labels=_labels(known, name),
            closed=_closed(rules),
        )
        for name, rules in sorted(_rules(pack).items())
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def help_problems(pack: Pack) -> Iterator[str]:
    """Yield the series without help, with more than one, and help without a series."""
    rules, helps = _rules(pack), _helps(pack)
    for name in sorted(rules.keys() - helps.keys()):
        text = f"no help: write `# HELP {name} …` above it, in the registry `help:`"
        yield f"{Path(rules[name][0].file).name}: record {name}: {text}"
    for name, texts in helps.items():
        if name not in rules:
            yield f"# HELP {name}: no rule records it, or it is an exposed family with its own help"
        if len(texts) > 1:
            yield f"# HELP {name}: {len(texts)} times; once is enough"


def _rules(pack: Pack) -> dict[str, list[Rule]]:
    """The recording rules by name, without those that record an exposed family."""
    exposed = {**all_families(), **hub_families()}
    found: dict[str, list[Rule]] = {}
    for rule in pack.rules:
        if not rule.is_alert and rule.name not in exposed:
            found.setdefault(rule.name, []).append(rule)
    return found


def _helps(pack: Pack) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in pack.files.values():
        for line in file.lines:
            if match := _HELP.match(line):
                found.setdefault(match[1], []).append(match[2])
    return found


def _file(rules: Sequence[Rule]) -> str:
    files = {Path(rule.file).name for rule in rules}
    return files.pop() if len(files) == 1 else ""


def _labels(known: Known, name: str) -> tuple[str, ...]:
    labels = known.labels(name)
    if labels is None:
        raise SystemExit(f"rules: the labels of {name} are not known from its expression")
    shown = labels - _NOT_SHOWN
    return (*(one for one in _FIRST if one in shown), *sorted(shown - set(_FIRST)))


def _closed(rules: Sequence[Rule]) -> dict[str, tuple[str, ...]]:
    """The values of the labels that each rule of a name adds."""
    names = set.intersection(*(set(rule.labels) for rule in rules)) - TARGET
    values = {name: tuple(dict.fromkeys(one.labels[name] for one in rules)) for name in names}
    return {
        name: several for name, several in sorted(values.items()) if len(several) <= _MOST_VALUES
    }
