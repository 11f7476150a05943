"""A dashboard without the lines of its grid that have no data."""

from __future__ import annotations

from typing import Any

from dashboards.preview.filled import filled
from dashboards.preview.results import Line, Result


def panel(number: int, y: int, height: int, kind: str = "stat", x: int = 0) -> dict[str, Any]:
    place = {"x": x, "y": y, "w": 12, "h": height}
    return {"id": number, "type": kind, "gridPos": place}


def test_lines_without_data_and_their_titles_go() -> None:
    panels = [
        panel(1, 0, 4),
        panel(2, 4, 1, "row"),
        panel(3, 5, 8),
        panel(4, 13, 1, "row"),
        panel(5, 14, 8),
        panel(6, 14, 8, x=12),
    ]
    some = Result(lines=[Line("GPU 0", [0.0], [1.0])])
    results = {1: some, 3: Result(), 5: Result(), 6: some}
    found = {one["id"]: one["gridPos"] for one in filled(panels, results)}
    assert {number: (at["y"], at["h"]) for number, at in found.items()} == {
        1: (0, 4),
        4: (4, 1),
        5: (5, 8),
        6: (5, 8),
    }
