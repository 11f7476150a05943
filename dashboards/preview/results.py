"""What a panel shows: its series, or its table after the transformations that dashboards use.

`merge`, `organize`, `groupingToMatrix`, `sortBy`; any other is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dashboards.preview.queries import Json, Prometheus, Query, Series, answer, queries
from dashboards.preview.span import Span
from dashboards.preview.variables import Variable

Row = dict[str, Any]
LEGEND = re.compile(r"\{\{\s*(.+?)\s*\}\}")


class Line(NamedTuple):
    """A series: its name, times in seconds, values."""

    name: str
    times: list[float]
    values: list[float]


@dataclass(frozen=True)
class Table:
    """Rows by the names of their columns; what a row lacks is missing."""

    columns: list[str]
    rows: list[Row]


@dataclass(frozen=True)
class Result:
    """A panel has series or a table."""

    lines: list[Line] = field(default_factory=list)
    table: Table | None = None


def result(
    panel: Json, known: Mapping[str, Variable], span: Span, prometheus: Prometheus
) -> Result:
    """Ask the panel's queries, and return what it shows."""
    answers = [(query, answer(query, span, prometheus)) for query in queries(panel, known, span)]
    if panel["type"] == "table":
        return Result(table=transformed(tables(answers), panel))
    return Result([line for query, series in answers for line in lines(query, series)])


def lines(query: Query, answered: Sequence[Series]) -> list[Line]:
    """Return the query's series with the names of its legend."""
    label_names = {name for series in answered for name in series["metric"]}
    return [
        Line(
            _name(series["metric"], query, label_names),
            [float(at) for at, _ in series["values"]],
            [float(value) for _, value in series["values"]],
        )
        for series in answered
    ]


def _name(labels: dict[str, str], query: Query, label_names: set[str]) -> str:
    """Return a series' name. With automatic legends: the value of the only label, else all."""
    if query.legend not in ("", "__auto"):
        return LEGEND.sub(lambda reference: labels.get(reference[1], ""), query.legend)
    if query.legend and len(label_names) == 1 and labels:
        return next(iter(labels.values()))
    pairs = [f'{name}="{labels[name]}"' for name in sorted(labels) if name != "__name__"]
    selector = f"{{{', '.join(pairs)}}}" if pairs else ""
    return labels.get("__name__", "") + selector or query.expression


def tables(answers: Sequence[tuple[Query, Sequence[Series]]]) -> list[Table]:
    """Return one table per query: time in milliseconds, the labels of all series, the value. With
    several queries the value's name has the query's.
    """
    found = []
    for query, answered in answers:
        value_name = f"Value #{query.ref}" if len(answers) > 1 else "Value"
        names = dict.fromkeys(name for series in answered for name in sorted(series["metric"]))
        rows = [
            {
                "Time": float(at) * 1000,
                **{name: series["metric"].get(name, "") for name in names},
                value_name: float(value),
            }
            for series in answered
            for at, value in series["values"]
        ]
        rows.sort(key=lambda row: float(row["Time"]))
        found.append(Table(["Time", *names, value_name], rows))
    return found


def transformed(found: list[Table], panel: Json) -> Table:
    """Return the panel's table after its transformations."""
    for step in panel.get("transformations", ()):
        if step["id"] not in TRANSFORMATIONS:
            raise ValueError(f"unknown transformation {step['id']}")
        found = TRANSFORMATIONS[step["id"]](found, step.get("options", {}))
    table = found[0]
    for rule in reversed(panel.get("options", {}).get("sortBy") or ()):
        table = _sorted(table, rule["displayName"], bool(rule.get("desc")))
    return table


def merge(found: list[Table], _options: Json) -> list[Table]:
    """Join tables into one. Rows with the same values in the columns that all tables have become
    one row, unless they contradict each other in another column.
    """
    names = list(dict.fromkeys(name for table in found for name in table.columns))
    keys = [name for name in names if all(name in table.columns for table in found)]
    joined: list[Row] = []
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    for table in found:
        for row in table.rows:
            same = by_key.setdefault(tuple(row[key] for key in keys), [])
            # Where two rows fit, Grafana fills both.
            fitting = [other for other in same if _agree(other, row)]
            for other in fitting:
                other.update(row)
            if not fitting:
                same.append(dict(row))
                joined.append(same[-1])
    return [Table(names, joined)]


def _agree(one: Row, other: Row) -> bool:
    return all(one.get(name) is None or one[name] == value for name, value in other.items())


def organize(found: list[Table], options: Json) -> list[Table]:
    """Keep, order and rename columns."""
    included = {name for name, kept in (options.get("includeByName") or {}).items() if kept}
    excluded = {name for name, gone in (options.get("excludeByName") or {}).items() if gone}
    order, renamed = options.get("indexByName") or {}, options.get("renameByName") or {}
    made = []
    for table in found:
        kept = [
            name
            for name in table.columns
            if (not included or name in included) and name not in excluded
        ]
        kept.sort(key=lambda name: order.get(name, len(order) + len(kept)))
        names = {name: renamed.get(name) or name for name in kept}
        rows = [{names[name]: row.get(name) for name in kept} for row in table.rows]
        made.append(Table(list(names.values()), rows))
    return made


def grouping_to_matrix(found: list[Table], options: Json) -> list[Table]:
    """Make a matrix: a row per value of one column, a column per value of another."""
    [table] = found
    across, down, value = (options[key] for key in ("columnField", "rowField", "valueField"))
    if not {across, down, value} <= set(table.columns):
        return found
    corner = f"{down}\\{across}"
    rows: dict[Any, Row] = {}
    for row in table.rows:
        rows.setdefault(row[down], {corner: row[down]})[str(row[across])] = row[value]
    columns = dict.fromkeys(str(row[across]) for row in table.rows)
    return [Table([corner, *columns], list(rows.values()))]


def sort_by(found: list[Table], options: Json) -> list[Table]:
    """Order the rows by one column."""
    [rule] = options["sort"]
    return [_sorted(table, rule["field"], bool(rule.get("desc"))) for table in found]


def _sorted(table: Table, column: str, descending: bool) -> Table:
    """Return the table in the order of a column; what is missing is the lowest."""

    def key(row: Row) -> tuple[int, float, str]:
        value = row.get(column)
        if value is None or value == "":
            return (0, 0.0, "")
        return (2, 0.0, value) if isinstance(value, str) else (1, value, "")

    return Table(table.columns, sorted(table.rows, key=key, reverse=descending))


TRANSFORMATIONS: dict[str, Callable[[list[Table], Json], list[Table]]] = {
    "merge": merge,
    "organize": organize,
    "groupingToMatrix": grouping_to_matrix,
    "sortBy": sort_by,
}
