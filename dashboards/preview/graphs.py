"""Panels over time: timeseries, state-timeline and heatmap."""

from __future__ import annotations

import math
import zlib
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from dashboards.preview import units
from dashboards.preview.canvas import DPI, PALETTE, Box, Canvas, colour
from dashboards.preview.frames import Frame, title
from dashboards.preview.numbers import missing, more, reduced
from dashboards.preview.span import Span
from dashboards.preview.values import Json, settings, shown

SMALL = 11
STEPS = (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)


class Line(NamedTuple):
    """A series to be drawn."""

    name: str
    times: list[float]
    values: list[float]
    config: Json
    shade: str


def lines(panel: Json, frames: list[Frame]) -> list[Line]:
    """Return all series with their colours. By name: the same name has the same colour."""
    found: list[Line] = []
    used: set[int] = set()
    for frame in frames:
        times = next((one.values for one in frame.fields if one.kind == "time"), [])
        for one in frame.numbers:
            config = settings(panel, one, frames, frame.ref)
            name = config.get("displayName") or title(one, frames)
            scheme = config.get("color") or {}
            if scheme.get("mode") in ("fixed", "shades"):
                shade = colour(scheme.get("fixedColor") or "green")
            else:
                number = zlib.crc32(name.encode()) % len(PALETTE)
                while number in used and len(used) < len(PALETTE):
                    number = (number + 1) % len(PALETTE)
                used.add(number)
                shade = PALETTE[number]
            numbers = [math.nan if value is None else float(value) for value in one.values]
            found.append(Line(name, times, numbers, config, shade))
    return found


def timeseries(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, span: Span) -> None:
    """Draw lines or stacked areas, thresholds, axes and legend."""
    found = lines(panel, frames)
    if not found:
        missing(panel, canvas, box)
        return
    config = panel["fieldConfig"]["defaults"]
    unit, decimals = config.get("unit") or "none", config.get("decimals")
    legend = panel.get("options", {}).get("legend", {}).get("showLegend", True)
    used = _legend(panel, found, canvas, box, span.end) if legend else 0.0
    grid = _grid(found)
    stacked = [
        one
        for one in found
        if one.config["custom"].get("stacking", {}).get("mode", "none") != "none"
    ]
    axes = canvas.axes(Box(box.x + 58, box.y + 6, box.w - 62, box.h - 28 - used))
    below = np.zeros(len(grid))
    for one in found:
        heights = _on_grid(one, grid)
        custom = one.config["custom"]
        fill = (custom.get("fillOpacity") or 0) / 100
        bottom = below if one in stacked else np.zeros(len(grid))
        top = heights + bottom
        step: Literal["post"] | None = (
            "post" if "step" in (custom.get("lineInterpolation") or "") else None
        )
        if custom.get("drawStyle") == "points":
            axes.plot(grid, top, ".", color=one.shade, markersize=4)
            continue
        axes.plot(
            grid, top, color=one.shade, linewidth=1.1, drawstyle="steps-post" if step else "default"
        )
        if fill:
            low = bottom if one in stacked else np.full(len(grid), config.get("min") or 0.0)
            axes.fill_between(grid, low, top, color=one.shade, alpha=fill, lw=0, step=step)
        if one in stacked:
            below = below + np.nan_to_num(heights)
    _limits(axes, config)
    _thresholds(axes, config)
    axes.yaxis.set_major_locator(MaxNLocator(max(int((box.h - used) // 45), 2), min_n_ticks=2))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: units.text(round(value, 12), unit, decimals, span.end))
    )
    dress(axes, canvas, span)


def _grid(found: list[Line]) -> Any:
    """Return all times of all series."""
    return np.array(sorted({at for one in found for at in one.times}))


def _on_grid(one: Line, grid: Any) -> Any:
    """Return the values at all times: a gap is a gap."""
    heights = np.full(len(grid), np.nan)
    heights[np.searchsorted(grid, one.times)] = one.values
    return heights


def _limits(axes: Axes, config: Json) -> None:
    low, high = axes.get_ylim()
    lowest, highest = config.get("min"), config.get("max")
    if high - low < 1e-9 or (lowest == 0 and high <= 0.0):
        high = low + 1
    axes.set_ylim(low if lowest is None else lowest, high if highest is None else highest)


def _thresholds(axes: Axes, config: Json) -> None:
    mode = (config.get("custom", {}).get("thresholdsStyle") or {}).get("mode") or "off"
    if mode == "off":
        return
    low, high = axes.get_ylim()
    for step in config["thresholds"]["steps"]:
        if step["value"] is not None and low <= step["value"] <= high:
            style = "--" if "dashed" in mode else "-"
            axes.axhline(step["value"], color=colour(step["color"]), linestyle=style, linewidth=1)


def dress(axes: Axes, canvas: Canvas, span: Span) -> None:
    """Give axes the time of the dashboard and the theme's colours."""
    step = next((one for one in STEPS if span.length / one <= 8), STEPS[-1])
    first = math.ceil(span.start / step) * step
    ticks = [first + number * step for number in range(int((span.end - first) // step) + 1)]
    form = "%m-%d" if step >= 86400 else "%m-%d %H:%M" if span.length > 86400 * 1.5 else "%H:%M"
    axes.set_xlim(span.start, span.end)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda at, _: datetime.fromtimestamp(at, timezone.utc).strftime(form))
    )
    axes.tick_params(colors=canvas.theme.faint, labelsize=SMALL * 72 / DPI, length=0, pad=4)
    axes.grid(True, color=canvas.theme.border, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _legend(panel: Json, found: list[Line], canvas: Canvas, box: Box, now: float) -> float:
    """Write the legend at the bottom, in at most two lines; return its height."""
    calculations = panel["options"]["legend"].get("calcs") or []
    entries = []
    for one in found:
        texts = [shown(reduced(one.values, how), one.config, now).text for how in calculations]
        entries.append((canvas.fit(one.name, SMALL, box.w * 0.6), one.shade, "  ".join(texts)))
    rows: list[list[tuple[float, str, str, str]]] = [[]]
    x = 0.0
    shown_count = 0
    for name, shade, text in entries:
        width = canvas.measure(f"{name}  {text}".rstrip(), SMALL) + 36
        if x + width > box.w - 70 and rows[-1]:
            if len(rows) == (2 if box.h > 170 else 1):
                break
            rows.append([])
            x = 0.0
        rows[-1].append((x, name, shade, text))
        x += width
        shown_count += 1
    height = len(rows) * 18.0
    top = box.y + box.h - height + 6
    for number, row in enumerate(rows):
        for x, name, shade, text in row:
            canvas.box(Box(box.x + x, top + number * 18 + 1, 14, 3), shade, radius=1)
            canvas.text(f"{name}  {text}".rstrip(), box.x + x + 20, top + number * 18 + 3, SMALL)
    if shown_count < len(entries):
        rest = f"… {len(entries) - shown_count} more"
        edge = box.x + box.w
        y = top + (len(rows) - 1) * 18 + 3
        canvas.text(rest, edge, y, SMALL, canvas.theme.faint, across="right")
    return height


def state_timeline(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, span: Span) -> None:
    """Draw one line of coloured states per series."""
    found = lines(panel, frames)
    if not found:
        missing(panel, canvas, box)
        return
    height = min(max((box.h - 24) / len(found), 16.0), 40.0)
    fitting = int((box.h - 24) // height)
    drawn = found if len(found) <= fitting else found[: fitting - 1]
    names = min(max(canvas.measure(one.name, SMALL) for one in drawn) + 12, box.w * 0.25)
    axes = canvas.axes(Box(box.x + names, box.y, box.w - names - 4, height * len(drawn)))
    axes.set_ylim(len(drawn), 0)
    for row, one in enumerate(drawn):
        canvas.text(one.name, box.x, box.y + (row + 0.5) * height, SMALL, width=names - 8)
        for start, end, value in _stretches(one):
            fill = shown(value, one.config, span.end).colour
            if fill:
                bar = [(start, end - start)]
                axes.broken_barh(bar, (row + 0.1, 0.8), facecolors=colour(fill), lw=0, alpha=0.9)
    dress(axes, canvas, span)
    axes.set_yticks([])
    if len(drawn) < len(found):
        more(canvas, box, len(found) - len(drawn))


def _stretches(one: Line) -> list[tuple[float, float, float]]:
    """Return from when to when the series had a value; a gap of over two steps ends it."""
    steps = np.diff(one.times)
    usual = float(np.min(steps)) if len(steps) else 60.0
    found: list[tuple[float, float, float]] = []
    for at, value in zip(one.times, one.values, strict=True):
        if math.isnan(value):
            continue
        if found and found[-1][2] == value and at - found[-1][1] <= usual:
            found[-1] = (found[-1][0], at + usual, value)
        else:
            found.append((at, at + usual, value))
    return found


def heatmap(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, span: Span) -> None:
    """Draw counts of buckets over time: the darker, the more."""
    found = lines(panel, frames)
    if not found:
        missing(panel, canvas, box)
        return
    grid = _grid(found)
    cells = np.vstack([_on_grid(one, grid) for one in found])
    cells[cells == 0] = np.nan
    axes = canvas.axes(Box(box.x + 70, box.y + 6, box.w - 74, box.h - 28))
    edges = np.append(grid, grid[-1] + (grid[1] - grid[0] if len(grid) > 1 else 60))
    scheme = panel.get("options", {}).get("color", {}).get("scheme") or "Oranges"
    axes.pcolormesh(edges, range(len(found) + 1), cells, cmap=scheme, shading="flat")
    dress(axes, canvas, span)
    every = max(1, math.ceil(len(found) / max(box.h // 22, 1)))
    unit = panel.get("options", {}).get("yAxis", {}).get("unit") or "none"
    axes.set_yticks(
        [row + 0.5 for row in range(0, len(found), every)],
        [_bucket(one.name, unit) for one in found[::every]],
    )


def _bucket(name: str, unit: str) -> str:
    try:
        return units.text(float(name), unit)
    except ValueError:
        return name
