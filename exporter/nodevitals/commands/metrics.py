"""`nodevitals metrics [NAME ...]`: print the catalogue of metric families, or single ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping

from nodevitals import catalogue
from nodevitals.commands.generated.recorded import Recorded, metrics_page, recorded_series
from nodevitals.commands.shipped import shipped
from nodevitals.commands.terminal import CommandError, Subparsers, print_json
from nodevitals.document import meant, parse_yaml
from nodevitals.families import PREFIX, Family

EXAMPLES = """\
examples:
  nodevitals metrics nodevitals_rdma_port_up
  nodevitals metrics rdma_port_up nodevitals:node_pool
  nodevitals metrics --format json | jq -r '.[].name'"""
_UNITS = ("bytes_per_second", "amperes", "bytes", "celsius", "hertz", "joules", "ratio", "seconds")
UNITS = (*_UNITS, "volts", "watts")
_FAULT = re.compile(r'\bfault="([a-z0-9_]+)"')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def add_to(commands: Subparsers) -> None:
    """Add `metrics` to the command line."""
    parser = commands.add_parser(
        "metrics", help="print the catalogue of metric families", epilog=EXAMPLES
    )
    what = "a family, with or without nodevitals_, or a series that the rules record (default: all)"
    parser.add_argument("names", metavar="NAME", nargs="*", help=what)
    parser.add_argument(
        "--format",
        choices=("markdown", "json"),
        help="markdown: the page of all metrics; json: an array (default markdown, of a NAME text)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print docs/METRICS.md, the families as JSON, or what is known of the named ones."""
    of_the_hub = catalogue.hub_families()
    families = dict(sorted({**catalogue.all_families(), **of_the_hub}.items()))
    if options.names and options.format == "markdown":
        raise CommandError("--format markdown is the page of all metrics: leave out the NAME")
    recorded = recorded_series()
    known: dict[str, Family | Recorded] = {**families, **recorded}
    chosen = [_find(name, known) for name in options.names] or [*families.values()]
    if options.format == "json":
        print_json(chosen)
    elif options.names:
        owners = catalogue.owners(of_the_hub)
        owners |= {
            name: [f"rules/{one.file}" if one.file else "rules/"] for name, one in recorded.items()
        }
        alerts = _alerts_by_name()
        print("\n\n".join(_text(one, owners[one.name], alerts) for one in chosen))
    else:
        print(metrics_page(recorded.values()), end="")
    return 0


def _find(name: str, families: Mapping[str, Family | Recorded]) -> Family | Recorded:
    for known in (name, f"{PREFIX}{name}"):
        if known in families:
            return families[known]
    short = [known.removeprefix(PREFIX) for known in families]
    hint = meant(name.removeprefix(PREFIX), short)
    text = f"unknown metric {name!r}{hint or '; nodevitals metrics lists all of them'}"
    raise CommandError(text)


def _text(family: Family | Recorded, owners: list[str], alerts: Mapping[str, list[str]]) -> str:
    unit = next((unit for unit in UNITS if unit in _ends(family.name)), "")
    closed = {
        f"  {name}": " | ".join(value or '""' for value in values)
        for name, values in family.closed.items()
        if values
    }
    rows = {
        "kind": family.kind,
        "unit": unit.replace("_", " "),
        "labels": ", ".join(family.labels) or "none",
        **closed,
        "": "and those of the configuration" if family.open else "",
        "exposed by": ", ".join(_owner(owner) for owner in owners),
        "alerts": ", ".join(alerts.get(family.name, ())) or "none",
    }
    width = max(map(len, rows))
    lines = (f"  {title:<{width}}  {text}" for title, text in rows.items() if text)
    return "\n".join([family.name, f"  {family.help}", *lines])


def _ends(name: str) -> Iterator[str]:
    """The endings of a name that may be a unit, without `_total`."""
    words = name.removesuffix("_total").split("_")
    yield from ("_".join(words[-count:]) for count in (3, 1))


def _owner(owner: str) -> str:
    return f"probe {owner.strip('`')}" if re.fullmatch(r"`\w+`", owner) else owner.strip("`")


def _alerts_by_name() -> dict[str, list[str]]:
    """The alerts of the shipped rules by the families that they read, also through recording
    rules; a fault stands for its own row of nodevitals:fault only.
    """
    sources: dict[str, set[str]] = {}
    for file in sorted(shipped("rules").glob("*.yaml")):
        for group in (parse_yaml(file.read_bytes()) or {}).get("groups", ()):
            for rule in group["rules"]:
                expression = str(rule["expr"])
                reads = {*_FAULT.findall(expression)} or {*_NAME.findall(expression)}
                made = f"alert {rule['alert']}" if "alert" in rule else rule["record"]
                fault = rule.get("labels", {}).get("fault", "")
                sources.setdefault(fault if "record" in rule and fault else made, set()).update(
                    reads
                )
    found: dict[str, list[str]] = {}
    for alert in sorted(name for name in sources if name.startswith("alert ")):
        for name in _read_by(alert, sources):
            found.setdefault(name, []).append(alert.removeprefix("alert "))
    return found


def _read_by(rule: str, sources: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [rule]
    while waiting:
        for name in sources.get(waiting.pop(), set()) - seen:
            seen.add(name)
            waiting.append(name)
    return seen
