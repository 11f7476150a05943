"""A dashboard as a plain picture, laid out by its own grid; what does not fit is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox
from PIL import Image

from dashboards.preview.filled import is_empty
from dashboards.preview.queries import Json
from dashboards.preview.results import Result
from dashboards.preview.span import Span, duration
from dashboards.preview.values import number, settings, shown, visible
from dashboards.preview.variables import Variable

# In pixels: width of the picture; height of a row of Grafana's grid, of the heading and of a line
# of text; mean width of a character.
WIDTH, LINE, HEADER, TEXT, CHARACTER = 1600, 38, 60, 20, 6.2
DPI = 100
COLUMNS = 24
FONT: dict[str, Any] = {"fontsize": 8}


def upper(panels: list[Json], most: int) -> list[Json]:
    """Return the panels that end within as many lines of the grid, and the rows above them."""
    fitting = [
        panel
        for panel in panels
        if not most or panel["gridPos"]["y"] + panel["gridPos"]["h"] <= most
    ]
    last = max(panel["gridPos"]["y"] for panel in fitting if panel["type"] != "row")
    return [panel for panel in fitting if panel["gridPos"]["y"] <= last]


def draw(
    dashboard: Json,
    results: Mapping[int, Result],
    known: Mapping[str, Variable],
    span: Span,
    output: Path,
    most: int = 0,
    width: int = WIDTH,
) -> None:
    """Write the picture, `width` pixels wide; `results` are by the number of the panel. With
    `most`, only the panels that end within as many lines of the grid.
    """
    panels = upper(dashboard["panels"], most)
    height = HEADER + LINE * max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white")
    end = datetime.fromtimestamp(span.end, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    chosen = [
        f"{model.get('label') or model['name']}: "
        + ("All" if known[model["name"]].every else ", ".join(known[model["name"]].values))
        for model in dashboard["templating"]["list"]
        if model["type"] != "datasource"
    ]
    heading = f"{'   '.join(chosen)}   last {duration(span.length)}, until {end}"
    figure.text(0.01, 1 - 20 / height, dashboard["title"], fontsize=13, weight="bold", va="center")
    figure.text(0.01, 1 - 44 / height, heading, color="dimgray", va="center", **FONT)
    for panel in panels:
        grid = panel["gridPos"]
        left, top = grid["x"] * width / COLUMNS + 12, HEADER + grid["y"] * LINE
        wide, high = grid["w"] * width / COLUMNS - 24, grid["h"] * LINE - 12
        if panel["type"] == "row":
            y = 1 - (top + LINE / 2) / height
            figure.text(left / width, y, panel["title"], fontsize=11, weight="bold", va="center")
            continue
        # The title stands above the axes.
        place = (left / width, 1 - (top + high) / height, wide / width, (high - 24) / height)
        _panel(figure.add_axes(place), panel, results[panel["id"]], span, (wide, high - 24))
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output)
    with Image.open(output) as image:  # a palette: a third of the size
        flat = image.convert("RGB").quantize(256)
    flat.save(output, optimize=True)


def _panel(axes: Axes, panel: Json, result: Result, span: Span, size: tuple[float, float]) -> None:
    axes.set_title(_plain(panel.get("title") or ""), loc="left", fontsize=9, weight="bold")
    axes.tick_params(labelsize=7, length=2)
    if is_empty(result):
        empty = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue") or "No data"
        axes.text(0.5, 0.5, empty, ha="center", va="center", color="gray", **FONT)
        axes.set(xticks=[], yticks=[])
        return
    if panel["type"] not in KINDS:
        raise ValueError(f"unknown kind of panel {panel['type']}")
    KINDS[panel["type"]](axes, panel, result, span, size)


def colour(name: str) -> str:
    """Return a colour of matplotlib for one of Grafana, whose shades become one."""
    hue = name.rpartition("-")[2]
    known = {"yellow": "gold", "transparent": "none", "text": "black"}
    return known.get(hue) or (f"tab:{hue}" if f"tab:{hue}" in mpl.colors.TABLEAU_COLORS else hue)


def _plain(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def timeseries(
    axes: Axes, panel: Json, result: Result, span: Span, size: tuple[float, float]
) -> None:
    """Draw lines or stacked areas, with a legend."""
    config = panel["fieldConfig"]["defaults"]
    times = sorted({at for line in result.lines for at in line.times})
    dates = [datetime.fromtimestamp(at, timezone.utc) for at in times]
    stacked = (config.get("custom", {}).get("stacking") or {}).get("mode", "none") != "none"
    below = [0.0] * len(times)
    for place, line in enumerate(result.lines):
        at_time = dict(zip(line.times, line.values, strict=True))
        values = [at_time.get(at, math.nan) for at in times]
        fixed = settings(panel, line.name).get("color") or {}
        shade = colour(fixed["fixedColor"]) if fixed.get("mode") == "fixed" else f"C{place % 10}"
        if stacked:
            above = [low + at_time.get(at, 0.0) for low, at in zip(below, times, strict=True)]
            axes.fill_between(dates, below, above, label=_plain(line.name), color=shade, alpha=0.7)  # type: ignore[arg-type]
            below = above
        else:
            axes.plot(dates, values, label=_plain(line.name), color=shade, linewidth=1)  # type: ignore[arg-type]
    axes.set_ylim(bottom=config.get("min"), top=config.get("max"))
    unit, decimals = config.get("unit") or "none", config.get("decimals")
    axes.yaxis.set_major_locator(MaxNLocator(max(int(size[1] // 45), 2)))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: number(round(value, 12), unit, decimals, span.end))
    )
    axes.tick_params(axis="y", direction="in", pad=-4)
    for label in axes.get_yticklabels():
        label.set_horizontalalignment("left")
    _time_axis(axes, span)
    handles, names = axes.get_legend_handles_labels()
    fitting = max(int(size[1] // (2 * TEXT)), 1)
    title = f"and {len(names) - fitting} more" if len(names) > fitting else None
    # Beside the labels of the axis, which stand inside.
    axes.legend(
        handles[:fitting],
        names[:fitting],
        loc="upper left",
        bbox_to_anchor=(0.14, 1),
        fontsize=7,
        title=title,
        title_fontsize=7,
    )


def _time_axis(axes: Axes, span: Span) -> None:
    ends = [datetime.fromtimestamp(at, timezone.utc) for at in (span.start, span.end)]
    axes.set_xlim(*ends)  # type: ignore[arg-type]
    locator = AutoDateLocator(tz=timezone.utc, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(locator, tz=timezone.utc, show_offset=False)  # type: ignore[no-untyped-call]
    )
    axes.tick_params(axis="x", direction="in", pad=-12)
    axes.grid(True, linewidth=0.4)


def state_timeline(
    axes: Axes, panel: Json, result: Result, span: Span, size: tuple[float, float]
) -> None:
    """Draw one line of coloured states per series; a gap is a gap."""
    lines = result.lines[: max(int(size[1] // TEXT), 1)]
    for row, line in enumerate(lines):
        config = settings(panel, line.name)
        steps = [after - at for at, after in zip(line.times, line.times[1:], strict=False)]
        step = min(steps, default=60.0) / 86400
        for at, value in zip(line.times, line.values, strict=True):
            shade = shown(value, config, span.end).colour
            if shade:
                axes.broken_barh(
                    [(at / 86400, step)], (row - 0.4, 0.8), facecolors=colour(shade), alpha=0.6
                )
    _time_axis(axes, span)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [_plain(line.name) for line in lines], ha="left")
    axes.tick_params(axis="y", direction="in", pad=-4)
    _count(axes, len(lines), len(result.lines))


def _count(axes: Axes, drawn: int, every: int) -> None:
    """Say in the panel's title how much does not fit."""
    if drawn < every:
        axes.set_title(f"{drawn} of {every}", loc="right", fontsize=7)


def stat(axes: Axes, panel: Json, result: Result, span: Span, _size: tuple[float, float]) -> None:
    """Write the last value of each series on the colour of its threshold."""
    options = panel.get("options", {})
    mode, several = options.get("textMode") or "auto", len(result.lines) > 1
    axes.set(xticks=[], yticks=[], xlim=(0, len(result.lines)), ylim=(0, 1))
    for place, line in enumerate(result.lines):
        value = shown(line.values[-1], settings(panel, line.name), span.end)
        if options.get("colorMode") == "background" and value.colour:
            axes.axvspan(place, place + 1, color=colour(value.colour), alpha=0.6)
        named = mode == "value_and_name" or (mode == "auto" and several)
        text = line.name if mode == "name" else value.text
        text = f"{line.name}\n{text}" if named else text
        fontsize = 8 if several or len(text) > 12 else 16
        axes.text(place + 0.5, 0.5, _plain(text), ha="center", va="center", fontsize=fontsize)


def bargauge(
    axes: Axes, panel: Json, result: Result, span: Span, size: tuple[float, float]
) -> None:
    """Draw one horizontal bar per series, with its last value."""
    lines = result.lines[: max(int(size[1] // TEXT), 1)]
    for row, line in enumerate(lines):
        value = shown(line.values[-1], settings(panel, line.name), span.end)
        axes.barh(row, line.values[-1], color=colour(value.colour or "green"), alpha=0.6)
        axes.text(0, row, f" {_plain(line.name)}: {value.text}", va="center", **FONT)
    axes.set(xticks=[], yticks=[], ylim=(len(lines) - 0.5, -0.5))
    _count(axes, len(lines), len(result.lines))


def table(axes: Axes, panel: Json, result: Result, span: Span, size: tuple[float, float]) -> None:
    """Draw as many rows as fit, cells coloured by mappings and thresholds."""
    assert result.table is not None
    columns = visible(panel, result)
    configs = [settings(panel, name) for name in columns]
    rows = result.table.rows[: max(int(size[1] // TEXT) - 1, 1)]
    cells = [
        [
            shown(row.get(name), config, span.end)
            for name, config in zip(columns, configs, strict=True)
        ]
        for row in rows
    ]
    texts = [columns, *([cell.text for cell in row] for row in cells)]
    widths = [max(len(row[place]) + 2 for row in texts) for place in range(len(columns))]
    while sum(widths) * CHARACTER > size[0]:
        widths[widths.index(max(widths))] -= 1
    cut = [
        [_plain(text if len(text) < most else f"{text[: most - 2]}…") for text, most in pairs]
        for pairs in ([*zip(row, widths, strict=True)] for row in texts)
    ]
    axes.axis("off")
    drawn: Any = axes.table(
        cut,
        colWidths=[most / sum(widths) for most in widths],
        cellLoc="left",
        bbox=Bbox.from_bounds(0, 1 - len(cut) * TEXT / size[1], 1, len(cut) * TEXT / size[1]),
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(7.5)
    for (row_number, place), cell in drawn.get_celld().items():
        cell.set(edgecolor="lightgray", linewidth=0.5)
        cell.PAD = 0.02
        if row_number == 0:
            cell.get_text().set(weight="bold")
            continue
        shade = cells[row_number - 1][place].colour
        style = (configs[place]["custom"].get("cellOptions") or {}).get("type")
        if shade and style == "color-background":
            cell.set(facecolor=mpl.colors.to_rgba(colour(shade), 0.6))
        elif shade and style == "color-text":
            cell.get_text().set(color=colour(shade).replace("gold", "goldenrod"))
    _count(axes, len(rows), len(result.table.rows))


KINDS: dict[str, Callable[[Axes, Json, Result, Span, tuple[float, float]], None]] = {
    "timeseries": timeseries,
    "state-timeline": state_timeline,
    "stat": stat,
    "bargauge": bargauge,
    "table": table,
}
