"""A dashboard's queries, asked of a Prometheus as Grafana asks them.

In: the JSON of a dashboard, values of its variables, a time range, a Prometheus. Out: the queries
of each panel, and their answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import requests

from dashboards.preview.span import PIXELS_PER_COLUMN, Span
from dashboards.preview.variables import ALL, Variable, interpolate

Json = dict[str, Any]
Series = dict[str, Any]
"""`metric` and `values` of Prometheus' answer."""
LABEL_VALUES = re.compile(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*")


class QueryError(Exception):
    """Prometheus refused a query."""


class Prometheus:
    """The HTTP API of a Prometheus."""

    def __init__(self, url: str, timeout: float = 60.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout
        self._session = requests.Session()

    def get(self, path: str, **parameters: str | float) -> Any:
        """Return the data of an answer."""
        sent = {key.replace("match", "match[]"): value for key, value in parameters.items()}
        # A query may be longer than an address.
        method = "POST" if "query" in sent else "GET"
        address = f"{self._url}/api/v1/{path}"
        values: Any = {"data": sent} if method == "POST" else {"params": sent}
        reply = self._session.request(method, address, timeout=self._timeout, **values)
        answer = reply.json()
        if answer["status"] != "success":
            raise QueryError(f"{answer['error']}: {parameters}")
        return answer["data"]

    def now(self, expression: str, at: float) -> list[Series]:
        """Return the result at one time, each series with one value."""
        data = self.get("query", query=expression, time=at)
        if data["resultType"] in ("scalar", "string"):
            return [{"metric": {}, "values": [data["result"]]}]
        return [{"metric": one["metric"], "values": [one["value"]]} for one in data["result"]]

    def over_time(self, expression: str, span: Span, step: float) -> list[Series]:
        """Return the result over a time range."""
        start, end = span.aligned(step)
        data = self.get("query_range", query=expression, start=start, end=end, step=step)
        return list(data["result"])

    def label_values(self, label: str, matching: str, span: Span) -> list[str]:
        """Return the values of a label in the time range."""
        chosen = {"match": matching} if matching.replace(" ", "") not in ("", "{}") else {}
        path = f"label/{label}/values"
        return list(self.get(path, start=span.start, end=span.end, **chosen))


class Query(NamedTuple):
    """A panel's query as it is sent."""

    ref: str
    expression: str
    instant: bool
    step: float
    legend: str


def read(path: Path) -> Json:
    """Return a dashboard's JSON."""
    return dict(json.loads(path.read_text()))


def panels(dashboard: Json) -> Iterator[Json]:
    """Yield all panels but rows, those of collapsed rows too."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def variables(
    dashboard: Json, prometheus: Prometheus, span: Span, chosen: Mapping[str, Sequence[str]]
) -> dict[str, Variable]:
    """Return all variables with their values: the chosen ones, else what the dashboard has, else
    All, else the first value that Prometheus knows.
    """
    found: dict[str, Variable] = {}
    unknown = set(chosen) - {model["name"] for model in dashboard["templating"]["list"]}
    if unknown:
        raise ValueError(f"no variable {', '.join(sorted(unknown))} in {dashboard['uid']}")
    for model in dashboard["templating"]["list"]:
        name, pattern = model["name"], model.get("allValue") or ""
        stored = model.get("current", {}).get("value") or []
        given = chosen.get(name) or ([stored] if isinstance(stored, str) else stored)
        values = tuple(ALL if one in ("All", "$__all") else one for one in given)
        every = bool(model.get("includeAll"))
        values = values or ((ALL,) if every else ())
        listed: tuple[str, ...] = ()
        if not values or (ALL in values and not pattern):
            listed = tuple(options(model, found, prometheus, span))
        found[name] = Variable(
            name, values or listed[:1] or ("",), bool(model.get("multi")) or every, pattern, listed
        )
    return found


def options(
    model: Json, known: Mapping[str, Variable], prometheus: Prometheus, span: Span
) -> list[str]:
    """Return the values that a variable offers."""
    if model["type"] == "datasource":
        return ["prometheus"]
    query = model.get("query", "")
    text = query["query"] if isinstance(query, dict) else query
    sent = interpolate(text, known, span.words(24 * PIXELS_PER_COLUMN))
    labels = LABEL_VALUES.fullmatch(sent)
    if model["type"] != "query" or labels is None or model.get("regex"):
        raise ValueError(f"unknown kind of the variable {model['name']}: {text}")
    return sorted(prometheus.label_values(labels[2], labels[1] or "", span))


def queries(panel: Json, known: Mapping[str, Variable], span: Span) -> list[Query]:
    """Return the panel's queries with all variables filled in."""
    points = panel.get("maxDataPoints") or panel["gridPos"]["w"] * PIXELS_PER_COLUMN
    found = []
    for target in panel.get("targets", ()):
        if target.get("hide"):
            continue
        minimum = target.get("interval") or panel.get("interval") or ""
        words = span.words(points, minimum)
        expression = interpolate(target["expr"], known, words)
        instant, step = bool(target.get("instant")), span.step(points, minimum)
        legend = target.get("legendFormat") or ""
        found.append(Query(target["refId"], expression, instant, step, legend))
    return found


def answer(query: Query, span: Span, prometheus: Prometheus) -> list[Series]:
    """Return a query's result."""
    if query.instant:
        return prometheus.now(query.expression, span.end)
    return prometheus.over_time(query.expression, span, query.step)
