"""The preview: steps, variables, queries, transformations, values, and that all is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dashboards.preview.draw import KINDS, draw, upper
from dashboards.preview.queries import Query, queries
from dashboards.preview.results import (
    Result,
    Table,
    grouping_to_matrix,
    lines,
    merge,
    organize,
    sort_by,
    tables,
    transformed,
)
from dashboards.preview.span import Span, duration, rounded, seconds
from dashboards.preview.values import number, settings, shown, text_table
from dashboards.preview.variables import ALL, Variable, interpolate
from PIL import Image

DAY = 86400.0


def test_durations() -> None:
    assert [seconds(one) for one in ("90", "15s", "1h30m", "500ms", "7d")] == [
        90, 15, 5400, 0.5, 604800
    ]  # fmt: skip
    assert [duration(one) for one in (15, 60, 90, 7200, DAY, 0.5)] == [
        "15s", "1m", "90s", "2h", "1d", "500ms"
    ]  # fmt: skip
    with pytest.raises(ValueError, match="'6 hours' is not a duration"):
        seconds("6 hours")


@pytest.mark.parametrize(
    ("calculated", "used"), [(0.2, 0.2), (21.6, 20), (45, 60), (86.4, 60), (90, 120), (604.8, 600)]
)
def test_steps_are_rounded_as_in_grafana(calculated: float, used: float) -> None:
    assert rounded(calculated) == used


@pytest.mark.parametrize(
    ("since", "scrape", "step", "rate"),
    [
        ("now-6h", 15, 20, 60),
        ("now-6h", 60, 60, 240),
        ("now-1h", 15, 15, 60),
        ("now-24h", 15, 60, 75),
        ("now-7d", 15, 600, 615),
        ("now-7d", 60, 600, 660),
    ],
)
def test_intervals_of_a_graph(since: str, scrape: float, step: float, rate: float) -> None:
    span = Span.last(since, 1_700_000_007.0, scrape)
    assert span.step(1000) == step
    assert span.rate(1000) == rate


def test_a_minimum_step_takes_the_place_of_the_scrape_interval() -> None:
    span = Span.last("now-1h", 1_700_000_000.0)
    assert span.step(1000, "5m") == 300
    assert span.rate(1000, "5m") == 1200


def test_a_range_is_aligned_to_the_step() -> None:
    assert Span(1000.0, 2005.0).aligned(60) == (960, 1980)


def test_grafanas_own_variables() -> None:
    words = Span.last("now-6h", 1_700_000_000.0).words(1000)
    text = "rate(x[$__rate_interval]) ${__interval} [$__range] $__range_s"
    assert interpolate(text, {}, words) == "rate(x[1m]) 20s [21600s] 21600"


def node(*values: str, several: bool = True, pattern: str = ".*") -> dict[str, Variable]:
    return {"node": Variable("node", values, several, pattern, ("gpu-1", "gpu-2"))}


@pytest.mark.parametrize(
    ("variables", "written"),
    [
        (node(ALL), '{i=~".*"}'),
        (node(ALL, pattern=""), '{i=~"(gpu-1|gpu-2)"}'),
        (node("gpu-1"), '{i=~"gpu-1"}'),
        (node("gpu-1.example", "b|c"), r'{i=~"(gpu-1\\.example|b\\|c)"}'),
        (node("a.b", several=False), '{i=~"a.b"}'),
    ],
)
def test_a_variable_in_a_query(variables: dict[str, Variable], written: str) -> None:
    for text in ('{i=~"$node"}', '{i=~"${node}"}'):
        assert interpolate(text, variables, {}) == written


def test_an_unknown_variable_is_an_error_and_a_group_is_none() -> None:
    assert interpolate('label_replace(x, "a", "$1", "b", "(.+)")', {}, {}).count("$1") == 1
    with pytest.raises(ValueError, match="no variable pool"):
        interpolate("$pool", node("a b"), {})


def series(**labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [[100, "1"], [115, "2.5"]]}


@pytest.mark.parametrize(
    ("legend", "found", "names"),
    [
        ("{{a}} on {{ b }}", [series(a="x", b="y")], ["x on y"]),
        ("__auto", [series(a="x"), series(a="y")], ["x", "y"]),
        ("__auto", [series(a="x", b="y")], ['{a="x", b="y"}']),
        ("__auto", [series()], ["sum(up)"]),
        ("", [series(__name__="up", a="x")], ['up{a="x"}']),
        ("", [series(__name__="up")], ["up"]),
    ],
)
def test_legends(legend: str, found: list[dict[str, Any]], names: list[str]) -> None:
    made = lines(Query("A", "sum(up)", False, 15, legend), found)
    assert [line.name for line in made] == names
    assert made[0][1:] == ([100.0, 115.0], [1.0, 2.5])


def at(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [[100, value]]}


def asked(**answers: list[dict[str, Any]]) -> list[Table]:
    return tables([(Query(ref, "x", True, 15, ""), found) for ref, found in answers.items()])


def test_tables_merge_on_their_common_labels() -> None:
    found = asked(
        A=[at("1", node="n1"), at("2", node="n2")], B=[at("3", node="n2"), at("NaN", node="n3")]
    )
    [merged] = merge(found, {})
    rows = [(row["node"], row.get("Value #A"), row.get("Value #B")) for row in merged.rows]
    assert rows[:2] == [("n1", 1.0, None), ("n2", 2.0, 3.0)]
    assert rows[2][:2] == ("n3", None)
    assert len(rows) == 3


def test_a_query_without_an_answer_leaves_the_other_columns() -> None:
    [merged] = merge(asked(A=[at("1", node="n1"), at("2", node="n2")], B=[]), {})
    assert [(row["node"], row["Value #A"]) for row in merged.rows] == [("n1", 1.0), ("n2", 2.0)]


def test_rows_that_contradict_each_other_stay_apart() -> None:
    [merged] = merge(asked(A=[at("1", node="n1", port="1")], B=[at("2", node="n1", rail="r")]), {})
    assert len(merged.rows) == 1, "port and rail do not contradict each other"
    found = asked(
        A=[at("1", node="n1", port="1"), at("1", node="n1", port="2")],
        B=[at("2", node="n1", rail="r")],
    )
    [merged] = merge(found, {})
    assert [(row["port"], row["rail"]) for row in merged.rows] == [("1", "r"), ("2", "r")]


def test_one_query_has_a_column_without_its_name() -> None:
    [table] = asked(A=[at("1", node="n1")])
    assert table.columns == ["Time", "node", "Value"]
    assert merge([table], {}) == [table]


def test_columns_are_kept_ordered_and_renamed() -> None:
    found = asked(A=[at("1", node="n1", job="j")])
    options = {
        "includeByName": {"Value": True, "node": True},
        "indexByName": {"Value": 1, "node": 0},
        "renameByName": {"Value": "Health", "node": "Node"},
    }
    assert organize(found, options)[0].columns == ["Node", "Health"]
    excluded = organize(found, {"excludeByName": {"Time": True, "job": True}})
    assert excluded[0].columns == ["node", "Value"]


def test_a_matrix() -> None:
    found = asked(A=[at("1", a="x", b="y"), at("2", a="y", b="x")])
    options = {"rowField": "a", "columnField": "b", "valueField": "Value"}
    [matrix] = grouping_to_matrix(found, options)
    assert matrix.columns == ["a\\b", "y", "x"]
    assert matrix.rows == [{"a\\b": "x", "y": 1.0}, {"a\\b": "y", "x": 2.0}]


def test_rows_are_sorted_by_a_column() -> None:
    found = asked(A=[at("1", node="b"), at("2", node="a")])
    [ordered] = sort_by(found, {"sort": [{"field": "node"}]})
    assert [(row["node"], row["Value"]) for row in ordered.rows] == [("a", 2.0), ("b", 1.0)]
    [ordered] = sort_by(found, {"sort": [{"field": "Value", "desc": True}]})
    assert [row["node"] for row in ordered.rows] == ["a", "b"]


def test_other_transformations_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown transformation joinByField"):
        transformed([], {"transformations": [{"id": "joinByField"}]})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "none", "0"), (0.123456, "none", "0.123"), (1234.5, "none", "1234"),
        (1532.82, "short", "1.53 k"), (2.5e6, "short", "2.5 M"), (12.0, "short", "12"),
        (0.5, "percentunit", "50%"), (0.12345, "percentunit", "12.3%"),
        (8.0 * 2**30, "bytes", "8 GiB"), (512.0, "bytes", "512 B"), (0.0, "bytes", "0 B"),
        (25e9, "Bps", "25 GB/s"), (400e9, "bps", "400 Gb/s"),
        (0.0025, "s", "2.5 ms"), (90.0, "s", "1.5 min"), (7200.0, "s", "2 h"), (0.0, "s", "0 s"),
        (172800.0, "s", "2 d"), (1e-7, "s", "100 ns"), (61.0, "celsius", "61 °C"),
        (12_500.0, "watt", "12.5 kW"), (1.98e9, "hertz", "1.98 GHz"), (-5.0, "none", "-5"),
        (float("inf"), "short", "∞"), (5.0, "suffix:nodes", "5 nodes"),
        (1_700_000_000_000.0, "dateTimeAsIso", "2023-11-14 22:13:20"),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


def test_fixed_decimals_and_distances_in_time() -> None:
    assert number(100.0, "none", 1) == "100.0"
    assert number(0.98765, "percentunit", 2) == "98.77%"
    assert number(1_699_999_280_000.0, "dateTimeFromNow", now=1_700_000_000.0) == "12 min ago"


def test_an_unknown_unit_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown unit 'percents'"):
        number(1.0, "percents")


STATES = [
    {"type": "value", "options": {"0": {"text": "healthy", "color": "green"}}},
    {"type": "value", "options": {"critical": {"color": "red"}}},
]
LIMITS = {"steps": [{"value": None, "color": "green"}, {"value": 0.9, "color": "red"}]}


def test_mappings_and_thresholds() -> None:
    config = {"mappings": STATES, "thresholds": LIMITS, "unit": "percentunit", "noValue": "-"}
    assert shown(0.0, config) == ("healthy", "green")
    assert shown("critical", config) == ("critical", "red")
    assert shown(0.5, config) == ("50%", "green")
    assert shown(0.9, config) == ("90%", "red")
    assert shown("", config) == shown(None, config) == ("-", "")
    with pytest.raises(ValueError, match="unknown mapping range"):
        shown(1.0, {"mappings": [{"type": "range", "options": {}}]})


def test_overrides_by_the_shown_name() -> None:
    change = [{"id": "unit", "value": "short"}, {"id": "custom.hidden", "value": True}]
    panel: dict[str, Any] = {
        "fieldConfig": {
            "defaults": {"unit": "s", "custom": {"width": 1}},
            "overrides": [{"matcher": {"id": "byName", "options": "x"}, "properties": change}],
        }
    }
    assert settings(panel, "x") == {"unit": "short", "custom": {"width": 1, "hidden": True}}
    assert settings(panel, "y") == {"unit": "s", "custom": {"width": 1}}


def test_a_table_is_sorted_with_missing_values_lowest() -> None:
    found = asked(A=[at("1", n="a"), at("2", n="b")], B=[at("7", n="b"), at("9", n="c")])
    panel = {
        "type": "table",
        "transformations": [
            {"id": "merge"},
            {"id": "organize", "options": {"excludeByName": {"Time": True}}},
        ],
        "options": {"sortBy": [{"displayName": "Value #A", "desc": True}]},
    }
    text = text_table(panel, Result(table=transformed(found, panel)), 0.0)
    assert text == [["n", "Value #A", "Value #B"], ["b", "2", "7"], ["a", "1", ""], ["c", "", "9"]]


def test_queries_of_a_panel() -> None:
    panel = json.loads(
        """{"gridPos": {"w": 12}, "targets": [
        {"refId": "A", "expr": "rate(x{i=~\\"$node\\"}[$__rate_interval])", "range": true},
        {"refId": "B", "expr": "x", "instant": true, "format": "table", "interval": "5m"},
        {"refId": "C", "expr": "y", "hide": true}]}"""
    )
    first, second = queries(panel, node("gpu-1"), Span.last("now-6h", 1_700_000_000.0))
    assert first[:4] == ("A", 'rate(x{i=~"gpu-1"}[1m])', False, 20)
    assert (second.instant, second.step) == (True, 300)


@pytest.mark.parametrize("empty", [False, True])
def test_every_kind_of_panel_is_drawn(tmp_path: Path, empty: bool) -> None:
    span = Span(1_700_000_000.0, 1_700_003_600.0)
    series = [
        {"metric": {"n": name}, "values": [[span.start + 60 * step, "1"] for step in range(61)]}
        for name in "abcdefghijklmnopqrstuvwxyz"
    ]
    grid = {"x": 0, "w": 12, "h": 8}
    defaults = {"thresholds": LIMITS, "custom": {"cellOptions": {"type": "color-background"}}}
    board: dict[str, Any] = {"title": "All kinds", "templating": {"list": []}, "panels": []}
    board["panels"] = [
        {"id": number, "type": kind, "gridPos": {**grid, "y": 8 * number}, "title": f"$ {kind}",
         "fieldConfig": {"defaults": defaults}, "options": {"colorMode": "background"}}
        for number, kind in enumerate(KINDS)
    ]  # fmt: skip
    answered = Result(lines(Query("A", "x", False, 60, "{{n}}"), series))
    results = {
        panel["id"]: Result()
        if empty
        else Result(table=asked(A=series)[0])
        if panel["type"] == "table"
        else answered
        for panel in board["panels"]
    }
    file = tmp_path / "picture.png"
    draw(board, results, {}, span, file)
    with Image.open(file) as image:
        assert image.width == 1600
        assert len(image.convert("RGB").getcolors(1 << 20) or []) > 8


def test_the_upper_rows_of_a_long_dashboard() -> None:
    places = [("stat", 0, 8), ("row", 8, 1), ("stat", 9, 8)]
    panels = [{"type": kind, "gridPos": {"y": y, "h": height}} for kind, y, height in places]
    assert upper(panels, 0) == upper(panels, 17) == panels
    assert upper(panels, 16) == panels[:1], "a row without its panels is left out as well"
