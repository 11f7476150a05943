"""What `fabric collective --hub` prints of a collective, and how far it is while it runs."""

from __future__ import annotations

import argparse

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
from nodevitals.commands.fabric.hub import counted, print_detail
from nodevitals.probes.fabric.tools.report import Report, ResultRow, failed

NODES = ("gpu-1", "gpu-2")
BUS = BusExpectation(bytes_per_second=360e9, basis="8 ports of 400 Gb/s per node, 90 %")
SIZES = (1 << 29, 1 << 30)


def detail(*gigabytes: float, runs_done: int = 0, bus: BusExpectation | None = BUS) -> CheckDetail:
    test = TestRequest(tool="nccl", operation="all_reduce", sizes="512MiB,1GiB")
    request = CheckRequest(kind="collective", nodes=NODES, test=test)
    check = Check(
        id="20261128-000000-abcdef",
        request=request,
        requester=Requester(trigger="command"),
        cost=Cost(nodes=2, runs=1, node_seconds=1.0, seconds=1.0, bytes=1.0),
        created=0.0,
        phase="running",
        runs_done=runs_done,
        bus=bus,
    )
    reports = [
        Report(
            outcome="ok",
            rows=(ResultRow(message_bytes=size, bus_bandwidth_bytes_per_second=one * 1e9),),
        )
        for size, one in zip(SIZES, gigabytes)
    ]
    if len(gigabytes) < len(SIZES):
        reports.append(failed("timeout", "no end within 60 s"))
    return CheckDetail(
        check=check, results=(RunResult(number=0, nodes=NODES, reports=tuple(reports)),)
    )


def printed(shown: CheckDetail, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    print_detail(shown, argparse.Namespace(json=False))
    return [line.split() for line in capsys.readouterr().out.splitlines()[:3]]


def test_each_size_has_its_share_of_the_expected(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(detail(90.0, 270.0), capsys) == [
        ["NODES", "BYTES", "BUS", "GB/s", "OF", "360"],
        ["2:", "gpu-1,gpu-2", str(SIZES[0]), "90.00", "25", "%"],
        ["2:", "gpu-1,gpu-2", str(SIZES[1]), "270.00", "75", "%"],
    ]


def test_without_an_expectation_there_is_no_share(capsys: pytest.CaptureFixture[str]) -> None:
    head, first, second = printed(detail(90.0, bus=None), capsys)
    assert head == ["NODES", "BYTES", "BUS", "GB/s"]
    assert first == ["2:", "gpu-1,gpu-2", str(SIZES[0]), "90.00"]
    assert second[2:4] == ["timeout:", "no"]


def test_sizes_are_counted_until_the_run_over_all_nodes_ends() -> None:
    assert counted(detail(90.0, 270.0)) == (2, 2, "sizes")
    assert counted(CheckDetail(check=detail(1.0).check, results=())) == (0, 2, "sizes")
    assert counted(detail(90.0, runs_done=1)) == (1, 1, "runs")
