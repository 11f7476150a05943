"""perftest itself, without RDMA devices: it takes every command line that checks build, and what it
refuses is refused before it starts.

It parses its options before it looks for the device, so `no_device` says that it took them all.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from nodevitals.checks.model import CheckRequest
from nodevitals.checks.requests import runs
from nodevitals.checks.requests.parameters import checked
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.settings import TestSettings
from nodevitals.probes.fabric.tools import perftest
from nodevitals.probes.fabric.tools.report import BANDWIDTH, LATENCY, Report
from testbed.fabric import REAL_TOOLS

DEVICE, PEER, PORT = "mlx5_0", "gpu-2", 18600
EVERYWHERE: list[dict[str, Any]] = [
    {},
    {"gid_index": 3},
    {"gid_index": 64, "traffic_class": 106},
    {"traffic_class": 255, "ib_port": 2},
    {"message_bytes": 1, "iterations": 5},
    {"message_bytes": 2**30, "iterations": 100_000_000},
]
BANDWIDTHS_ONLY: list[dict[str, Any]] = [
    {"queue_pairs": 64},
    {"seconds": 1, "timeout": 20.0},
    {"seconds": 600, "timeout": 700.0, "queue_pairs": 8, "gid_index": 3},
]
# What operators write by hand: program and options.
BY_HAND = [
    "ib_write_bw -d mlx5_0 -x 3 --report_gbits",
    "ib_read_bw -d mlx5_0 -x 3 --report_gbits",
    "ib_send_bw -d mlx5_0 -x 3 --report_gbits",
    "ib_send_lat -d mlx5_0 -x 3",
    "ib_write_lat -d mlx5_0 -x 3",
]


def real(argv: Sequence[str]) -> Report:
    """What the product reads in the output of the tool."""
    done = subprocess.run(
        argv,
        env={**os.environ, **REAL_TOOLS},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    report = perftest.parse(done.stdout)
    return msgspec.structs.replace(report, message=done.stdout)


def settings(operation: str, **more: Any) -> TestSettings:
    fields = {"tool": "perftest", "operation": operation, "device": DEVICE}
    return msgspec.convert({**fields, **more}, TestSettings)


@pytest.mark.parametrize("peer", [None, PEER], ids=["server", "client"])
@pytest.mark.parametrize("operation", [*BANDWIDTH, *LATENCY])
def test_the_tool_takes_every_option(operation: str, peer: str | None) -> None:
    given = EVERYWHERE + (BANDWIDTHS_ONLY if operation in BANDWIDTH else [])
    for more in given:
        test = settings(operation, **more)
        assert list(test.problems()) == []
        argv = measurement.argv(test, test.gid_index, PORT, peer)
        report = real(argv)
        assert report.reason == "no_device", f"{argv}: {report.message}"


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        ("send_lat", {"queue_pairs": 2}),
        ("write_bw", {"iterations": 4}),
        ("write_bw", {"message_bytes": 0}),
        ("write_bw", {"message_bytes": 2**31}),
        ("write_bw", {"queue_pairs": 0}),
        ("write_bw", {"seconds": 0}),
        ("write_bw", {"gid_index": 65}),
    ],
)
def test_what_the_tool_refuses_is_refused_before(operation: str, more: dict[str, Any]) -> None:
    unchecked = msgspec.structs.replace(settings(operation), **more)
    report = real(measurement.argv(unchecked, unchecked.gid_index, PORT, PEER))
    # An option that does not fit the operation is not passed at all.
    if operation in BANDWIDTH:
        assert "Parser function exited with Error" in report.message
        assert report.reason != "no_device"
    with suppress(msgspec.ValidationError):
        assert list(settings(operation, **more).problems())


def test_an_unknown_option_is_no_missing_device() -> None:
    report = real(["ib_write_bw", "-d", DEVICE, "--nonsense"])
    assert "Invalid Command or flag" in report.message
    assert report.reason != "no_device"


def of_preset(name: str, **test: Any) -> tuple[TestSettings, ...]:
    """The tests of a built-in preset on a device."""
    fields = {"kind": "pair", "nodes": ["gpu-1", PEER], "preset": name}
    request = msgspec.convert({**fields, "test": {"device": DEVICE, **test}}, CheckRequest)
    return runs.pair_tests(checked(request, PRESETS))


PAIRS = sorted(name for name, preset in PRESETS.items() if preset.test.tool == "perftest")


@pytest.mark.parametrize("name", PAIRS)
def test_the_tool_takes_the_command_lines_of_every_preset(name: str) -> None:
    for test in of_preset(name):
        report = real(measurement.argv(test, 3, PORT, PEER))
        assert report.reason == "no_device", report.message


@pytest.mark.parametrize("line", BY_HAND)
def test_what_operators_run_by_hand_is_in_the_command_line(line: str) -> None:
    """The same program, device, GID and unit; the tool takes both."""
    program, *options = line.split()
    [test] = of_preset("ib-write-64k", operation=program.removeprefix("ib_"), sizes="64KiB")
    argv = measurement.argv(test, 3, PORT, PEER)
    assert argv[0] == program
    text = " ".join(argv)
    for option in " ".join(options).replace(" -", "\n-").splitlines():
        assert f" {option} " in text, option
    for command in ([program, *options, PEER], argv):
        report = real(command)
        assert report.reason == "no_device", report.message
