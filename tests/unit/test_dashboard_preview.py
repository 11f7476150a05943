"""What the preview emulates of Grafana: steps, variables, frames, transformations, units."""

from __future__ import annotations

import json
from typing import Any

import pytest
from dashboards.preview import units
from dashboards.preview.frames import Field, Frame, series_frames, table_frames, title
from dashboards.preview.queries import queries
from dashboards.preview.span import Span, duration, rounded, seconds
from dashboards.preview.tables import (
    grouping_to_matrix,
    merge,
    organize,
    sort_by,
    text_table,
    transformed,
)
from dashboards.preview.values import settings, shown
from dashboards.preview.variables import ALL, Variable, interpolate, narrowed, natural

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
    text = "rate(x[$__rate_interval]) $__interval ${__interval_ms} [$__range] $__range_s"
    assert interpolate(text, {}, words) == "rate(x[1m]) 20s 20000 [21600s] 21600"


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
    for text in ('{i=~"$node"}', '{i=~"${node}"}', '{i=~"[[node]]"}'):
        assert interpolate(text, variables, {}) == written


def test_formats_of_variables() -> None:
    chosen = node("a b", "c")
    assert interpolate("${node:queryparam}", chosen, {}) == "var-node=a%20b&var-node=c"
    assert interpolate("${node:queryparam}", node(ALL), {}) == "var-node=%24__all"
    assert interpolate("${node:pipe} ${node:csv}", chosen, {}) == "a b|c a b,c"
    assert interpolate("${node:regex}", node(ALL), {}) == ".*"
    assert interpolate("${node:text}", node(ALL), {}) == "All"
    assert interpolate('label_replace(x, "a", "$1", "b", "(.+)")', {}, {}).count("$1") == 1
    with pytest.raises(ValueError, match="no variable pool"):
        interpolate("$pool", chosen, {})
    with pytest.raises(ValueError, match="unknown format glob"):
        interpolate("${node:glob}", chosen, {})


def test_the_values_of_a_variable_are_narrowed_and_sorted() -> None:
    values = ["x node-10 up", "x node-9 up", "other"]
    assert sorted(narrowed(values, r"/x (?<value>\S+) up/"), key=natural) == ["node-9", "node-10"]
    assert narrowed(values, "node-.*") == ["node-10 up", "node-9 up"]


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
    frames = series_frames("A", legend, "sum(up)", found)
    assert [title(frame.fields[1], frames) for frame in frames] == names
    assert frames[0].fields[1].values == [1.0, 2.5]


def at(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "values": [[100, value]]}


def test_tables_merge_on_their_common_labels() -> None:
    frames = table_frames(
        {
            "A": [at("1", node="n1"), at("2", node="n2")],
            "B": [at("3", node="n2"), at("NaN", node="n3")],
        }
    )
    [merged] = merge(frames, {})
    rows = [(row["node"], row["Value #A"], row["Value #B"]) for row in merged.rows]
    assert rows[:2] == [("n1", 1.0, None), ("n2", 2.0, 3.0)]
    assert rows[2][:2] == ("n3", None)
    assert len(rows) == 3


def test_a_query_without_an_answer_leaves_the_other_columns() -> None:
    frames = table_frames({"A": [at("1", node="n1"), at("2", node="n2")], "B": []})
    [merged] = merge(frames, {})
    assert [(row["node"], row["Value #A"]) for row in merged.rows] == [("n1", 1.0), ("n2", 2.0)]


def test_rows_that_contradict_each_other_stay_apart() -> None:
    frames = table_frames(
        {"A": [at("1", node="n1", port="1")], "B": [at("2", node="n1", rail="r")]}
    )
    [merged] = merge(frames, {})
    assert len(merged.rows) == 1, "port and rail do not contradict each other"
    frames = table_frames(
        {
            "A": [at("1", node="n1", port="1"), at("1", node="n1", port="2")],
            "B": [at("2", node="n1", rail="r")],
        }
    )
    [merged] = merge(frames, {})
    assert [(row["port"], row["rail"]) for row in merged.rows] == [("1", "r"), ("2", "r")]


def test_one_query_has_a_column_without_its_name() -> None:
    [frame] = table_frames({"A": [at("1", node="n1")]})
    assert [one.name for one in frame.fields] == ["Time", "node", "Value"]
    assert merge([frame], {}) == [frame]


def test_columns_are_kept_ordered_and_renamed() -> None:
    frames = table_frames({"A": [at("1", node="n1", job="j")]})
    options = {
        "includeByName": {"Value": True, "node": True},
        "indexByName": {"Value": 1, "node": 0},
        "renameByName": {"Value": "Health", "node": "Node"},
    }
    assert [one.name for one in organize(frames, options)[0].fields] == ["Node", "Health"]
    excluded = organize(frames, {"excludeByName": {"Time": True, "job": True}})
    assert [one.name for one in excluded[0].fields] == ["node", "Value"]


def test_a_matrix() -> None:
    found = [at("1", a="x", b="y"), at("2", a="y", b="x")]
    options = {"rowField": "a", "columnField": "b", "valueField": "Value"}
    [matrix] = grouping_to_matrix(table_frames({"A": found}), options)
    assert [(one.name, one.values) for one in matrix.fields] == [
        ("a\\b", ["x", "y"]),
        ("y", [1.0, ""]),
        ("x", ["", 2.0]),
    ]


def test_rows_are_sorted_by_a_column() -> None:
    frames = table_frames({"A": [at("1", node="b"), at("2", node="a")]})
    [ordered] = sort_by(frames, {"sort": [{"field": "node"}]})
    assert [(row["node"], row["Value"]) for row in ordered.rows] == [("a", 2.0), ("b", 1.0)]
    [ordered] = sort_by(frames, {"sort": [{"field": "Value", "desc": True}]})
    assert [row["node"] for row in ordered.rows] == ["a", "b"]


def test_other_transformations_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown transformation joinByField"):
        transformed([], {"transformations": [{"id": "joinByField"}]})


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "none", "0"), (2.0, "none", "2"), (0.123456, "none", "0.123"), (1234.5, "none", "1235"),
        (1532.82, "short", "1.53 K"), (2_500_000, "short", "2.5 Mil"), (12, "short", "12"),
        (0.5, "percentunit", "50%"), (0.12345, "percentunit", "12.3%"), (99.95, "percent", "100%"),
        (8 * 2**30, "bytes", "8 GiB"), (512, "bytes", "512 B"), (0, "bytes", "0 B"),
        (80e9, "decbytes", "80 GB"), (1, "gbytes", "1 GiB"), (1500, "mbytes", "1.46 GiB"),
        (25e9, "Bps", "25 GB/s"), (3 * 2**20, "binBps", "3 MiB/s"), (400e9, "bps", "400 Gb/s"),
        (0.0025, "s", "2.5 ms"), (90, "s", "1.5 mins"), (7200, "s", "2 hours"), (0, "s", "0 s"),
        (172800, "s", "2 days"), (1250, "ms", "1.25 s"), (1e-7, "s", "100 ns"),
        (61, "celsius", "61 °C"), (700, "watt", "700 W"), (12_500, "watt", "12.5 kW"),
        (0.25, "watt", "250 mW"), (3.6e6, "joule", "3.6 MJ"), (1.98e9, "hertz", "1.98 GHz"),
        (1234567.0, "locale", "1,234,567"), (-5, "none", "-5"), (float("inf"), "short", "∞"),
        (5, "suffix:nodes", "5 nodes"), (1_700_000_000_000, "dateTimeAsIso", "2023-11-14 22:13:20"),
    ],
)  # fmt: skip
def test_units(value: float, unit: str, text: str) -> None:
    assert units.text(value, unit) == text


def test_fixed_decimals_and_distances_in_time() -> None:
    assert units.text(100.0, "none", 1) == "100.0"
    assert units.text(0.98765, "percentunit", 2) == "98.77%"
    now = 1_700_000_000.0
    for seconds_ago, text in (
        (10, "a few seconds ago"),
        (90, "2 minutes ago"),
        (-7200, "in 2 hours"),
    ):
        assert units.text((now - seconds_ago) * 1000, "dateTimeFromNow", now=now) == text


def test_an_unknown_unit_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown unit 'percents'"):
        units.text(1, "percents")


STATES = [
    {"type": "value", "options": {"0": {"text": "healthy", "color": "green"}}},
    {"type": "range", "options": {"from": 1, "to": None, "result": {"text": "bad"}}},
    {"type": "special", "options": {"match": "null", "result": {"text": "unknown"}}},
    {"type": "regex", "options": {"pattern": "crit.*", "result": {"color": "red"}}},
]
LIMITS = {"steps": [{"value": None, "color": "green"}, {"value": 0.9, "color": "red"}]}


def test_mappings_and_thresholds() -> None:
    config = {"mappings": STATES, "thresholds": LIMITS, "unit": "percentunit", "noValue": "-"}
    assert shown(0.0, config) == ("healthy", "green", True)
    assert shown(4.0, config) == ("bad", "", True)
    assert shown(None, config)[:2] == ("unknown", "")
    assert shown("critical", config) == ("critical", "red", True)
    assert shown(0.5, config) == ("50%", "green", False)
    assert shown(0.9, config) == ("90%", "red", False)
    assert shown("", config) == ("-", "", False)


def test_overrides_by_the_shown_name() -> None:
    field = Field("Value", "number", [1.0], {"a": "x"}, "x")
    panel: dict[str, Any] = {
        "fieldConfig": {
            "defaults": {"unit": "s", "custom": {"width": 1}},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": "x"},
                    "properties": [
                        {"id": "unit", "value": "short"},
                        {"id": "custom.hidden", "value": True},
                    ],
                },
                {"matcher": {"id": "byRegexp", "options": "/^y/"}, "properties": [{"id": "min"}]},
            ],
        }
    }
    found = settings(panel, field, [Frame("A", [field])])
    assert found == {"unit": "short", "custom": {"width": 1, "hidden": True}}
    assert panel["fieldConfig"]["defaults"]["custom"] == {"width": 1}


def test_a_table_is_sorted_with_missing_values_lowest() -> None:
    frames = merge(
        table_frames(
            {"A": [at("1", n="a"), at("2", n="b")], "B": [at("7", n="b"), at("9", n="c")]}
        ),
        {},
    )
    panel = {"type": "table", "options": {"sortBy": [{"displayName": "Value #A", "desc": True}]}}
    lines = text_table(panel, organize(frames, {"excludeByName": {"Time": True}}), 0.0)
    assert lines == [["n", "Value #A", "Value #B"], ["b", "2", "7"], ["a", "1", ""], ["c", "", "9"]]


def test_queries_of_a_panel() -> None:
    panel = json.loads(
        """{"gridPos": {"w": 12}, "targets": [
        {"refId": "A", "expr": "rate(x{i=~\\"$node\\"}[$__rate_interval])", "range": true},
        {"refId": "B", "expr": "x", "instant": true, "format": "table", "interval": "5m"},
        {"refId": "C", "expr": "y", "hide": true}]}"""
    )
    first, second = queries(panel, node("gpu-1"), Span.last("now-6h", 1_700_000_000.0))
    assert first[:4] == ("A", 'rate(x{i=~"gpu-1"}[1m])', False, 20)
    assert (second.instant, second.format, second.step) == (True, "table", 300)
