"""How long the panels' queries take on NODES nodes (1,000) with a day of past (HOURS, 24).

The series of the simulated fleet that the dashboards read are repeated under other names until
there are enough nodes. What rules record has the whole past, a sample a minute; scraped series have
it on the first node, and a quarter of an hour on all others: panels that read scraped series of all
nodes over time are marked, and would take longer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dashboards.preview.queries import Prometheus, answer, panels, queries, variables
from dashboards.preview.span import Span

from bench.measure import table
from testbed.dashboards import every, expressions
from testbed.node import ROOT
from testbed.promql import name_of, selectors
from testbed.servers import ServerProcess
from testbed.site import Site
from testbed.site.prometheus import SitePrometheus
from testbed.site.series import Series
from testbed.site.server import SitePages, write

Json = dict[str, Any]
STEP, RECENT, HOUR = 60, 900, 3600
SLOWEST = 25
TEMPLATES = ("gpu-01", "gpu-02", "gpu-04", "gpu-07", "gpu-00", "gpu-03", "gpu-05", "gpu-06")
REPEATS = 3


def main(folder: Path) -> None:
    """Print the slowest panels and the dashboards as a whole."""
    nodes, hours = int(os.environ.get("NODES", "1000")), int(os.environ.get("HOURS", "24"))
    boards = every()
    names = {
        name_of(one)
        for board in boards.values()
        for _, expression in expressions(board)
        for one in selectors(expression)
    } - {""}
    with Site(folder / "small", ROOT / "rules", step=STEP) as small:
        found = list(_present(small.prometheus, sorted(names)))
    repeated = list(_repeated(found, nodes))
    with (
        SitePages([]) as pages,
        _Store(folder / "large", pages, None, STEP) as server,
    ):
        count = _fill(server.url, repeated, hours * HOUR)
        print(f"{nodes} nodes, {hours} h: {len(repeated)} series, {count / 1e6:.0f}M samples\n")
        _report(boards, Prometheus(server.url, 120), hours)


class _Store(SitePrometheus):
    """Prometheus that scrapes nothing: what is written comes in order."""

    def __enter__(self) -> _Store:
        ServerProcess.__enter__(self)
        return self


def _present(prometheus: SitePrometheus, names: list[str]) -> Iterator[Series]:
    """Return the series of the small fleet with their values of now."""
    for name in names:
        for one in prometheus.ask("query", query=name)["result"]:
            labels = {key: text for key, text in one["metric"].items() if key != "__name__"}
            yield Series(name, labels, float(one["value"][1]))


def _repeated(found: list[Series], nodes: int) -> Iterator[Series]:
    """Yield series of the fleet as a whole once, and those of some nodes for every new node."""
    of_node: dict[str, list[Series]] = {}
    named = re.compile(r"\b[gn]pu-\d\d\b")
    for one in found:
        node = next((text for text in map(str, one.labels.values()) if named.match(text)), None)
        if node is None:
            yield one
        else:
            of_node.setdefault(named.match(node)[0], []).append(one)  # type: ignore[index]
    for number in range(nodes):
        template = TEMPLATES[0 if number % 50 == 0 else 4 + number % 4]
        for one in of_node[template]:
            labels = {
                key: _renamed(key, text, template, number) for key, text in one.labels.items()
            }
            yield Series(one.name, labels, one.value)


def _renamed(key: str, text: str, template: str, number: int) -> str:
    if key in ("uuid", "UUID"):
        return f"{text}-{number}"
    if key in ("leaf", "rack"):
        return f"{key}-{number // 32}"
    return text.replace(template, f"gpu-{number:04}")


def _fill(url: str, series: list[Series], past: int) -> int:
    """Write the past hour by hour; return the number of samples."""
    now, count = time.time() // STEP * STEP, 0
    whole = [one for one in series if ":" in one.name or one.labels.get("instance") == "gpu-0000"]
    for start in range(past, 0, -HOUR):
        moments = [now - before for before in range(start, max(0, start - HOUR), -STEP)]
        write(url, whole, moments)
        count += len(whole) * len(moments)
    done = set(map(id, whole))
    rest = [one for one in series if id(one) not in done]
    moments = [now - before for before in range(RECENT, 0, -STEP)]
    write(url, rest, moments)
    return count + len(rest) * len(moments)


def _report(boards: dict[str, Json], prometheus: Prometheus, hours: int) -> None:
    rows, totals = [], []
    for name, board in boards.items():
        span = Span.last(f"{hours}h", time.time() - STEP, STEP)
        known = variables(board, prometheus, span, {})
        total = 0.0
        for panel in panels(board):
            sent = queries(panel, known, span)
            best = min(_seconds(sent, span, prometheus) for _ in range(REPEATS))
            total += best
            rows.append((best, name, panel["title"], _marked(sent)))
        totals.append([name, f"{total:.2f} s"])
    rows.sort(reverse=True)
    table(
        ["dashboard", "panel", "queries", "reads scraped series over time"],
        [[name, title, f"{took:.3f} s", mark] for took, name, title, mark in rows[:SLOWEST]],
    )
    table(["dashboard", "all panels, one after the other"], totals)


def _seconds(sent: list[Any], span: Span, prometheus: Prometheus) -> float:
    began = time.monotonic()
    for query in sent:
        answer(query, span, prometheus)
    return time.monotonic() - began


def _marked(sent: list[Any]) -> str:
    over_time = [one.expression for one in sent if not one.instant]
    read = {
        name_of(one)
        for expression in over_time
        for one in selectors(expression)
        if ":" not in name_of(one) and "gpu-0000" not in expression
    }
    return ", ".join(sorted(read - {"ALERTS"}))[:60]
