"""The curve of a collective on its page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from nodevitals.checks.model import (
    BusExpectation,
    Check,
    CheckDetail,
    CheckRequest,
    Cost,
    Requester,
    RunResult,
    TestRequest,
)
from nodevitals.probes.fabric.tools.report import Report, ResultRow, failed
from nodevitals_hub.web import rendering
from nodevitals_hub.web.results.curve import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Curve, curve_of

NODES = ("gpu-1", "gpu-2")
BUS = BusExpectation(bytes_per_second=360e9, basis="8 ports of 400 Gb/s per node, 90 %")


def detail(
    gigabytes: list[float], sizes: str = "32MiB..256MiB x2", **fields: object
) -> CheckDetail:
    """A collective that has measured the first sizes."""
    test = TestRequest(tool="nccl", operation="all_reduce", sizes=sizes)
    request = CheckRequest(kind="collective", nodes=NODES, test=test)
    rows = [
        ResultRow(message_bytes=(32 << 20) << place, bus_bandwidth_bytes_per_second=one * 1e9)
        for place, one in enumerate(gigabytes)
    ]
    reports = tuple(Report(outcome="ok", rows=(row,)) for row in rows)
    return CheckDetail(
        check=Check(
            id="20261128-000000-abcdef",
            request=request,
            requester=Requester(trigger="page"),
            cost=Cost(nodes=2, runs=1, node_seconds=1.0, seconds=1.0, bytes=1.0),
            created=0.0,
            **fields,  # type: ignore[arg-type]
        ),
        results=(RunResult(number=0, nodes=NODES, reports=reports),),
    )


def shown(curve: Curve | None, language: str = "en") -> str:
    scope = {"query_string": f"lang={language}".encode(), "headers": [], "path": "/", "state": {}}
    return rendering.render(scope, "curve.html", curve=curve)


def test_points_are_at_the_logarithm_of_their_size() -> None:
    """A quarter of the way per factor of two from 32 to 256 MiB; 100 of 400 GB/s a quarter up."""
    curve = curve_of(detail([90.0, 180.0, 270.0, 360.0], bus=BUS))
    assert curve is not None
    width = WIDTH - LEFT - RIGHT
    assert [point.x for point in curve.points] == pytest.approx(
        [LEFT, LEFT + width / 3, LEFT + 2 * width / 3, LEFT + width]
    )
    assert [point.percent for point in curve.points] == [25, 50, 75, 100]
    assert curve.points[-1].y == curve.expected_y
    steps = {round(first.y - second.y, 6) for first, second in zip(curve.points, curve.points[1:])}
    assert len(steps) == 1
    assert curve.rates[0].place == HEIGHT - BOTTOM


def test_page_shows_the_sizes_that_are_measured() -> None:
    text = shown(curve_of(detail([90.0, 180.0], bus=BUS)))
    assert "2 of 4 sizes measured. Expected of a healthy collective: 360 GB/s." in text
    assert "(8 ports of 400 Gb/s per node, 90 %)" in text
    svg = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert len(svg.findall("circle")) == 2
    assert len(svg.findall("path[@class='expected']")) == 1
    assert "<script" not in text
    assert "32 MiB" in text
    chinese = shown(curve_of(detail([90.0, 180.0], bus=BUS)), "zh")
    assert "已测完 2/4 种消息大小。" in chinese


def test_given_rate_and_good_past_come_before_the_hardware() -> None:
    past = curve_of(detail([90.0], baseline=100e9, bus=BUS))
    assert past is not None
    assert (past.expected, past.basis) == (100e9, "")
    unsure = curve_of(detail([90.0], baseline=100e9, baseline_ok=False, bus=BUS))
    assert unsure is not None
    assert unsure.expected == 360e9


def test_nothing_is_expected_without_facts() -> None:
    text = shown(curve_of(detail([90.0, 180.0])))
    assert "What a healthy one reaches is unknown" in text
    assert "expected" not in text[text.index("<svg") : text.index("</svg>")]


def test_one_size_has_a_table_and_no_line() -> None:
    text = shown(curve_of(detail([90.0], sizes="32MiB", bus=BUS)))
    assert "<svg" not in text
    assert "90 GB/s" in text


def test_nothing_is_shown_before_the_first_size() -> None:
    assert curve_of(detail([])) is None
    broken = detail([])
    run = RunResult(number=0, nodes=NODES, reports=(failed("harness", "no"),))
    assert curve_of(CheckDetail(check=broken.check, results=(run,))) is None
    assert shown(None).strip() == ""
