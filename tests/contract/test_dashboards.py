"""The dashboards as committed: current, complete, in both languages, of metrics that exist."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import promql_parser
import pytest
import yaml
from dashboards.__main__ import files
from dashboards.hardware import FAULTS
from dashboards.others import OTHERS
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from testbed.dashboards import (
    NAMES,
    Json,
    columns,
    every,
    expressions,
    links,
    panels,
    selected,
    texts,
)
from testbed.node import ROOT
from testbed.promql import Known, name_of, parsed, result_labels, walk
from testbed.site import faults, fleet, hardware_faults, hub_response

ENGLISH, CHINESE = every("en"), every("zh")
BOTH = [(f"{language}/{name}", board) for language, boards in (("en", ENGLISH), ("zh", CHINESE))
        for name, board in boards.items()]  # fmt: skip
KNOWN = Known(ROOT / "rules")
FOREIGN: frozenset[str] = frozenset().union(*OTHERS.values())
COLUMNS_OF_GRID = 24
# The preview knows these, and no other transformation.
KINDS = {"bargauge", "stat", "state-timeline", "table", "timeseries"}
TRANSFORMATIONS = {"merge", "organize", "sortBy", "groupingToMatrix"}
# The Prometheus data source reads these of an annotation; the SDK's schema lacks them.
NOT_IN_SCHEMA = ("titleFormat", "textFormat", "step")
RUNBOOKS = "https://github.com/nodevitals/nodevitals/blob/main/rules/runbooks/"
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORD = re.compile(r"[A-Za-z][A-Za-z-]+")
# Names that Chinese operators write as they are.
PROPER = {
    "ACK", "AI", "AICore", "Alertmanager", "Bond", "CE", "CPU", "CRC", "CUDA", "Core", "DCGM",
    "DRAM", "ECC", "FEC", "FP", "GB", "GID", "GPU", "GPUs", "HBM", "HCA", "ID", "IP", "InfiniBand",
    "Job", "Kubernetes", "LID", "Leaf", "MIG", "MTBF", "MTTR", "MTU", "NPU", "NVLink", "NVLinks",
    "NVMe", "NVSwitch", "PCIe", "Pod", "Prometheus", "QP", "RDMA", "RTT", "RoCE", "Runbook", "SM",
    "SRAM", "SXid", "SYN", "TCP", "TSDB", "UE", "UUID", "WAL", "Watchdog", "Xid", "nodevitals",
    "vNPU",
}  # fmt: skip
FAULT = "nodevitals:fault"
# Of a job, though a script reports it.
NO_HARDWARE = {"rank_behind"}
_LINKED = re.compile(r"/d/([\w-]+)\?")
_FIELD = re.compile(r'\$\{__data\.fields\["([^"]+)"\]')


def test_the_json_is_what_the_code_makes() -> None:
    for path, text in files().items():
        assert path.read_text() == text, f"{path} is stale: make generate"
    committed = set((ROOT / "helm/nodevitals/files/dashboards").rglob("*.json"))
    assert committed == set(files()), "a file that no module makes"


@pytest.mark.parametrize(("where", "board"), BOTH, ids=[one for one, _ in BOTH])
def test_the_sdk_reads_and_writes_it_alike(where: str, board: Json) -> None:
    register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    for one in (mine := json.loads(json.dumps(board)))["annotations"].get("list", ()):
        for key in NOT_IN_SCHEMA:
            one.pop(key, None)
    assert again == mine, where


def test_uids_and_numbers_are_unique_and_do_not_change() -> None:
    assert {name: board["uid"] for name, board in ENGLISH.items()} == {
        name: f"nodevitals-{name}" for name in NAMES
    }
    assert {board["uid"] for board in CHINESE.values()} == {f"nodevitals-{n}-zh" for n in NAMES}
    for where, board in BOTH:
        numbers = [one["id"] for one in board["panels"]] + [
            inner["id"] for one in board["panels"] for inner in one.get("panels") or ()
        ]
        assert len({*numbers} - {0, None}) == len(numbers), where


def _asked(target: Json) -> tuple[str, list[str]]:
    """Return a query without its texts, which are in the language, and its selectors."""
    tree = walk(parsed(target["expr"]))
    read = [one.prettify() for one, _ in tree if isinstance(one, promql_parser.VectorSelector)]
    return re.sub(r'"[^"]*"', '""', target["expr"]), read


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_have_the_same_panels(name: str) -> None:
    def shape(board: Json) -> list[Any]:
        return [
            (one["id"], one["type"], one["gridPos"], list(map(_asked, one.get("targets", ()))))
            for one in panels(board)
        ]

    assert shape(ENGLISH[name]) == shape(CHINESE[name])
    assert [one["name"] for one in ENGLISH[name]["templating"]["list"]] == [
        one["name"] for one in CHINESE[name]["templating"]["list"]
    ]


@pytest.mark.parametrize("name", NAMES)
def test_chinese_texts_are_chinese(name: str) -> None:
    english = set()
    rows = [one["title"] for one in CHINESE[name]["panels"] if one["type"] == "row"]
    for text in [*rows, *itertools.chain(*map(texts, panels(CHINESE[name])))]:
        if not _CHINESE.search(text) and (words := set(_WORD.findall(text)) - PROPER):
            english.add((text, *sorted(words)))
    assert not english
    # And the other way round.
    assert not [
        text for one in panels(ENGLISH[name]) for text in texts(one) if _CHINESE.search(text)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_is_explained(name: str) -> None:
    for panel in panels(ENGLISH[name]):
        assert panel["type"] in KINDS, panel["title"]
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert {one["id"] for one in panel.get("transformations", ())} <= TRANSFORMATIONS
        if panel["type"] == "text":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults.get("unit"), f"{panel['title']}: no unit"
        if panel["type"] in ("stat", "bargauge"):
            steps = defaults.get("thresholds", {}).get("steps")
            assert steps or defaults.get("mappings"), f"{panel['title']}: no thresholds"
        if panel["type"] == "state-timeline":
            assert defaults.get("mappings"), f"{panel['title']}: no words for its states"


@pytest.mark.parametrize(("where", "board"), BOTH, ids=[one for one, _ in BOTH])
def test_panels_do_not_overlap(where: str, board: Json) -> None:
    for level in (board["panels"], *(one.get("panels") or [] for one in board["panels"])):
        taken: dict[tuple[int, int], str] = {}
        for panel in level:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= COLUMNS_OF_GRID, panel["title"]
            for cell in itertools.product(
                range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
            ):
                other = taken.setdefault(cell, panel["title"])
                assert other == panel["title"], f"{where}: {panel['title']} over {other}"


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_exists(name: str) -> None:
    unknown = set()
    for where, expression in expressions(ENGLISH[name]):
        for node, _ in walk(parsed(expression)):
            if isinstance(node, promql_parser.VectorSelector):
                metric = name_of(node)
                if metric not in KNOWN.families and metric not in KNOWN.rules.keys() | FOREIGN:
                    unknown.add((where, metric))
    assert not unknown


def _labels_used(node: Any) -> list[tuple[set[str], Any]]:
    """Return labels that a part of an expression names, with the operand that must have them."""
    if isinstance(node, promql_parser.VectorSelector):
        return [({one.name for one in node.matchers.matchers} - {"__name__"}, node)]
    if isinstance(node, promql_parser.AggregateExpr) and node.modifier:
        return [(set(node.modifier.labels), node.expr)]
    if isinstance(node, promql_parser.Call) and node.func.name == "label_replace":
        return [({node.args[3].val} - {""}, node.args[0])]
    if isinstance(node, promql_parser.BinaryExpr) and node.modifier and node.modifier.matching:
        on = "Include" in str(node.modifier.matching.type)
        named = set(node.modifier.matching.labels) if on else set()
        copied = set(node.modifier.group_labels or ())
        one_side = node.lhs if "OneToMany" in str(node.modifier.card) else node.rhs
        return [(named, node.lhs), (named, node.rhs), (copied, one_side)]
    return []


@pytest.mark.parametrize("name", NAMES)
def test_every_label_exists(name: str) -> None:
    """A label that a series cannot have matches nothing, and groups all into one."""
    unknown = set()
    for where, expression in expressions(ENGLISH[name]):
        for node, _ in walk(parsed(expression)):
            for used, operand in _labels_used(node):
                has = result_labels(operand, KNOWN.labels)
                if has is not None and used - has:
                    unknown.add((where, *sorted(used - has), operand.prettify()[:300]))
    assert not unknown


@pytest.mark.parametrize("name", NAMES)
def test_names_of_series_and_columns_use_labels_that_exist(name: str) -> None:
    board, unknown = ENGLISH[name], set()
    for panel in panels(board):
        for target in panel.get("targets", ()):
            has = result_labels(parsed(target["expr"]), KNOWN.labels)
            used = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target.get("legendFormat", "")))
            if has is not None and used - has - {"__name__"}:
                unknown.add((panel["title"], *sorted(used - has)))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            expression, label = selected(variable)
            has = result_labels(parsed(expression), KNOWN.labels)
            if label and has is not None and label not in has:
                unknown.add((variable["name"], label))
    assert not unknown


@pytest.mark.parametrize(("where", "board"), BOTH, ids=[one for one, _ in BOTH])
def test_links_lead_somewhere(where: str, board: Json) -> None:
    boards = CHINESE if where.startswith("zh/") else ENGLISH
    known = {one["uid"]: {v["name"] for v in one["templating"]["list"]} for one in boards.values()}
    for panel in panels(board):
        for address in links(panel):
            if target := _LINKED.search(address):
                assert target[1] in known, f"{panel['title']}: {address}"
                given = set(re.findall(r"[&?]var-(\w+)=", address))
                assert given <= known[target[1]], f"{panel['title']}: {address}"
            elif address.startswith(RUNBOOKS) and "$" not in address:
                assert (ROOT / "rules/runbooks" / address.removeprefix(RUNBOOKS)).exists(), address
            elif address.startswith("${hub}/checks/"):
                assert "hub" in {variable["name"] for variable in board["templating"]["list"]}
            elif address == "${__value.raw}":
                assert "nodevitals_check_page_info" in str(panel["targets"]), panel["title"]
            else:
                assert address.startswith(RUNBOOKS), f"{panel['title']}: {address}"
            missing = set(_FIELD.findall(address)) - columns(panel)
            assert not missing, f"{panel['title']}: no column {missing}"


@pytest.mark.parametrize(("where", "board"), BOTH, ids=[one for one, _ in BOTH])
def test_links_to_the_hub_open_its_form_with_what_is_shown(where: str, board: Json) -> None:
    own = {variable["name"] for variable in board["templating"]["list"]}
    addresses = [link["url"] for link in board["links"] if link["type"] == "link"]
    assert bool(addresses) == (where.split("/")[-1] in ("node", "job", "fabric"))
    for address in addresses:
        assert address.startswith("${hub}/checks/")
        assert set(re.findall(r"\$\{(\w+)", address)) <= own, address


@pytest.mark.parametrize(("where", "board"), BOTH, ids=[one for one, _ in BOTH])
def test_overrides_are_of_columns_that_exist(where: str, board: Json) -> None:
    for panel in panels(board):
        if panel["type"] == "table" and columns(panel):
            named = {
                one["matcher"]["options"]
                for one in panel["fieldConfig"].get("overrides", ())
                if one["matcher"]["id"] == "byName"
            }
            assert named <= columns(panel), f"{where}: {panel['title']}: {named - columns(panel)}"


def test_every_fault_of_the_hardware_is_counted_once() -> None:
    """A new fault of these files needs a place on the dashboard of the hardware."""
    counted = list(itertools.chain.from_iterable(FAULTS.values()))
    assert len({*counted}) == len(counted)
    found = set()
    for name in ("bmc", "disks", "profile", "scripts", "services", "transceiver"):
        for group in yaml.safe_load((ROOT / f"rules/{name}.yaml").read_text())["groups"]:
            made = [one["labels"] for one in group["rules"] if one.get("record") == FAULT]
            found |= {one["fault"] for one in made if one["scope"] in ("node", "device")}
    assert found - NO_HARDWARE <= {*counted}


def test_the_simulated_fleet_exposes_what_agents_expose() -> None:
    """Otherwise a panel would have data in the tests that it has nowhere else."""
    nodes = fleet.nodes(0.0)
    faults.break_some(nodes, 0.0)
    hardware_faults.break_some(nodes, 0.0)
    own = {"job": "nodevitals-hub", "instance": "nodevitals-hub", "cluster": "demo"}
    hub = hub_response.response(own, 0.0, faults=True)
    for one in itertools.chain(hub, *(node.series for node in nodes)):
        labels = KNOWN.families[one.name]
        # Names of domains are free.
        free = one.labels.keys() if one.name == "nodevitals_node_info" else set()
        assert one.labels.keys() - free <= labels, one.name
