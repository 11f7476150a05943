"""A vendor's program within a deadline, and beside which tools it may start."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from nodevitals.linux import tool
from nodevitals.linux.host import Host
from nodevitals.probe import ProbeError
from nodevitals.probes.ascend.runner import HOLD_SECONDS, tool_is_running
from testbed.trees import write


def failure(*argv: str, seconds: float = 0.3) -> str:
    with pytest.raises(ProbeError) as caught:
        tool.run(argv, seconds)
    assert "\n" not in caught.value.message
    return caught.value.reason


def test_output_errors_and_status_are_returned_together() -> None:
    done = tool.run(["sh", "-c", "echo out; echo err >&2; exit 187"], 5)
    assert (done.text, done.status) == ("out\nerr\n", 187)


def test_hung_program_is_killed_and_absent_program_is_missing() -> None:
    assert failure("sleep", "4243") == "timeout"
    assert failure("/nonexistent/npu-smi") == "missing"
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "4243"]
    ]


def test_program_that_prints_too_much_is_killed() -> None:
    assert failure("sh", "-c", "yes", seconds=20) == "too_long"


def test_child_that_keeps_the_output_open_does_not_delay_the_deadline() -> None:
    """Otherwise this would not end."""
    assert failure("sh", "-c", "sleep 4245 & exit 0") == "timeout"


def test_program_that_closes_its_output_and_does_not_end_is_killed() -> None:
    assert failure("sh", "-c", "exec >&- 2>&-; sleep 4244") == "timeout"


def test_program_runs_in_the_c_locale() -> None:
    assert tool.run(["sh", "-c", "echo $LC_ALL"], 5).text == "C\n"


@pytest.mark.parametrize(
    ("command", "state", "age", "may_start"),
    [
        ("npu-smi", "S", 1, False),
        ("hccn_tool", "R", 1, False),
        ("npu-smi", "S", HOLD_SECONDS + 1, True),  # npu-smi info watch
        ("npu-smi", "T", HOLD_SECONDS + 1, True),
        ("npu-smi", "D", HOLD_SECONDS + 1, False),
        ("npu-smi", "Z", 1, True),
        ("trainer", "D", 1, True),
    ],
)
def test_tool_starts_beside_another_one_only_where_that_is_harmless(
    tmp_path: Path, command: str, state: str, age: float, may_start: bool
) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    started = int((5000 - age) * ticks)
    fields = " ".join(["0"] * 17)
    stat = f"77 ({command}) {state} 1 {fields} {started} 0 0\n"
    write(tmp_path, {"uptime": "5000.00 1.00\n", "77/comm": f"{command}\n", "77/stat": stat})
    assert tool_is_running(Host(procfs=str(tmp_path))) is not may_start
