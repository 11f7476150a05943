"""Panels with current values: stat, bargauge, piechart, and text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dashboards.preview.canvas import PALETTE, Box, Canvas, colour, readable
from dashboards.preview.frames import Field, Frame, title
from dashboards.preview.values import Json, Shown, settings, shown

REDUCERS: dict[str, Callable[[Sequence[Any]], Any]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "mean": lambda kept: sum(kept) / len(kept),
    "count": lambda kept: float(len(kept)),
    "range": lambda kept: max(kept) - min(kept),
}


class Value(NamedTuple):
    """One reduced value of a panel."""

    name: str
    number: float | None
    shown: Shown
    config: Json
    history: list[float]


def reduced(values: Sequence[Any], how: str) -> Any:
    """Return one value of several."""
    kept = [one for one in values if one is not None and not _nan(one)]
    if how == "last":
        return values[-1] if values else None
    if not kept:
        return None
    if how in ("first", "firstNotNull"):
        return kept[0]
    if how == "lastNotNull":
        return kept[-1]
    return REDUCERS[how](kept)


def _nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def values(panel: Json, frames: list[Frame], now: float) -> list[Value]:
    """Return the values that a panel shows: one per column of numbers, or one per row."""
    options = panel.get("options", {}).get("reduceOptions", {})
    calculation = (options.get("calcs") or ["lastNotNull"])[0]
    found = []
    for frame in frames:
        kept = frame.fields if options.get("fields") else frame.numbers
        for one in kept:
            if one.kind == "time":
                continue
            config = settings(panel, one, frames, frame.ref)
            every = options.get("values")
            history = [value for value in one.values if isinstance(value, float)]
            parts = [[value] for value in one.values] if every else [one.values]
            for row, part in enumerate(parts):
                value = reduced(part, calculation)
                name = config.get("displayName") or _name(frame, one, frames, row if every else -1)
                found.append(Value(name, value, shown(value, config, now), config, history))
    return found


def _name(frame: Frame, one: Field, frames: list[Frame], row: int) -> str:
    words = [other.values[row] for other in frame.fields if other.kind == "string"]
    return " ".join(words) if row >= 0 and words else title(one, frames)


def missing(panel: Json, canvas: Canvas, box: Box) -> None:
    """Write what stands where there is no data."""
    empty = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue") or "No data"
    canvas.text(
        empty, box.x + box.w / 2, box.y + box.h / 2, 14, canvas.theme.faint, across="center"
    )


def stat(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, now: float) -> None:
    """Draw numbers, each on the colour of its threshold, over a small graph."""
    found = values(panel, frames, now)
    if not found:
        missing(panel, canvas, box)
        return
    options = panel.get("options", {})
    across = _columns(len(found), box, options.get("orientation") or "auto")
    down = math.ceil(len(found) / across)
    gap = 4
    for number, value in enumerate(found):
        place = Box(
            box.x + (number % across) * (box.w + gap) / across,
            box.y + (number // across) * (box.h + gap) / down,
            (box.w + gap) / across - gap,
            (box.h + gap) / down - gap,
        )
        _one_stat(value, options, canvas, place, len(found) > 1)


def _columns(count: int, box: Box, orientation: str) -> int:
    if orientation == "horizontal":
        return 1
    if orientation == "vertical":
        return count
    shapes = [
        (abs(math.log((box.w / across) / (box.h / math.ceil(count / across)) / 2.2)), across)
        for across in range(1, count + 1)
    ]
    return min(shapes)[1]


def _one_stat(value: Value, options: Json, canvas: Canvas, box: Box, several: bool) -> None:
    mode, words = options.get("colorMode") or "value", options.get("textMode") or "auto"
    fill = value.shown.colour or canvas.theme.text
    shade = fill
    if mode.startswith("background"):
        canvas.box(box, fill, radius=3)
        shade = readable(fill)
    elif mode == "none":
        shade = canvas.theme.text
    if options.get("graphMode") == "area" and len(value.history) > 1 and box.h > 60:
        _sparkline(value.history, canvas, box, shade)
    named = words in ("name", "value_and_name") or (words == "auto" and several)
    text = value.name if words == "name" else value.shown.text
    top = box.h * (0.62 if named and words != "name" else 0.45 if box.h > 60 else 0.5)
    size = min(box.h * 0.42, 42.0, (box.w - 16) / max(canvas.measure(text, 1.0 * 100), 1) * 100)
    canvas.text(text, box.x + box.w / 2, box.y + top, size, shade, across="center", bold=True)
    if named and words != "name":
        small = min(13, max(9, box.h * 0.18))
        name = canvas.fit(value.name, small, box.w - 10)
        canvas.text(name, box.x + box.w / 2, box.y + box.h * 0.22, small, shade, across="center")


def _sparkline(history: list[float], canvas: Canvas, box: Box, shade: str) -> None:
    low, high = min(history), max(history)
    axes = canvas.axes(Box(box.x, box.y + box.h * 0.68, box.w, box.h * 0.32))
    axes.axis("off")
    axes.fill_between(range(len(history)), history, low, color=colour(shade), alpha=0.25, lw=0)
    axes.plot(history, color=colour(shade), linewidth=1, alpha=0.7)
    axes.set_xlim(0, len(history) - 1)
    axes.set_ylim(low, high + (high - low or 1) * 0.2)


def bargauge(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, now: float) -> None:
    """Draw one horizontal bar per value."""
    found = values(panel, frames, now)
    if not found:
        missing(panel, canvas, box)
        return
    height = min(max(box.h / len(found), 20.0), 34.0)
    fitting = int(box.h // height)
    rest = len(found) - fitting
    if rest > 0:
        found = found[: fitting - 1]
    names = min(max(canvas.measure(one.name, 12) for one in found) + 10, box.w * 0.45)
    texts = max(canvas.measure(one.shown.text, 12, True) for one in found) + 10
    highest = max([one.number or 0.0 for one in found if not _nan(one.number)] or [0.0])
    for row, one in enumerate(found):
        y = box.y + row * height
        lower, upper = one.config.get("min") or 0.0, one.config.get("max", highest)
        width = box.w - names - texts
        number = one.number if one.number is not None and not _nan(one.number) else lower
        share = min(max((number - lower) / ((upper - lower) or 1), 0.0), 1.0)
        canvas.text(one.name, box.x, y + height / 2, 12, width=names - 8)
        bar = Box(box.x + names, y + 3, width, height - 6)
        fill = one.shown.colour or "green"
        canvas.box(bar, canvas.theme.track, radius=2)
        if share * width > 2:
            canvas.box(Box(bar.x, bar.y, max(share * width, 4), bar.h), fill, radius=2, alpha=0.85)
        edge = box.x + box.w
        canvas.text(one.shown.text, edge, y + height / 2, 12, fill, across="right", bold=True)
    if rest > 0:
        more(canvas, box, rest + 1)


def more(canvas: Canvas, box: Box, count: int) -> None:
    """Write at the bottom how much does not fit."""
    canvas.text(f"… {count} more", box.x + 2, box.y + box.h - 8, 11, canvas.theme.faint)


def piechart(panel: Json, frames: list[Frame], canvas: Canvas, box: Box, now: float) -> None:
    """Draw shares of a whole, with a legend at the right."""
    found = [one for one in values(panel, frames, now) if one.number]
    if not found:
        missing(panel, canvas, box)
        return
    size = min(box.h, box.w * 0.5)
    axes = canvas.axes(Box(box.x, box.y + (box.h - size) / 2, size, size))
    shades = [
        colour(one.config["color"]["fixedColor"])
        if one.config.get("color", {}).get("mode") == "fixed"
        else PALETTE[number % len(PALETTE)]
        for number, one in enumerate(found)
    ]
    ring = {"width": 0.42} if panel.get("options", {}).get("pieType") == "donut" else {}
    axes.pie(
        [float(one.number or 0) for one in found],
        colors=shades,
        startangle=90,
        counterclock=False,
        wedgeprops={"edgecolor": canvas.theme.panel, "linewidth": 1, **ring},
    )
    total = sum(float(one.number or 0) for one in found)
    fitting = max(int(box.h // 20), 1)
    lines = found if len(found) <= fitting else found[: fitting - 1]
    y = box.y + (box.h - 20 * min(len(found), fitting)) / 2
    for number, one in enumerate(lines):
        x = box.x + size + 12
        canvas.box(Box(x, y + number * 20 + 7, 12, 5), shades[number], radius=1)
        share = f"{one.shown.text}  {float(one.number or 0) / total:.0%}"
        right = canvas.measure(share, 12) + 8
        width = box.w - size - 32 - right
        canvas.text(one.name, x + 18, y + number * 20 + 10, 12, width=width)
        edge = box.x + box.w
        canvas.text(share, edge, y + number * 20 + 10, 12, canvas.theme.faint, across="right")
    if len(lines) < len(found):
        more(canvas, Box(box.x + size + 12, box.y, box.w, box.h), len(found) - len(lines))


def text(panel: Json, _frames: list[Frame], canvas: Canvas, box: Box, _now: float) -> None:
    """Write the panel's text; of Markdown only headings and plain words."""
    y = box.y + 10
    for line in panel["options"]["content"].splitlines():
        heading = line.startswith("#")
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("# ")).replace("`", "")
        size = 15 if heading else 12
        for part in canvas.wrapped(plain.replace("**", ""), size, box.w):
            if y < box.y + box.h:
                canvas.text(part, box.x, y, size, bold=heading)
            y += size * 1.6
