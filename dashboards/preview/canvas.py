"""A picture in pixels from the top left: boxes, texts that fit their place, and axes of graphs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl

mpl.use("Agg")
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

# Two pixels of the file per pixel of the screen would double its size: this is readable.
DPI = 100
HUES = {
    "red": ("#ffa6b0", "#ff7383", "#f2495c", "#e02f44", "#c4162a"),
    "orange": ("#ffcb7d", "#ffb357", "#ff9830", "#ff780a", "#fa6400"),
    "yellow": ("#fff899", "#ffee52", "#fade2a", "#f2cc0c", "#e0b400"),
    "green": ("#c8f2c2", "#96d98d", "#73bf69", "#56a64b", "#37872d"),
    "blue": ("#c0d8ff", "#8ab8ff", "#5794f2", "#3274d9", "#1f60c4"),
    "purple": ("#deb6f2", "#ca95e5", "#b877d9", "#a352cc", "#8f3bb8"),
}
SHADES = ("super-light-", "light-", "", "semi-dark-", "dark-")
PALETTE = (
    "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0",
    "#37872d", "#fade2a", "#447ebc", "#c15c17", "#6ed0e0", "#a352cc", "#6d1f62", "#584477",
    "#b7dbab", "#f4d598", "#70dbed", "#f9ba8f", "#f29191", "#82b5d8", "#e5a8e2", "#aea2e0",
)  # fmt: skip


class Theme(NamedTuple):
    """Colours of Grafana's surfaces and texts."""

    page: str
    panel: str
    border: str
    text: str
    faint: str
    link: str
    track: str


THEMES = {
    "dark": Theme("#111217", "#181b1f", "#2a2d33", "#ccccdc", "#8e8f9b", "#6e9fff", "#24272c"),
    "light": Theme("#f4f5f5", "#ffffff", "#dfe1e4", "#24292e", "#6b7078", "#1f62e0", "#eceef0"),
}


def colour(name: str) -> str:
    """Return a colour that matplotlib knows; Grafana's hues are its own."""
    for hue, shades in HUES.items():
        for prefix, shade in zip(SHADES, shades, strict=True):
            if name == prefix + hue:
                return shade
    return {"transparent": "none", "text": "#ccccdc"}.get(name, name)


class Box(NamedTuple):
    """A place: left, top, width, height."""

    x: float
    y: float
    w: float
    h: float

    def inside(self, x: float, top: float, bottom: float | None = None) -> Box:
        """Return the place without its edges."""
        low = top if bottom is None else bottom
        return Box(self.x + x, self.y + top, self.w - 2 * x, self.h - top - low)


class Canvas:
    """The picture."""

    def __init__(self, width: int, height: int, theme: str) -> None:
        self.theme = THEMES[theme]
        self.width, self.height = width, height
        self.figure = Figure(
            figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=self.theme.page
        )
        self._renderer = FigureCanvasAgg(self.figure).get_renderer()  # type: ignore[no-untyped-call]
        self._page = self.axes(Box(0, 0, width, height))
        self._page.set_xlim(0, width)
        self._page.set_ylim(height, 0)
        self._page.axis("off")

    def axes(self, box: Box) -> Axes:
        """Return axes for a graph in a place."""
        made = self.figure.add_axes(
            (
                box.x / self.width,
                1 - (box.y + box.h) / self.height,
                box.w / self.width,
                box.h / self.height,
            )
        )
        made.set_facecolor("none")
        return made

    def box(
        self, box: Box, fill: str, border: str = "none", radius: float = 0, alpha: float = 1
    ) -> None:
        """Draw a rectangle, with round corners or without."""
        shape: FancyBboxPatch | Rectangle
        if radius:
            style = f"round,pad=0,rounding_size={radius}"
            shape = FancyBboxPatch((box.x, box.y), box.w, box.h, boxstyle=style)
        else:
            shape = Rectangle((box.x, box.y), box.w, box.h)
        shape.set(facecolor=colour(fill), edgecolor=border, linewidth=0.8, alpha=alpha)
        self._page.add_patch(shape)

    def line(self, x: float, y: float, width: float, shade: str) -> None:
        """Draw a horizontal line."""
        self._page.plot([x, x + width], [y, y], color=shade, linewidth=0.7)

    def measure(self, text: str, size: float, bold: bool = False) -> float:
        """Return the width of a text in pixels; `size` is in pixels too."""
        font = FontProperties(size=size * 72 / DPI, weight="bold" if bold else "normal")
        width, _, _ = self._renderer.get_text_width_height_descent(text, font, False)
        return float(width)

    def fit(self, text: str, size: float, width: float, bold: bool = False) -> str:
        """Return the text, shortened where it is wider than its place."""
        text = text.replace("\n", " ")
        if self.measure(text, size, bold) <= width:
            return text
        while text and self.measure(text + "…", size, bold) > width:
            text = text[:-1]
        return text + "…" if text else ""

    def text(
        self,
        text: str,
        x: float,
        y: float,
        size: float = 12,
        shade: str = "",
        width: float = 0,
        across: str = "left",
        bold: bool = False,
    ) -> None:
        """Write one line, its middle at y; with a width it is shortened to it."""
        self._page.text(
            x,
            y,
            (self.fit(text, size, width, bold) if width else text).replace("$", r"\$"),
            fontsize=size * 72 / DPI,
            color=colour(shade) if shade else self.theme.text,
            ha=across,
            va="center_baseline",
            weight="bold" if bold else "normal",
        )

    def wrapped(self, text: str, size: float, width: float) -> list[str]:
        """Return the text as lines that are no wider than their place."""
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if self.measure(longer, size) <= width or not lines[-1]:
                lines[-1] = longer
            else:
                lines.append(word)
        return lines

    def save(self, path: Path) -> None:
        """Write the file, with 256 colours: a third of the size."""
        self.figure.savefig(path, facecolor=self.theme.page)
        with Image.open(path) as image:
            flat = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(path, optimize=True)


def readable(fill: str) -> str:
    """Return black or white: the one that can be read on a colour."""
    red, green, blue = mpl.colors.to_rgb(colour(fill))
    return "#111217" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.6 else "#ffffff"
