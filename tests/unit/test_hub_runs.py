"""The tests of a check as rows: the slowest operation and device of each, and its command lines."""

from __future__ import annotations

from msgspec.structs import replace

from nodevitals.checks.model import CheckDetail, RunResult
from nodevitals.probes.fabric.tools.report import failed
from nodevitals_hub.web.heatmap import overview
from nodevitals_hub.web.results.runs import lines_of, parts_of, text_of
from nodevitals_hub.web.texts import phrases
from nodevitals_hub.web.texts.translations import texts_of
from testbed.hubgallery import made

RAILS = {
    "kind": "matrix",
    "nodes": ["gpu-1", "gpu-2", "gpu-3", "gpu-4"],
    "test": {
        "tool": "perftest",
        "device": "mlx5_0,mlx5_1,mlx5_2",
        "operation": "write_bw,send_lat",
        "sizes": "64KiB,1MiB",
    },
}


def rails(**more: object) -> CheckDetail:
    check, results = made(1, RAILS, **more)
    return CheckDetail(check=check, results=tuple(results))


def test_the_slowest_test_is_shown_with_the_device_that_is_slow() -> None:
    found = overview(rails(slow={"gpu-3 mlx5_1": 0.4}))
    slow = [row for row in found.runs if "gpu-3" in row.nodes]
    assert list(found.runs[: len(slow)]) == slow, "those come first"
    assert {(row.name, row.latency) for row in slow} <= {
        ("write_bw mlx5_1", False),
        ("send_lat mlx5_1", True),
    }


def test_the_command_lines_shown_are_those_of_the_slow_device() -> None:
    found = overview(rails(slow={"gpu-3 mlx5_1": 0.4}))
    assert len(found.commands) == 3
    for row, text in found.commands:
        assert "gpu-3" in row.nodes
        assert "-d mlx5_1" in text
        assert "mlx5_0" not in text
        assert text.count("# gpu-3") == len(text.split("# ")) // 2


def test_the_headline_names_the_device_that_is_slow_among_several() -> None:
    check = rails(slow={"gpu-3 mlx5_1": 0.4}).check
    assert "gpu-3" in (text := phrases.headline(check, texts_of("en")))
    assert "port mlx5_1" in text
    assert "端口 mlx5_1" in phrases.headline(check, texts_of("zh"))
    whole = rails(slow={"gpu-3": 0.4}).check
    assert "mlx5" not in phrases.headline(whole, texts_of("en")), "all of its devices"


def test_a_failed_test_comes_first_and_names_its_device() -> None:
    detail = rails()
    run = detail.results[5]
    # Of send_lat on mlx5_2, the last one.
    reports = (*run.reports[:-1], failed("port_down", "mlx5_2: DOWN"))
    results = [*detail.results]
    results[5] = replace(run, reports=reports)
    row = overview(replace(detail, results=tuple(results))).runs[0]
    assert row.number == run.number
    assert row.problem == "send_lat mlx5_2: port_down: mlx5_2: DOWN"
    line = list(lines_of(results[5], detail.check.request))[-1]
    assert (line.operation, line.devices, line.row) == ("send_lat", "mlx5_2", None)
    assert line.problem == "port_down: mlx5_2: DOWN"


def test_a_line_of_results_has_the_device_and_the_size_of_its_test() -> None:
    detail = rails()
    lines = list(lines_of(detail.results[0], detail.check.request))
    assert len(lines) == 3 * 2 + 3
    assert [line.devices for line in lines[:6]] == [f"mlx5_{n // 2}" for n in range(6)]
    assert [line.message_bytes for line in lines[:2]] == [65536, 1 << 20]
    assert [line.operation for line in lines[6:]] == ["send_lat"] * 3


def test_the_text_of_a_test_has_commands_before_their_output() -> None:
    run = RunResult(
        number=0, nodes=("a", "b"), commands=("# a\nx -s\n", ""), outputs=("1\n", "2", "3\n")
    )
    assert text_of(run) == "# a\nx -s\n1\n\n2\n\n3\n\n"
    assert [part.output for part in parts_of(run)] == ["1\n", "2", "3\n"]
    assert text_of(RunResult(number=0, nodes=("a", "b"))) == ""
