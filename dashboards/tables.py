"""Tables: one row per set of labels, one column per query or label.

In: texts and queries. Out: a builder of the SDK that merges the queries' results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common, prometheus, table
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.panels import CALM, Link, Mappings, Steps, thresholds
from dashboards.queries import DATASOURCE


class Column(NamedTuple):
    """A column of a table: a query's value, or one of its labels.

    `source` is a query whose labels identify the row (the same ones in every query of the table),
    or the name of a label. A query may have more labels, which no other query has: these are
    columns too. A query without a title has only its labels shown.
    """

    title: str
    source: prometheus.Dataquery | str
    unit: str = "none"
    steps: Steps = ()
    mappings: Mappings = ()
    link: Link | None = None
    width: int = 0
    decimals: int | None = None


def grid(
    title: str,
    description: str,
    columns: Sequence[Column],
    width: int = 24,
    height: int = 9,
    sort_by: str = "",
    descending: bool = True,
    empty: str = "–",
) -> table.Panel:
    """Return a table: one row per set of labels, in the order of `columns`. `empty` is shown where
    there are none.

    Labels that are no column are hidden: every query must have the same labels, or rows do not
    merge.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .thresholds(thresholds(CALM))
        .unit("none")
        .no_value(empty)
        .filterable(True)
        .span(width)
        .height(height)
    )
    names: dict[str, str] = {}
    queries = [column for column in columns if not isinstance(column.source, str)]
    for column, ref in zip(queries, "ABCDEFGHIJKLMNOPQRSTUVWXYZ", strict=False):
        assert not isinstance(column.source, str)
        panel.with_target(column.source.ref_id(ref))
        # With one query Grafana calls its value `Value`.
        if column.title:
            names[f"Value #{ref}" if len(queries) > 1 else "Value"] = column.title
    names |= {column.source: column.title for column in columns if isinstance(column.source, str)}
    panel.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(_organize(columns, names))
    for column in filter(lambda column: column.title, columns):
        panel.override_by_name(column.title, _column_options(column))
    if sort_by:
        panel.sort_by([common.TableSortByFieldState().display_name(sort_by).desc(descending)])
    return panel


def _organize(columns: Sequence[Column], names: dict[str, str]) -> DataTransformerConfig:
    """Keep the columns, in their order, under their titles."""
    titles = [column.title for column in columns]
    return DataTransformerConfig(
        id_val="organize",
        options={
            "includeByName": dict.fromkeys(names, True),
            "indexByName": {name: titles.index(title) for name, title in names.items()},
            "renameByName": names,
        },
    )


def _column_options(column: Column) -> list[DynamicConfigValue]:
    # The text of an empty table is also that of its empty cells.
    found = [DynamicConfigValue("unit", column.unit), DynamicConfigValue("noValue", "")]
    cell: dict[str, Any] = {}
    if column.steps:
        steps = [{"value": value, "color": colour} for value, colour in column.steps]
        found.append(DynamicConfigValue("thresholds", {"mode": "absolute", "steps": steps}))
        cell = {"type": "color-text"}
    if column.mappings:
        found.append(DynamicConfigValue("mappings", [one.to_json() for one in column.mappings]))
        cell = {"type": "color-background", "mode": "basic"}
    if cell:
        found.append(DynamicConfigValue("custom.cellOptions", cell))
    if column.link:
        link = {"title": column.link[0], "url": column.link[1]}
        found.append(DynamicConfigValue("links", [link]))
    if column.width:
        found.append(DynamicConfigValue("custom.width", column.width))
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    return found
