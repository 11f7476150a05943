"""The panels of a dashboard that have data, moved together: for a fleet that has few probes.

In: panels, and their results. Out: panels without the lines of the grid in which none has data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.preview.queries import Json
from dashboards.preview.results import Result


def is_empty(result: Result) -> bool:
    """Whether there is nothing to draw."""
    return not result.lines and not (result.table and result.table.rows)


def filled(panels: Sequence[Json], results: Mapping[int, Result]) -> list[Json]:
    """Return the panels on lines of the grid where one has data, and the titles above them."""
    drawn = [one for one in panels if one["type"] != "row" and not is_empty(results[one["id"]])]
    kept = {line for one in drawn for line in _lines(one)}
    titles = sorted(one["gridPos"]["y"] for one in panels if one["type"] == "row")
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        if any(line > title and (following is None or line < following) for line in set(kept)):
            kept.add(title)
    found = []
    for one in panels:
        lines = [line for line in _lines(one) if line in kept]
        if lines:
            place = {"y": sum(line < lines[0] for line in kept), "h": len(lines)}
            found.append({**one, "gridPos": {**one["gridPos"], **place}})
    return found


def _lines(panel: Json) -> range:
    top = panel["gridPos"]["y"]
    return range(top, top + panel["gridPos"]["h"])
