"""The rules of Grafana's dashboard-linter, under their names, each with its exceptions.

https://github.com/grafana/dashboard-linter/tree/main/docs/rules; the two rules about LogQL are left
out: no query is for Loki, which `target-promql-rule` shows.
"""

from __future__ import annotations

import json
import re

import promql_parser
import pytest

from testbed.dashboards import Json, every, expressions, panels, selected
from testbed.promql import parsed, walk

BOARDS = [(f"{language}/{name}", board) for language in ("en", "zh")
          for name, board in every(language).items()]  # fmt: skip
boards = pytest.mark.parametrize(("where", "board"), BOARDS, ids=[one for one, _ in BOARDS])
# Those of grafana-data/src/valueFormats/categories.ts that are in base units, and what the panels
# need beside them. Anything else is shown as a text behind the number.
UNITS = {
    "none", "short", "percent", "percentunit", "celsius", "watt", "joule", "kwatth", "hertz",
    "bytes", "decbytes", "bps", "Bps", "binBps", "ops", "cps", "reqps", "pps", "ns", "µs", "ms",
    "s", "m", "h", "d", "dtdurations", "dthms", "dtdhms", "dateTimeAsIso", "dateTimeAsLocal",
    "dateTimeFromNow", "bool", "bool_yes_no", "bool_on_off", "string", "sci", "dBm", "amp",
    "rotrpm",
}  # fmt: skip
DATA_SOURCE = {"en": "Data source", "zh": "数据源"}
_RATES = ("rate", "irate", "increase")


def variables(board: Json) -> dict[str, Json]:
    return {one["name"]: one for one in board["templating"]["list"]}


@boards
def test_template_datasource_rule(where: str, board: Json) -> None:
    [one] = [one for one in variables(board).values() if one["type"] == "datasource"]
    label = DATA_SOURCE[where[:2]]
    assert (one["name"], one["label"], one["query"]) == ("datasource", label, "prometheus")


@boards
def test_template_job_rule(where: str, board: Json) -> None:
    """Exception: no variable `job`. The shipped rules read the job `nodevitals` alone, and so do
    the panels: another job would show devices about which no alert can fire.
    """
    assert "job" not in variables(board), where


@boards
def test_template_instance_rule(where: str, board: Json) -> None:
    """Exceptions: the label is a word (Node), All is `.*`, as for all variables, because `cluster`
    and `pool` may be missing, and a dashboard that is about one node has no All. The nodes of a job
    are hidden and written into an address, each by its name.
    """
    for one in variables(board).values():
        if one["type"] != "query":
            continue
        assert one["datasource"]["uid"] == "${datasource}", where
        if one.get("includeAll") and one["name"] != "job_nodes":
            assert one["allValue"] == ".*", f"{where}: {one['name']}"
            assert one["multi"], f"{where}: {one['name']}"


@boards
def test_template_label_promql_rule(where: str, board: Json) -> None:
    for one in variables(board).values():
        if one["type"] == "query":
            assert parsed(selected(one)[0]), where


@boards
def test_template_on_time_change_reload_rule(where: str, board: Json) -> None:
    for one in variables(board).values():
        if one["type"] == "query":
            assert one["refresh"] == 2, f"{where}: {one['name']}"


@boards
def test_uneditable_dashboard(where: str, board: Json) -> None:
    assert board["editable"] is False, where


@boards
def test_panel_datasource_rule(where: str, board: Json) -> None:
    for panel in panels(board):
        if panel["type"] != "text":
            assert panel["datasource"]["uid"] == "${datasource}", f"{where}: {panel['title']}"
        for target in panel.get("targets", ()):
            uid = target.get("datasource", {"uid": "${datasource}"})["uid"]
            assert uid == "${datasource}", f"{where}: {panel['title']}"


@boards
def test_panel_no_targets_rule(where: str, board: Json) -> None:
    for panel in panels(board):
        assert panel["type"] == "text" or panel.get("targets"), f"{where}: {panel['title']}"


@boards
def test_panel_title_description_rule(where: str, board: Json) -> None:
    for panel in panels(board):
        assert panel.get("title"), f"{where}: {json.dumps(panel)[:200]}"
        assert panel.get("description"), f"{where}: {panel['title']}"


@boards
def test_panel_units_rule(where: str, board: Json) -> None:
    """Columns of tables too. A unit with a prefix is a text of ours behind the number."""
    for panel in panels(board):
        if panel["type"] == "text":
            continue
        field = panel["fieldConfig"]
        found = {field["defaults"].get("unit")} | {
            one["value"]
            for override in field.get("overrides", ())
            for one in override["properties"]
            if one["id"] == "unit"
        }
        own = {one for one in found if one and one.startswith(("suffix:", "prefix:", "time:"))}
        assert found - own <= UNITS, f"{where}: {panel['title']}: {found - UNITS}"


@boards
def test_target_promql_rule(where: str, board: Json) -> None:
    for place, expression in expressions(board):
        assert parsed(expression), f"{where}: {place}"


@boards
def test_target_job_rule(where: str, board: Json) -> None:
    """Exceptions: recorded series and alerts have no job of their own, or are of ours already."""
    for place, expression in expressions(board):
        for node, _ in walk(parsed(expression)):
            if isinstance(node, promql_parser.VectorSelector) and _ours(node):
                matched = {one.name for one in node.matchers.matchers}
                assert "job" in matched or place.startswith("variable"), f"{where}: {place}"


def _ours(node: promql_parser.VectorSelector) -> bool:
    """The series of agents: those of the hub are of a cluster."""
    return bool(re.match(r"nodevitals_(?!hub_)|up$|scrape_|process_", node.name or ""))


@boards
def test_target_instance_rule(where: str, board: Json) -> None:
    """Exception: only where the dashboard has the variable, and only for panels that read nothing
    but scraped series of ours: what is recorded may be of a pool or of a cluster. In fabric tests a
    node has the name of the lists of peers.
    """
    if "instance" not in variables(board):
        return
    for place, expression in expressions(board):
        nodes = [one for one, _ in walk(parsed(expression))]
        read = [one for one in nodes if isinstance(one, promql_parser.VectorSelector)]
        if place.startswith("variable") or not read or not all(map(_ours, read)):
            continue
        assert re.search(r"\$(instance|fabric_name)", expression), f"{where}: {place}"


@boards
def test_target_rate_interval_rule(where: str, board: Json) -> None:
    """Exceptions: `$__range` where the number is of the whole time range, and a fixed time of five
    minutes or more: a shorter one is empty at a scrape interval of a minute.
    """
    for place, expression in expressions(board):
        for found in re.finditer(r"\[([^\]:]+)(:[^\]]*)?\]", _without_strings(expression)):
            length = found[1].strip()
            if length.startswith("$"):
                assert length in ("$__rate_interval", "$__range", "$__interval"), place
            else:
                assert _seconds(length) >= 300, f"{where}: {place}: [{length}]"


def _without_strings(expression: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)


def _seconds(length: str) -> float:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|[smhdw])", length))


# Counters whose value itself is the answer: of a life, since boot, or whether there were any.
SINCE_BOOT = {
    "nodevitals_accelerator_ecc_errors_total",
    "nodevitals_disk_power_on_seconds_total",
    "nodevitals_node_memory_errors_total",
    "nodevitals_nvidia_sxid_errors_total",
    "nodevitals_nvidia_xid_errors_total",
}


@boards
def test_target_counter_agg_rule(where: str, board: Json) -> None:
    """Exceptions: SINCE_BOOT, and whether a counter exists at all."""
    for place, expression in expressions(board):
        for node, parents in walk(parsed(expression)):
            name = getattr(node, "name", "") or ""
            if not isinstance(node, promql_parser.VectorSelector) or not name.endswith("_total"):
                continue
            functions = {one.func.name for one in parents if isinstance(one, promql_parser.Call)}
            assert functions & {*_RATES, "absent", "changes", "resets"} or name in SINCE_BOOT, (
                f"{where}: {place}: {name}"
            )
