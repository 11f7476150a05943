"""A dashboard as a picture, laid out by its own grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path

from dashboards.preview import graphs, grids, numbers
from dashboards.preview.canvas import Box, Canvas
from dashboards.preview.frames import Frame
from dashboards.preview.span import Span, duration
from dashboards.preview.values import Json
from dashboards.preview.variables import Variable

WIDTH = 1600
EDGE = 12
# Grafana's grid: 24 columns; a row of 30 pixels with 8 between.
LINE, GAP = 38, 8
HEADER = 74
NOW = {
    "stat": numbers.stat,
    "bargauge": numbers.bargauge,
    "piechart": numbers.piechart,
    "text": numbers.text,
    "table": grids.table,
}
OVER_TIME = {
    "timeseries": graphs.timeseries,
    "state-timeline": graphs.state_timeline,
    "heatmap": graphs.heatmap,
}


def laid_out(dashboard: Json) -> Iterator[tuple[Json, int]]:
    """Yield panels and rows with the height at which they stand: collapsed rows are opened."""
    moved = 0
    for panel in dashboard["panels"]:
        yield panel, panel["gridPos"]["y"] + moved
        inner = panel.get("panels") or []
        for one in inner:
            yield one, one["gridPos"]["y"] + moved
        if inner:
            moved += max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in inner) - (
                panel["gridPos"]["y"] + panel["gridPos"]["h"]
            )


def draw(
    dashboard: Json,
    results: Mapping[int, list[Frame]],
    known: Mapping[str, Variable],
    span: Span,
    output: Path,
    theme: str = "dark",
) -> None:
    """Write the picture; `results` are by the number of the panel."""
    places = list(laid_out(dashboard))
    lowest = max(y + panel["gridPos"]["h"] for panel, y in places)
    canvas = Canvas(WIDTH, HEADER + lowest * LINE + EDGE, theme)
    _header(dashboard, known, span, canvas)
    column = (WIDTH - 2 * EDGE + GAP) / 24
    for panel, y in places:
        grid = panel["gridPos"]
        box = Box(
            EDGE + grid["x"] * column,
            HEADER + y * LINE,
            grid["w"] * column - GAP,
            grid["h"] * LINE - GAP,
        )
        if panel["type"] == "row":
            canvas.text("▾", box.x + 2, box.y + box.h / 2, 13, canvas.theme.faint)
            canvas.text(panel["title"], box.x + 20, box.y + box.h / 2, 15, bold=True)
        else:
            _panel(panel, results[panel["id"]], canvas, box, span)
    output.parent.mkdir(parents=True, exist_ok=True)
    canvas.save(output)


def _panel(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, span: Span) -> None:
    kind = panel["type"]
    if not panel.get("transparent"):
        canvas.box(box, canvas.theme.panel, canvas.theme.border, radius=3)
    title = panel.get("title") or ""
    if title:
        canvas.text(title, box.x + 10, box.y + 17, 13, width=box.w - 20, bold=True)
    inner = box.inside(10, 32 if title else 8, 8)
    if kind in NOW:
        NOW[kind](panel, frames, canvas, inner, span.end)
    else:
        OVER_TIME[kind](panel, frames, canvas, inner, span)


def _header(dashboard: Json, known: Mapping[str, Variable], span: Span, canvas: Canvas) -> None:
    """Write title, time range and the values of the variables."""
    canvas.text(dashboard["title"], EDGE, 20, 17, bold=True)
    end = datetime.fromtimestamp(span.end, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    canvas.text(
        f"last {duration(span.length)}, until {end}",
        WIDTH - EDGE,
        20,
        12,
        canvas.theme.faint,
        across="right",
    )
    x = float(EDGE)
    for model in dashboard["templating"]["list"]:
        if model["type"] == "datasource" or model.get("hide"):
            continue
        variable = known[model["name"]]
        name = model.get("label") or model["name"]
        value = "All" if variable.every else ", ".join(variable.values)
        value = canvas.fit(value or "–", 12, 260)
        width = canvas.measure(name, 12) + canvas.measure(value, 12) + 34
        canvas.box(Box(x, 38, width, 26), canvas.theme.panel, canvas.theme.border, radius=2)
        canvas.text(name, x + 8, 51, 12, canvas.theme.link)
        canvas.text(value, x + width - 8, 51, 12, across="right")
        x += width + 8
