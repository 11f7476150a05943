"""A table with one label in rows and another in columns: a matrix, which Grafana's heatmap cannot
show, as its vertical axis has to be numbers.
"""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, dashboard, prometheus, table
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)

from dashboards.panels import Mappings, Steps
from dashboards.queries import DATASOURCE


def crossed(
    title: str,
    description: str,
    query: prometheus.Dataquery,
    row: str,
    column: str,
    unit: str,
    steps: Steps,
    mappings: Mappings = (),
    width: int = 24,
    height: int = 14,
) -> table.Panel:
    r"""Return the table of a query whose series have the labels `row` and `column` only.

    Grafana names its first column `row\column`. The columns are sorted before they are made, as an
    instant query has no order.
    """
    corner = f"{row}\\{column}"
    wide = [
        DynamicConfigValue("custom.width", 130),
        DynamicConfigValue("custom.cellOptions", {"type": "auto"}),
    ]
    return (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(query.ref_id("A"))
        .unit(unit)
        .decimals(0)
        .thresholds(
            dashboard.ThresholdsConfig()
            .mode(ThresholdsMode.ABSOLUTE)
            .steps([Threshold(value=value, color=colour) for value, colour in steps])
        )
        .mappings(list(mappings))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .cell_options(
            options.TableColoredBackgroundCellOptions(
                mode=options.TableCellBackgroundDisplayMode.BASIC
            )
        )
        .cell_height(options.TableCellHeight.SM)
        .min_width(50)
        .with_transformation(
            DataTransformerConfig(
                id_val="sortBy", options={"fields": {}, "sort": [{"field": column}]}
            )
        )
        .with_transformation(
            DataTransformerConfig(
                id_val="groupingToMatrix",
                options={
                    "columnField": column,
                    "rowField": row,
                    "valueField": "Value",
                    "emptyValue": "null",
                },
            )
        )
        .override_by_name(corner, wide)
        .sort_by([common.TableSortByFieldState().display_name(corner)])
        .span(width)
        .height(height)
    )
