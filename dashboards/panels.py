"""The kinds of panels that the dashboards use, but for tables. Each has a title, a description
and a unit.

In: texts, queries and thresholds. Out: builders of the SDK with a width and a height, which
`board.Board` places.
"""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    timeseries,
)
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models.dashboard import (
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    ValueMap,
)

from dashboards.queries import DATASOURCE
from dashboards.states import GREEN

Steps = Sequence[tuple[float | None, str]]
"""Colours from a value on, the first from None: no lower limit."""
Mappings = Sequence[ValueMap]
Link = tuple[str, str]
"""Text and address."""
CALM: Steps = ((None, GREEN),)


def thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    """Return colours from values on."""
    return (
        dashboard.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=colour) for value, colour in steps])
    )


def _by_thresholds() -> dashboard.FieldColor:
    return dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS)


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(False)


def number(
    title: str,
    description: str,
    query: prometheus.Dataquery,
    unit: str = "none",
    steps: Steps = CALM,
    mappings: Mappings = (),
    width: int = 3,
    height: int = 4,
    link: Link | None = None,
    decimals: int | None = None,
    empty: str = "–",
) -> stat.Panel:
    """Return a panel with one number, or one per series, over a small graph where the query has a
    range. `empty` is shown where there is no data. A number that is neither good nor bad has no
    `steps`, and no colour.
    """
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(query.ref_id("A"))
        .unit(unit)
        .thresholds(thresholds(steps or CALM))
        .color_scheme(_by_thresholds())
        .mappings(list(mappings))
        .no_value(empty)
        .reduce_options(_last())
        .color_mode(
            options.BigValueColorMode.BACKGROUND
            if steps or mappings
            else options.BigValueColorMode.NONE
        )
        .graph_mode(options.BigValueGraphMode.AREA)
        .span(width)
        .height(height)
    )
    if link:
        panel.data_links([_data_link(link)])
    return panel if decimals is None else panel.decimals(decimals)


def _data_link(link: Link) -> dashboard.DashboardLink:
    return dashboard.DashboardLink(link[0]).url(link[1])


def chart(
    title: str,
    description: str,
    *queries: prometheus.Dataquery,
    unit: str,
    steps: Steps = (),
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    lowest: float | None = 0.0,
    highest: float | None = None,
    colours: dict[str, str] | None = None,
    since: str = "",
) -> timeseries.Panel:
    """Return a graph over time. `steps` are drawn as lines; `colours` are by the series' name;
    `since` replaces the range of the dashboard.
    """
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(thresholds(steps or CALM))
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(options.TooltipDisplayMode.MULTI)
            .sort(options.SortOrder.DESCENDING)
        )
        .fill_opacity(60 if stacked else 5)
        .line_width(1)
        .span(width)
        .height(height)
    )
    for name, query in zip("ABCDEFGHIJ", queries, strict=False):
        panel.with_target(query.ref_id(name))
    if steps:
        panel.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED)
        )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A"))
    if lowest is not None:
        panel.min(lowest)
    if highest is not None:
        panel.max(highest)
    if since:
        panel.time_from(since)
    for name, colour in (colours or {}).items():
        panel.override_by_name(
            name, [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        )
    return panel


def timeline(
    title: str,
    description: str,
    *queries: prometheus.Dataquery,
    mappings: Mappings,
    width: int = 24,
    height: int = 8,
    unit: str = "none",
) -> statetimeline.Panel:
    """Return states over time, one line per series."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .mappings(list(mappings))
        .thresholds(thresholds(CALM))
        .color_scheme(_by_thresholds())
        .merge_values(True)
        .show_value(options.VisibilityMode.NEVER)
        .fill_opacity(85)
        .legend(
            common.VizLegendOptions()
            .show_legend(False)
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
        )
        .span(width)
        .height(height)
    )
    for name, query in zip("ABCDEFGHIJ", queries, strict=False):
        panel.with_target(query.ref_id(name))
    return panel


def bars(
    title: str,
    description: str,
    query: prometheus.Dataquery,
    unit: str,
    steps: Steps = CALM,
    width: int = 8,
    height: int = 8,
    mappings: Mappings = (),
) -> bargauge.Panel:
    """Return one horizontal bar per series, as long as its current value."""
    return (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(query.ref_id("A"))
        .unit(unit)
        .min(0)
        .thresholds(thresholds(steps))
        .color_scheme(_by_thresholds())
        .mappings(list(mappings))
        .no_value("–")
        .orientation(options.VizOrientation.HORIZONTAL)
        .display_mode(options.BarGaugeDisplayMode.BASIC)
        .reduce_options(_last())
        .span(width)
        .height(height)
    )
