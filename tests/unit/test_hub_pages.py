"""The hub's pages: texts, escaping, size, and the form that gives the request it shows."""

from __future__ import annotations

import csv
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals.checks.model import CheckDetail, CheckRequest, NodeVerdict, RunResult, TestRequest
from nodevitals.checks.requests.allowed_variables import MCA, NCCL
from nodevitals.checks.requests.devices import natural
from nodevitals.checks.requests.rounds import Plan
from nodevitals.checks.verdicts.tables import as_csv
from nodevitals.checks.verdicts.verdict import judge
from nodevitals.probes.fabric.tools.report import Report, ResultRow
from nodevitals_hub.checks.check_requests import Member, RefusedError
from nodevitals_hub.web import form, pages, rendering, spellings
from nodevitals_hub.web.heatmap import overview
from nodevitals_hub.web.results.curve import curve_of
from nodevitals_hub.web.results.maps import TONES, labels_of
from nodevitals_hub.web.texts import phrases
from nodevitals_hub.web.texts.translations import LANGUAGES, texts_of
from testbed.hubpages import matrix_check

IDENTITY = "20260101-000000-abcdef"
CHINESE = re.compile(r"[\u4e00-\u9fff]")
REQUESTS = [
    {"kind": "pair", "nodes": ["gpu-2", "gpu-1"], "test": {"tool": "iperf3", "seconds": 5}},
    {
        "kind": "matrix",
        "nodes": ["gpu-1", "gpu-2", "gpu-3"],
        "where": {"pool": "train", "rack": "row 1 = left"},
        "preset": "links",
        "test": {
            "tool": "perftest",
            "operation": "read_bw,read_lat",
            "device": "mlx5_3,mlx5_4",
            "crossed": True,
            "port": 2,
            "sizes": "8B..8MiB x2",
            "iterations": 500,
            "queue_pairs": 8,
            "gid_index": 0,
            "traffic_class": 106,
        },
        "rounds": 3,
        "expected_bytes_per_second": 50e9,
        "expected_latency_seconds": 2.5e-06,
        "share": 0.57,
        "limit_seconds": 90.5,
        "force": True,
        "note": "after the change\nof switch 7",
    },
    {
        "kind": "collective",
        "nodes": ["gpu-1", "gpu-2"],
        "test": {
            "tool": "nccl",
            "operation": "reduce",
            "sizes": "1GiB",
            "devices_per_node": 4,
            "devices_per_process": 2,
            "data_type": "bfloat16",
            "reduction": "avg",
            "warm_up_iterations": 0,
            "environment": {"NCCL_ALGO": "Ring", "NCCL_IB_HCA": "mlx5_0,mlx5_1"},
            "mca": {"btl_tcp_if_include": "eth0,192.0.2.0/24"},
        },
        "expected_bytes_per_second": 123456789.123,
        "isolate": False,
    },
    {"kind": "node", "where": {"pool": "train"}, "note": "why"},
]


class Page(HTMLParser):
    """The fields of a page's form that a browser would send, as they stand."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._name = ""
        self._area = False
        self.labels: set[str] = set()
        self.inputs: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        name = found.get("name", "")
        if tag == "label":
            self.labels.add(found.get("for", ""))
        if tag in ("input", "select", "textarea") and found.get("type") not in (
            "hidden",
            "checkbox",
        ):
            self.inputs.add(found["id"])
        if tag == "input" and (found.get("type") != "checkbox" or "checked" in found):
            before = f"{self.fields[name]}," if name in form.SEVERAL and name in self.fields else ""
            self.fields[name] = before + found.get("value", "")
        elif tag in ("select", "textarea"):
            self._name, self._area = name, tag == "textarea"
            self.fields[name] = ""
        elif tag == "option" and "selected" in found:
            self._area = "value" not in found
            self.fields[self._name] = found.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("textarea", "option"):
            self._area = False

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._name] += data


def scope(language: str = "en") -> dict[str, Any]:
    return {"query_string": f"lang={language}".encode(), "headers": [], "path": "/"}


def form_page(request: CheckRequest, language: str = "en") -> str:
    labels = {"pool": {"train": 8, "infer": 2}}
    basic, more = form.SHOWN[request.kind]
    return rendering.render(
        scope(language),
        "form.html",
        kind=request.kind,
        kinds=("pair", "matrix"),
        sent={},
        check=None,
        fields=spellings.with_lists(form.fields_from(request), labels),
        refused="",
        problems={},
        basic=basic,
        more=more,
        defaults={},
        choices={"tool": ("perftest", "iperf3", "nccl")},
        operations={"perftest": ("write_bw", "read_bw", "send_lat"), "nccl": ("alltoall",)},
        several=form.SEVERAL if request.kind in ("pair", "matrix") else (),
        options={},
        presets={"links": "iperf3"},
        labels=labels,
        label_prefix=spellings.LABEL,
        areas=form.PAIRS_OF_NAMES,
        counted=(),
        members=8,
        cluster="atlas",
        may_force=True,
        may_run=True,
    )


def check_page(detail: CheckDetail, language: str) -> str:
    check = detail.check
    return rendering.render(
        scope(language),
        "check.html",
        check=check,
        found=overview(detail),
        curve=curve_of(detail) if check.request.kind == "collective" else None,
        latency=False,
        latencies=(),
        request_fields=pages.parameters_of(check.request),
        bad={"gpu-7"},
        tones=TONES,
        now=None,
        earlier={},
        compared=None,
        may_run=True,
        cluster="atlas",
    )


@pytest.mark.parametrize("fields", REQUESTS, ids=lambda one: one["kind"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_run_again_gives_the_same_request(fields: dict[str, Any], language: str) -> None:
    """Through the page, as a browser sends it."""
    request = msgspec.convert(fields, CheckRequest)
    page = Page(form_page(request, language))
    sent = {name: value.strip() for name, value in page.fields.items()}
    assert form.request_of(sent) == request
    assert page.inputs <= page.labels


def test_each_field_of_a_request_is_in_the_form_of_some_kind() -> None:
    known = {
        "expected_bytes_per_second": "expected",
        "expected_latency_seconds": "expected_latency",
        "limit_seconds": "limit",
        "test": "tool",
    }
    fields = (*CheckRequest.__struct_fields__, *TestRequest.__struct_fields__)
    assert {known.get(name, name) for name in fields} == set(form.FIELDS)
    shown = [Page(form_page(msgspec.convert(one, CheckRequest))) for one in REQUESTS]
    assert set(form.FIELDS) <= {name for page in shown for name in page.fields}


@settings(max_examples=100, deadline=None)
@given(
    share=st.floats(1e-6, 1),
    rate=st.floats(1, 1e13),
    limit=st.floats(1, 86400),
    environment=st.dictionaries(
        st.sampled_from(sorted(NCCL)), st.from_regex(r"[a-z0-9,=]{1,9}", fullmatch=True)
    ),
    mca=st.dictionaries(
        st.sampled_from(sorted(MCA)), st.from_regex(r"[a-z0-9,^]{1,9}", fullmatch=True)
    ),
)
def test_figures_survive_the_form(
    share: float, rate: float, limit: float, environment: Any, mca: Any
) -> None:
    request = CheckRequest(
        kind="collective",
        share=share,
        expected_bytes_per_second=rate,
        limit_seconds=limit,
        test=TestRequest(environment=environment, mca=mca),
    )
    assert form.request_of(form.fields_from(request)) == request


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *[("port", "0"), ("port", "x"), ("seconds", "-1"), ("expected", "fast"), ("share", "101")],
        *[("limit", "soon"), ("environment", "NCCL_ALGO"), ("nodes", "-x"), ("where", "pool")],
        *[("rounds", "1e3"), ("tool", "ping"), ("share", "nan"), ("limit", "0s")],
    ],
)
def test_an_error_stands_at_its_field(field: str, text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        form.request_of({"kind": "matrix", field: text})
    assert [problem.path for problem in caught.value.problems] == [field]


def test_all_problems_of_a_form_are_named_at_once() -> None:
    fields = {"kind": "matrix", "nodes": "gpu-1 -x", "port": "0", "limit": "2d", "where": "pool"}
    with pytest.raises(RefusedError) as caught:
        form.request_of(fields)
    assert form.by_field(caught.value.problems) == {
        "nodes": "'-x': a name has letters, digits and . _ - only",
        "where": "write NAME=VALUE instead of 'pool', one per line",
        "port": "0: write a whole number from 1 to 255",
        "limit": "'2d' is outside 1s to 24h: choose a duration within",
    }


def test_several_operations_are_boxes_that_are_ticked() -> None:
    body = b"kind=pair&operation=write_bw&operation=read_lat&device=a&device=b"
    fields = form.fields_of(body)
    assert (fields["operation"], fields["device"]) == ("write_bw,read_lat", "b")


def test_a_label_is_chosen_once() -> None:
    fields = {"kind": "matrix", "where": "pool=a", "where.pool": "b"}
    with pytest.raises(RefusedError) as caught:
        form.request_of(fields)
    assert [problem.path for problem in caught.value.problems] == ["where"]


def test_labels_with_few_values_are_lists() -> None:
    members = [
        Member(name=f"n{n}", host="h", port=1, labels={"pool": f"p{n % 2}", "serial": f"s{n}"})
        for n in range(40)
    ]
    assert spellings.labels_of(members) == {"pool": {"p0": 20, "p1": 20}}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_verdict_is_one_phrase_of_the_language(language: str) -> None:
    check, _ = matrix_check(8, "gpu-7", IDENTITY)
    assert check.verdict is not None
    t = texts_of(language)
    for scope_name, subject in (("node", "gpu-7"), ("link", "a - b"), ("rail", "mlx5_3")):
        for reason in ("hardware", "threshold", "harness", "workload"):
            fields = {"subject": subject, "scope": scope_name, "reason": reason, "message": "m"}
            finding = msgspec.convert({**fields, "ratio": 0.41}, NodeVerdict)
            text = phrases.phrase(finding, check, t)
            assert subject in text
            assert ("41 %" in text) == (reason == "threshold")
            assert bool(CHINESE.search(text)) == (language == "zh")
            assert phrases.to_do(finding, t).endswith("。" if language == "zh" else ".")
    suspect = phrases.suspect("port mlx5_0, sending", t)
    assert suspect == ("port mlx5_0, sending" if language == "en" else "端口 mlx5_0, 发送方向")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("count", [2, 64, 1000, 10_000])
def test_a_page_is_small_whatever_the_number_of_nodes(count: int, language: str) -> None:
    check, _ = matrix_check(2, "gpu-7", IDENTITY)
    names = tuple(f"gpu-{number}" for number in range(1, count + 1))
    rounds = None if count <= 64 else 4
    request = msgspec.structs.replace(check.request, nodes=names, rounds=rounds)
    results = []
    for _, number, pair in Plan(request).numbered():
        rate = 4e9 if "gpu-7" in (pair.source, pair.target) else 1e10
        row = ResultRow(operation="tcp", message_bytes=65536, bandwidth_bytes_per_second=rate)
        reports = (Report(outcome="ok", rows=(row,)),)
        nodes = (pair.source, pair.target)
        results.append(RunResult(number=number, nodes=nodes, reports=reports))
    detail = CheckDetail(
        check=msgspec.structs.replace(check, request=request), results=tuple(results)
    )
    text = check_page(detail, language)
    assert len(text.encode()) < (160_000 if count == 64 else 60_000)
    assert ('class="map' in text) == (count <= 64)
    assert count == 2 or "gpu-7</bdi>" in text


def test_every_field_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    check, results = matrix_check(3, "gpu-2", IDENTITY, evil)
    for language in LANGUAGES:
        text = check_page(CheckDetail(check=check, results=tuple(results)), language)
        text += form_page(msgspec.structs.replace(check.request, note=evil), language)
        assert "<script" not in text
        assert text.count("&lt;script&gt;") >= 5


def test_the_map_has_short_names_that_differ() -> None:
    assert labels_of(("gpu-1", "gpu-2")) == ("gpu-1", "gpu-2")
    long = [f"row-12.rack-{number:02}.gpu.north.example.org" for number in (1, 2)]
    assert labels_of(("gpu-1.example.org", *long)) == (
        "gpu-1.example.org",
        "row-12.rack-01",
        "row-12.rack-02",
    ), "the domain that both have"
    [label] = labels_of(("a-very-long-name-of-a-node-17",))
    assert label == "\u2026g-name-of-a-node-17"


def test_the_list_of_the_slowest_says_how_many_it_shows() -> None:
    check, results = matrix_check(16, "gpu-7", IDENTITY)
    text = check_page(CheckDetail(check=check, results=tuple(results)), "en")
    assert "The 5 slowest of 16 nodes" in text


def test_names_are_sorted_as_people_do() -> None:
    names = ["gpu-10", "gpu-2", "a", "gpu-1", "10"]
    assert sorted(names, key=natural) == ["10", "a", "gpu-1", "gpu-2", "gpu-10"]


@pytest.mark.parametrize("figure", [5e-324, -1.0, 0.0, 1e300, 1.7e308])
@pytest.mark.parametrize("operation", ["tcp", "send_lat"])
def test_figures_that_make_no_sense_leave_the_page(figure: float, operation: str) -> None:
    """An agent may report anything: it is no figure, and the others are compared."""
    check, results = matrix_check(8, "gpu-7", "20260101-000000-abcdef")
    request = replace(check.request, test=replace(check.request.test, operation=operation))
    rows = [
        ResultRow(
            message_bytes=65536,
            bandwidth_bytes_per_second=figure if "gpu-1" in one.nodes else 1e10,
            latency_seconds={"median": figure if "gpu-1" in one.nodes else 1e-6},
        )
        for one in results
    ]
    changed = [
        replace(one, reports=(replace(one.reports[0], rows=(row,)),))
        for one, row in zip(results, rows)
    ]
    check = replace(check, request=request, verdict=None)
    found = overview(CheckDetail(check=check, results=tuple(changed)))
    assert all(cell.percent is None for cell in found.of_pairs.maps[0].rows[0])
    assert found.of_pairs.maps[0].rows[1][2].percent == 100
    verdict = judge(check, changed)
    assert verdict.outcome != "ok"
    assert "gpu-1" in verdict.message


def test_no_cell_of_a_csv_is_a_formula() -> None:
    formula = "=HYPERLINK(1)"
    row = ResultRow(operation=formula, message_bytes=8)
    report = Report(outcome="failed", reason="harness", message=formula, rows=(row,))
    run = RunResult(number=0, nodes=("gpu-1", "gpu-2"), reports=(report,), skipped=formula)
    check, _ = matrix_check(2, "gpu-1", "20260101-000000-abcdef")
    lines = list(csv.reader(as_csv(CheckDetail(check=check, results=(run,))).splitlines()))
    assert [cell for cell in lines[1] if "HYPER" in cell] == [f"'{formula}"] * 3
