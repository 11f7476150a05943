"""Draw a dashboard from the answers of a Prometheus, or print its tables."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from dashboards.preview.draw import WIDTH, draw
from dashboards.preview.filled import filled
from dashboards.preview.queries import Json, Prometheus, QueryError, panels, read, variables
from dashboards.preview.results import Result, result
from dashboards.preview.span import Span, seconds
from dashboards.preview.values import text_table

FOLDER = Path(__file__).parents[2] / "helm/nodevitals/files/dashboards/en"


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="name of a dashboard, such as fleet")
    parser.add_argument("--json", type=Path, metavar="FILE", help="its JSON")
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument(
        "--variable", action="append", default=[], metavar="NAME=VALUE", help="several times: (a|b)"
    )
    parser.add_argument("--from", dest="since", metavar="now-6h", help="default: the dashboard's")
    parser.add_argument("--to", type=float, metavar="SECONDS", help="time stamp; default: now")
    parser.add_argument("--scrape-interval", default="15s", metavar="DURATION")
    parser.add_argument("--output", type=Path, metavar="FILE.png")
    parser.add_argument("--lines", type=int, default=0, help="only rows within as many grid lines")
    parser.add_argument("--filled", action="store_true", help="without lines that have no data")
    parser.add_argument("--tables", action="store_true", help="print each panel's result")
    return parser.parse_args()


def chosen(given: list[str]) -> dict[str, list[str]]:
    """Return values by the name of their variable."""
    found: dict[str, list[str]] = {}
    for one in given:
        name, _, value = one.partition("=")
        found.setdefault(name, []).append(value)
    return found


def printed(panel: Json, answered: Result, now: float, took: float) -> str:
    """Return a panel's result as text."""
    lines = text_table(panel, answered, now)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    head = f"## {panel.get('title', '')} ({panel['type']}, {took * 1000:.0f} ms)"
    return "\n".join([head, *rows, ""])


def render(
    dashboard: Json,
    prometheus: Prometheus,
    span: Span,
    given: dict[str, list[str]],
    output: Path | None,
    tables: bool = False,
    most: int = 0,
    width: int = WIDTH,
    only_filled: bool = False,
) -> None:
    """Ask, then draw and print what is wanted."""
    known = variables(dashboard, prometheus, span, given)
    results = {}
    for panel in panels(dashboard):
        started = time.monotonic()
        try:
            results[panel["id"]] = result(panel, known, span, prometheus)
        except QueryError as error:  # as in Grafana, the other panels are shown
            print(f"{panel.get('title')}: {error}", file=sys.stderr)
            results[panel["id"]] = Result()
        if tables:
            print(printed(panel, results[panel["id"]], span.end, time.monotonic() - started))
    if only_filled:
        dashboard = {**dashboard, "panels": filled(dashboard["panels"], results)}
    if output:
        draw(dashboard, results, known, span, output, most, width)


def main() -> None:
    """Run the command."""
    given = arguments()
    dashboard = read(given.json or FOLDER / f"{given.name}.json")
    span = Span.last(
        given.since or dashboard["time"]["from"],
        given.to or time.time(),
        seconds(given.scrape_interval),
    )
    if not (given.output or given.tables):
        raise SystemExit("--output or --tables: nothing to do")
    render(
        dashboard,
        Prometheus(given.prometheus),
        span,
        chosen(given.variable),
        given.output,
        given.tables,
        given.lines,
        given.filled,
    )


if __name__ == "__main__":
    main()
