"""`nodevitals probe NAME`: run one probe once and print what it reads.

The output for people has tables: the devices with their facts, and a row per metric with a column
per device; values have a unit, as `93.1 GiB` or `61 °C`. A label with one value per device (its
uuid, a mount's source) is left out, and equal series are one row: `--raw` prints everything.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from nodevitals import catalogue, probes
from nodevitals.agent import run_once
from nodevitals.commands.options import add_node_options, host_of, load_config
from nodevitals.commands.rights import lacks
from nodevitals.commands.terminal import (
    FOUND_WRONG,
    GOOD,
    CommandError,
    Subparsers,
    local_time,
    print_json,
    print_table,
)
from nodevitals.config import Config
from nodevitals.document import meant
from nodevitals.families import PREFIX, Family
from nodevitals.state.history import HistoryProbe
from nodevitals.wire import ProbeResult

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s")
_UNITS = {"celsius": " °C", "watts": " W", "volts": " V", "amperes": " A", "joules": " J"}
_LATEST = 2**35
"""A Unix time above this is none."""


def human(family: Family, value: float) -> str:
    """A value with the unit that the family's name and help give it."""
    if not math.isfinite(value):
        return f"{value:g}"
    name = family.name.removesuffix("_total")
    if family.help.startswith("Whether ") and value in (0, 1):
        return "yes" if value else "no"
    if family.help.startswith("Unix time ") and 0 < value < _LATEST:
        return local_time(value)
    if name.endswith("_bytes_per_second"):
        return _scaled(value, 1000, _DECIMAL)
    if name.endswith("_bytes"):
        return _scaled(value, 1024, _BINARY)
    if name.endswith("_seconds"):
        return seconds(value)
    if name.endswith("_ratio"):
        return f"{value * 100:.4g}%"
    if name.endswith("_hertz"):
        return f"{value / 1e6:.6g} MHz"
    whole = value == int(value) and abs(value) < 1e15
    number = f"{value:,.0f}" if whole else f"{value:.4g}"
    return f"{number}{_UNITS.get(name.rpartition('_')[2], '')}"


def seconds(value: float) -> str:
    """A duration in the unit that fits."""
    if value != 0 and abs(value) < 1:
        return f"{value * 1000:.3g} ms" if abs(value) >= 0.001 else f"{value * 1e6:.3g} µs"
    if abs(value) < 120:
        return f"{value:.3g} s"
    days, rest = divmod(int(value), 86400)
    hours, rest = divmod(rest, 3600)
    parts = ((days, "d"), (hours, "h"), (rest // 60, "m"))
    return " ".join(f"{number}{unit}" for number, unit in parts if number)


def _scaled(value: float, base: int, units: Sequence[str]) -> str:
    """A value with the unit that fits; small numbers are not scaled: a page is 4096 B."""
    if abs(value) < 10 * base:
        return f"{value:,.4g} {units[0]}" if value != int(value) else f"{value:,.0f} {units[0]}"
    power = min(int(math.log(abs(value), base)), len(units) - 1)
    return f"{value / base**power:.4g} {units[power]}"


# The subject of a sample: the first of these label groups that it has becomes a column.
SUBJECTS = (("device", "port"), ("device",), ("interface",), ("mountpoint",), ("peer", "port"))
# Labels whose value may change for a subject.
_STATES = ("action", "cause", "code", "fault", "kind", "reason", "state", "step")
# Number of devices in one table; more devices get further tables.
COLUMNS = 8
# From this number on, equal series become one row.
ALIKE = 3
NONE = "-"

Table = list[Sequence[str]]


class Shown(NamedTuple):
    """A sample with its family."""

    family: Family
    labels: Mapping[str, str]
    value: float

    @property
    def metric(self) -> str:
        """The name without the common prefix."""
        return self.family.name.removeprefix(PREFIX)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels that identify the subject."""
        known = (names for names in SUBJECTS if all(name in self.labels for name in names))
        return next(known, ())

    @property
    def subject(self) -> str:
        """The subject: `0`, `mlx5_0/1`, `/data`; '' for the node."""
        return "/".join(self.labels[name] for name in self.names)

    @property
    def is_fact(self) -> bool:
        """Whether the sample's labels are its information, as in info metrics."""
        return self.family.name.endswith("_info") and bool(self.subject)


class _Row(NamedTuple):
    metric: str
    labels: str
    cells: dict[str, str]
    help: str


def tables(samples: Sequence[Shown], describe: bool = False) -> Iterator[Table]:
    """The tables, each with its head: facts of the devices, the node's samples, the devices'."""
    yield from _fact_tables([sample for sample in samples if sample.is_fact])
    rest = [sample for sample in samples if not sample.is_fact]
    rows = [row for members in _by_family(rest) for row in _rows(members)]
    plain = [row for row in rows if "" in row.cells]
    if plain:
        yield _table(plain, [""], describe)
    subjects = list(dict.fromkeys(sample.subject for sample in rest if sample.subject))
    about = [row for row in rows if "" not in row.cells]
    if len(subjects) > COLUMNS >= len(about):
        yield _turned(about, subjects)
        return
    for first in range(0, len(subjects), COLUMNS):
        chosen = subjects[first : first + COLUMNS]
        yield _table([row for row in about if set(chosen) & set(row.cells)], chosen, describe)


def _by_family(samples: Sequence[Shown]) -> list[list[Shown]]:
    families: dict[tuple[str, bool], list[Shown]] = {}
    for sample in samples:
        families.setdefault((sample.family.name, bool(sample.subject)), []).append(sample)
    return list(families.values())


def _fact_tables(facts: Sequence[Shown]) -> Iterator[Table]:
    """A table per info metric; facts of an earlier table are not repeated."""
    printed: set[str] = set()
    for members in _by_family(facts):
        names = members[0].names
        labels = [
            label
            for label in members[0].labels
            if label not in (*names, *printed)
            and any(member.labels.get(label) for member in members)
        ]
        printed.update(labels)
        if labels:
            head = ["/".join(names), *labels]
            yield [
                [word.upper().replace("_", " ") for word in head],
                *(
                    [member.subject, *(member.labels.get(label) or NONE for label in labels)]
                    for member in members
                ),
            ]


def _rows(members: Sequence[Shown]) -> list[_Row]:
    """The rows of one family; one row where the series differ only in their labels."""
    dropped = {*members[0].names, *_properties(members)}
    rows: dict[str, _Row] = {}
    names: set[str] = set()
    for member in members:
        own = {name: value for name, value in member.labels.items() if name not in dropped}
        labels = " ".join(f"{name}={value}" for name, value in own.items())
        row = rows.setdefault(labels, _Row(member.metric, labels, {}, member.family.help))
        row.cells[member.subject] = human(member.family, member.value)
        names.update(own)
    first = next(iter(rows.values()))
    if len(rows) >= ALIKE and all(row.cells == first.cells for row in rows.values()):
        varying = ", ".join(name for name in members[0].labels if name in names)
        return [first._replace(labels=f"each {varying} ({len(rows)})")]
    return list(rows.values())


def _properties(members: Sequence[Shown]) -> set[str]:
    """The labels with one value per subject, which therefore add nothing."""
    values: dict[str, dict[str, set[str]]] = {}
    for member in members:
        for label, value in member.labels.items():
            values.setdefault(label, {}).setdefault(member.subject, set()).add(value)
    if not members[0].subject:
        return set()
    return {
        label
        for label, by_subject in values.items()
        if label not in _STATES and all(len(several) == 1 for several in by_subject.values())
    }


def _turned(rows: Sequence[_Row], subjects: Sequence[str]) -> Table:
    """A table with a row per subject, for hundreds of peers with a few metrics each."""
    heads = [f"{row.metric} {row.labels}".rstrip() for row in rows]
    return [
        ["", *heads],
        *([subject, *(row.cells.get(subject, NONE) for row in rows)] for subject in subjects),
    ]


def _table(rows: Sequence[_Row], subjects: Sequence[str], describe: bool) -> Table:
    labelled = any(row.labels for row in rows)
    heads = [f"#{subject}" if subject.isdecimal() else subject or "VALUE" for subject in subjects]
    head = ["METRIC", *["LABELS"] * labelled, *heads, *["HELP"] * describe]
    return [
        head,
        *(
            [
                row.metric,
                *[row.labels or NONE] * labelled,
                *(row.cells.get(subject, NONE) for subject in subjects),
                *[row.help] * describe,
            ]
            for row in rows
        ),
    ]


EXAMPLES = """\
examples:
  nodevitals probe nvidia
  nodevitals probe mounts --config.file /etc/nodevitals/nodevitals.yaml --describe
  nodevitals probe node --raw | grep clock

Hardware that is absent is status 0, unless the configuration has enabled: true."""


def add_to(commands: Subparsers) -> None:
    """Add `probe` to the command line."""
    parser = commands.add_parser(
        "probe", help="run one probe once and print what it reads", epilog=EXAMPLES
    )
    names = ", ".join(probes.registered())
    parser.add_argument("name", metavar="NAME", help=f"the probe: {names}")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--raw", action="store_true", help="the exposition, as in /metrics")
    output.add_argument("--json", action="store_true", help="one JSON object")
    output.add_argument("--describe", action="store_true", help="also the help of each metric")
    add_node_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> NoReturn:
    """Print the samples on stdout and failures on stderr.

    Ends the process: with status 0, or 1 where a target failed. An absent target is no failure.
    """
    name = options.name
    if name not in probes.registered():
        known = ", ".join(probes.registered())
        text = f"unknown probe {name!r}; known probes: {known}{meant(name, probes.registered())}"
        if name == HistoryProbe.name:
            text = f"{name} is the agent's own, and no probe to run: nodevitals history prints it"
        raise CommandError(text)
    logging.getLogger().addHandler(logging.NullHandler())  # failures are printed below
    config = load_config(options.config)
    text, results = run_once(host_of(options), config, name)
    if options.raw:
        print(text, end="")
    elif options.json:
        print_json({"samples": _samples(text), "targets": _outcomes(results)})
    else:
        _print_tables(text, results, options.describe)
    if not results:
        print(f"{name}: {_why_none(name, config)}", file=sys.stderr)
    for lack in lacks(_parsed(text)):
        print(f"{name}: {lack.text}; {lack.remedy}", file=sys.stderr)
    failed = _print_failures(name, results)
    sys.stdout.flush()
    sys.stderr.flush()
    # The exit hooks would wait for a stuck child.
    os._exit(FOUND_WRONG if failed else GOOD)


def _print_failures(name: str, results: Mapping[str, ProbeResult]) -> bool:
    failed = False
    for target, result in results.items():
        outcome, message = result.outcome, result.text
        what = name if target == name else f"{name} {target}"
        if outcome not in ("ok", "absent"):
            failed = True
            print(f"{what}: {result.reason}: {message}", file=sys.stderr)
            print(result.trace, end="", file=sys.stderr)
        elif outcome == "absent":
            print(f"{what}: not on this node: {message}", file=sys.stderr)
    return failed


def _print_tables(text: str, results: Mapping[str, ProbeResult], describe: bool) -> None:
    families = catalogue.all_families()
    shown = [Shown(families[name], labels, value) for name, labels, value in _parsed(text)]
    for head, *rows in tables(shown, describe):
        print_table(head, rows)
        print()
    if results:
        print_table(
            ("TARGET", "OUTCOME", "DURATION", "REASON"),
            [
                (target, result.outcome, seconds(result.duration_seconds), _reason(result))
                for target, result in results.items()
            ],
        )


def _reason(result: ProbeResult) -> str:
    """The reason, where it is more than the outcome."""
    return result.reason if result.reason not in ("", result.outcome) else NONE


def _parsed(text: str) -> list[tuple[str, dict[str, str], float]]:
    """The samples of the probe; those about the run and its processes are left out."""
    from prometheus_client.parser import text_string_to_metric_families

    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.startswith(("nodevitals_probe_", "nodevitals_worker_"))
    ]


def _samples(text: str) -> list[dict[str, object]]:
    return [
        {"metric": metric, "labels": labels, "value": value}
        for metric, labels, value in _parsed(text)
    ]


def _outcomes(results: Mapping[str, ProbeResult]) -> list[dict[str, object]]:
    return [
        {
            "target": target,
            "outcome": result.outcome,
            "reason": result.reason,
            "message": result.text,
            "duration_seconds": result.duration_seconds,
        }
        for target, result in results.items()
    ]


def _why_none(name: str, config: Config) -> str:
    """Why no target of a probe was run, and which key would change it."""
    if config.probes[name].enabled is False:
        return f"not enabled: set probes.{name}.enabled to true"
    keys = probes.registered()[name].needs
    if not keys:
        return "no targets"
    places = " or ".join(f"probes.{name}.{key}" for key in keys)
    return f"no targets: set {places}"
