"""The table panel: cells coloured by mappings and thresholds, as many rows as fit."""

from __future__ import annotations

import math

from dashboards.preview.canvas import Box, Canvas, readable
from dashboards.preview.frames import Frame, title
from dashboards.preview.numbers import missing, more
from dashboards.preview.tables import table_rows
from dashboards.preview.values import Json, Shown, settings, shown

ROW = {"sm": 30, "md": 38, "lg": 46}
SIZE = 12


def table(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, now: float) -> None:
    """Draw the panel."""
    columns, order = table_rows(panel, frames)
    if not order:
        missing(panel, canvas, box)
        return
    height = ROW[panel.get("options", {}).get("cellHeight") or "sm"]
    fitting = int((box.h - height) // height)
    # The line that says how many more there are is lower than a row.
    cut = order if len(order) <= fitting else order[: int((box.h - height - 16) // height)]
    configs = [settings(panel, one, frames) for one in columns]
    cells = [
        [shown(one.values[row], config, now) for row in cut]
        for one, config in zip(columns, configs, strict=True)
    ]
    titles = [
        str(config.get("displayName") or title(one, frames))
        for one, config in zip(columns, configs, strict=True)
    ]
    widths = _widths(titles, cells, configs, canvas, box.w)
    x = box.x
    for one, config, name, shown_cells, width in zip(
        columns, configs, titles, cells, widths, strict=True
    ):
        right = one.kind == "number" and config["custom"].get("align", "auto") in ("auto", "right")
        edge, across = (x + width - 6, "right") if right else (x + 6, "left")
        middle = box.y + height / 2
        canvas.text(name, edge, middle, SIZE, canvas.theme.link, width - 8, across, bold=False)
        for row, cell in enumerate(shown_cells):
            place = Box(x, box.y + (row + 1) * height, width, height)
            _cell(cell, one.values[cut[row]], config, canvas, place, right)
        x += width
    for row in range(len(cut) + 1):
        canvas.line(box.x, box.y + (row + 1) * height, box.w, canvas.theme.border)
    if len(cut) < len(order):
        more(canvas, box, len(order) - len(cut))


def _widths(
    titles: list[str],
    cells: list[list[Shown]],
    configs: list[Json],
    canvas: Canvas,
    whole: float,
) -> list[float]:
    """Return the widths of all columns: the fixed ones, the others after what they contain."""
    wanted = []
    for name, shown_cells, config in zip(titles, cells, configs, strict=True):
        longest = sorted({cell.text for cell in shown_cells}, key=len)[-3:]
        content = max(canvas.measure(text, SIZE) for text in (name, *longest)) + 16
        wanted.append(float(config["custom"].get("width") or content))
    free = [number for number, config in enumerate(configs) if not config["custom"].get("width")]
    rest = whole - sum(wanted)
    if free and rest >= 0:
        return [size + rest / len(free) * (number in free) for number, size in enumerate(wanted)]
    return [size * whole / sum(wanted) for size in wanted]


def _cell(cell: Shown, value: object, config: Json, canvas: Canvas, box: Box, right: bool) -> None:
    kind = (config["custom"].get("cellOptions") or {}).get("type") or "auto"
    shade = canvas.theme.text
    empty = value is None or value == ""
    if kind == "color-background" and cell.colour and not empty:
        canvas.box(Box(box.x + 1, box.y + 1, box.w - 2, box.h - 2), cell.colour, alpha=0.9)
        shade = readable(cell.colour)
    elif kind == "color-text" and cell.colour and not empty:
        shade = cell.colour
    elif kind == "gauge" and isinstance(value, float) and not math.isnan(value):
        low, high = config.get("min") or 0.0, config.get("max") or 1.0
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        place = Box(box.x + 6, box.y + 7, (box.w - 74), box.h - 14)
        canvas.box(place, canvas.theme.track)
        canvas.box(Box(place.x, place.y, place.w * share, place.h), cell.colour or "green")
    elif config.get("links") and not empty:
        shade = canvas.theme.link
    edge, across = (box.x + box.w - 6, "right") if right else (box.x + 6, "left")
    canvas.text(cell.text, edge, box.y + box.h / 2, SIZE, shade, box.w - 8, across)
