"""The pictures of dashboards: every kind of panel is drawn at its place in the grid."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from dashboards.preview.canvas import Box, Canvas, colour, readable
from dashboards.preview.draw import EDGE, HEADER, LINE, NOW, OVER_TIME, WIDTH, draw, upper
from dashboards.preview.frames import bucket_frames, series_frames, table_frames
from dashboards.preview.numbers import reduced
from dashboards.preview.span import Span
from dashboards.preview.tables import transformed
from PIL import Image

SPAN = Span(1_700_000_000.0, 1_700_003_600.0)
TIMES = [SPAN.start + 60 * number for number in range(61)]
STATES = [
    {"type": "value", "options": {"0": {"text": "healthy", "color": "green"}}},
    {"type": "value", "options": {"1": {"text": "lost", "color": "red"}}},
]
LIMITS = {"mode": "absolute", "steps": [{"value": None, "color": "red"}]}


def series(values: list[float], **labels: str) -> dict[str, Any]:
    pairs = [[at, str(value)] for at, value in zip(TIMES, values, strict=False)]
    return {"metric": labels, "values": pairs}


def waves(count: int = 5) -> list[dict[str, Any]]:
    return [
        series([number + 2 + math.sin(at / 300) for at in TIMES], node=f"node-{number}")
        for number in range(count)
    ]


def answers(kind: str) -> Any:
    if kind == "table":
        found = [
            {"metric": {"node": f"node-{number}"}, "values": [[SPAN.end, str(number % 2)]]}
            for number in range(30)
        ]
        return table_frames({"A": found})
    if kind == "heatmap":
        found = [series([10.0 * step] * 61, le=le) for step, le in enumerate(("0.1", "1", "+Inf"))]
        return bucket_frames(series_frames("A", "{{le}}", "", found))
    if kind == "state-timeline":
        found = [series([float(number > 30) for number in range(61)], node="node-1")]
        return series_frames("A", "{{node}}", "", found)
    return series_frames("A", "{{node}}", "", waves())


def panel(kind: str, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": kind,
        "title": kind,
        "gridPos": {"x": 12 * (number % 2), "y": number // 2 * 8, "w": 12, "h": 8},
        "fieldConfig": {
            "defaults": {
                "unit": "percentunit",
                "thresholds": LIMITS,
                "mappings": STATES if kind in ("table", "state-timeline") else [],
                "custom": {
                    "fillOpacity": 20,
                    "thresholdsStyle": {"mode": "dashed"},
                    "cellOptions": {"type": "color-background"},
                },
            },
            "overrides": [],
        },
        "options": {
            "colorMode": "background",
            "graphMode": "area",
            "legend": {"showLegend": True, "calcs": ["max"]},
            "content": "# Heading\nA text with a [link](https://example.com).",
        },
    }


def dashboard() -> dict[str, Any]:
    kinds = [*NOW, *OVER_TIME]
    return {
        "title": "All kinds",
        "panels": [panel(kind, number) for number, kind in enumerate(kinds)],
        "templating": {"list": []},
    }


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_kind_of_panel_is_drawn(tmp_path: Path, theme: str) -> None:
    made = dashboard()
    results = {one["id"]: transformed(answers(one["type"]), one) for one in made["panels"]}
    file = tmp_path / "picture.png"
    draw(made, results, {}, SPAN, file, theme)
    with Image.open(file) as image:
        assert image.size == (WIDTH, HEADER + 32 * LINE + EDGE)
        picture = image.convert("RGB")
    page = picture.getpixel((1, 1))
    for one in made["panels"]:
        grid = one["gridPos"]
        left, top = EDGE + grid["x"] * WIDTH // 24, HEADER + grid["y"] * LINE
        place = picture.crop((left + 12, top + 34, left + 700, top + grid["h"] * LINE - 14))
        shades = place.getcolors(1 << 20) or []
        assert max(shades)[1] != page, "the panel has a ground of its own"
        assert len(shades) > 8, f"{one['type']} is empty"
    red = tuple(int(colour("red")[at : at + 2], 16) for at in (1, 3, 5))
    assert picture.getpixel((EDGE + 16, HEADER + 38)) == red, "the stat's ground is its colour"


def test_panels_without_data_say_so(tmp_path: Path) -> None:
    made = dashboard()
    file = tmp_path / "picture.png"
    draw(made, {one["id"]: [] for one in made["panels"]}, {}, SPAN, file)
    assert file.stat().st_size > 3000


def test_the_upper_rows_of_a_long_dashboard() -> None:
    row = {"type": "row", "gridPos": {"y": 8, "h": 1}}
    first, second = ({"type": "stat", "gridPos": {"y": y, "h": 8}} for y in (0, 9))
    places = [(one, one["gridPos"]["y"]) for one in (first, row, second)]  # type: ignore[index]
    assert upper(places, 0) == places
    assert upper(places, 17) == places
    assert upper(places, 16) == places[:1], "a row without its panels is left out as well"


def test_texts_are_shortened_to_their_place() -> None:
    canvas = Canvas(400, 100, "dark")
    short = canvas.fit("a long text that does not fit", 12, 80)
    assert short.endswith("…")
    assert canvas.measure(short, 12) <= 80
    assert canvas.fit("fits", 12, 80) == "fits"
    assert [canvas.measure(line, 12) <= 90 for line in canvas.wrapped("one two " * 9, 12, 90)]


def test_colours() -> None:
    assert colour("semi-dark-orange") == "#ff780a"
    assert colour("#8e8e8e") == "#8e8e8e"
    assert (readable("yellow"), readable("red")) == ("#111217", "#ffffff")
    assert Box(0, 0, 10, 10).inside(1, 2, 3) == (1, 2, 8, 5)


@pytest.mark.parametrize(
    ("how", "value"),
    [("lastNotNull", 3.0), ("max", 5.0), ("min", 1.0), ("mean", 3.0), ("sum", 9.0), ("count", 3.0),
     ("first", 1.0), ("range", 4.0)],
)  # fmt: skip
def test_values_are_reduced(how: str, value: float) -> None:
    assert reduced([1.0, None, 5.0, 3.0, math.nan], how) == value
    assert reduced([], how) is None
