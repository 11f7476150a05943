"""The output of bandwidth tools gives results or reasons; damaged output gives no wrong result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevitals.linux.host import Host
from nodevitals.probe import Readings
from nodevitals.probes.fabric import measurement
from nodevitals.probes.fabric.admission import BudgetSettings, GateSettings, Meter
from nodevitals.probes.fabric.orders import FinishedOrder, limited
from nodevitals.probes.fabric.probe import OrderLog
from nodevitals.probes.fabric.server_side import Guard
from nodevitals.probes.fabric.settings import FabricSettings, TestSettings
from nodevitals.probes.fabric.tools import PARSERS, hccl, iperf3, nccl, perftest
from nodevitals.probes.fabric.tools.report import LATENCY, ResultRow
from testbed import tooloutput as out
from testbed.node import environment, run


def write_bw(unit: str = "Gb/sec", *rows: str) -> str:
    return out.perftest_head("write_bw") + out.bandwidth_columns(unit) + "".join(rows) + out.LINE


@pytest.mark.parametrize(
    ("unit", "average", "expected"),
    [
        ("Gb/sec", 391.27, 391.27e9 / 8),
        ("Gb/sec", 0.042185, 0.042185e9 / 8),
        ("MB/sec", 10401.68, 10401.68 * 2**20),  # which are MiB
        ("MiB/sec", 10401.68, 10401.68 * 2**20),
    ],
)
def test_bandwidth_is_read_in_its_unit(unit: str, average: float, expected: float) -> None:
    report = perftest.parse(write_bw(unit, out.bandwidth_row(65536, 1000, average, unit)))
    assert (report.outcome, len(report.rows)) == ("ok", 1)
    (row,) = report.rows
    assert (row.operation, row.message_bytes, row.iterations) == ("write_bw", 65536, 1000)
    assert row.bandwidth_bytes_per_second == pytest.approx(expected)
    assert row.peak_bytes_per_second is None  # 0.00: not measured


def test_warnings_between_rows_are_ignored() -> None:
    rows = [out.bandwidth_row(2**power, 5000, 3.0 * power, "Gb/sec") for power in range(10, 15)]
    text = write_bw("Gb/sec", *(out.CPU.format("1500.1", "3300.2") + row for row in rows))
    assert [row.message_bytes for row in perftest.parse(text).rows] == [1024 << n for n in range(5)]


@pytest.mark.parametrize("operation", LATENCY)
def test_latency_statistics_in_seconds(operation: str) -> None:
    row = out.latency_row(8, 1000, 1.42, 9.93, 1.47, 1.49, 0.08, 1.57, 5.02)
    report = perftest.parse(out.perftest_head(operation) + out.latency_columns() + row)
    expected = {"minimum": 1.42e-6, "maximum": 9.93e-6, "median": 1.47e-6}
    expected |= {"mean": 1.49e-6, "p99": 1.57e-6, "p999": 5.02e-6}
    assert report.rows[0].latency_seconds == pytest.approx(expected)
    assert report.rows[0].operation == operation


def test_latency_columns_may_touch() -> None:
    row = (
        " 8       1000          1.42           2465.901216.65        1300.10 0.02  2001.002402.13\n"
    )
    report = perftest.parse(out.perftest_head("write_lat") + out.latency_columns() + row)
    assert report.rows[0].latency_seconds is not None
    assert report.rows[0].latency_seconds["median"] == pytest.approx(1216.65e-6)


@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize(("printed", "factor"), [(2229.27, 2**20), (98.02, 1.25e8)])
def test_unit_of_json_is_inferred(valid: bool, printed: float, factor: float) -> None:
    results = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.0, "BW_average": printed}
    results["MsgRate"] = round(printed * factor / 65536 / 1e6, 6)
    document = {"test_info": {"test": "RDMA_Read_BW_Test"}, "results": results}
    text = json.dumps(document, indent=1)
    if not valid:  # as Debian 12's version prints it
        text = text.replace('"', "").replace("\n }", ",\n }")
    (row,) = perftest.parse(text).rows
    assert (row.operation, row.message_bytes) == ("read_bw", 65536)
    assert row.bandwidth_bytes_per_second == pytest.approx(printed * factor)
    assert perftest.parse(text[:-3]).rows == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Couldn't connect to 192.0.2.7:18515\nUnable to open file descriptor", "unreachable"),
        ("Couldn't listen to port 18515", "harness"),
        (" Port number 1 state is Down", "port_down"),
        (" Found Incompatibility issue with GID types.", "no_gid"),
        ("Failed to modify QP 291 to RTR", "unreachable"),
        (" Completion with error at client\n Failed status 12: wr_id 0", "unreachable"),
        (" Failed status-transport retry counter exceeded (12): wr_id 0", "unreachable"),
        (" Failed status 4: wr_id 0 syndrom 0x51", "harness"),
        ("ethernet_read_keys: Couldn't read remote address", "unreachable"),
        (" Did not detect devices \n If device exists", "no_device"),
        (out.WAITING, "harness"),
        ("", "harness"),
    ],
)
def test_reason_of_a_perftest_failure(text: str, reason: str) -> None:
    report = perftest.parse(text)
    assert (report.outcome, report.reason) == ("failed", reason)


def test_failure_after_rows_is_a_failure() -> None:
    text = write_bw("Gb/sec", out.bandwidth_row(1024, 1000, 9, "Gb/sec")) + "\n Failed status 12: x"
    assert (perftest.parse(text).outcome, len(perftest.parse(text).rows)) == ("failed", 1)


def test_nccl_has_out_of_place_and_in_place_rows() -> None:
    report = nccl.parse(out.nccl(out.nccl_row(8 << 20, 180.5, 1.75)))
    assert report.outcome == "ok"
    first, second = report.rows
    assert (first.in_place, second.in_place) == (False, True)
    assert (first.operation, first.message_bytes, first.wrong) == ("all_reduce", 8 << 20, 0)
    assert first.bandwidth_bytes_per_second == 46.47e9
    assert first.bus_bandwidth_bytes_per_second == 81.33e9


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", "12: "])
def test_prefixes_of_launchers_are_removed(prefix: str) -> None:
    lines = out.nccl(out.nccl_row(1024, 20.0, 1.5)).splitlines()
    assert len(nccl.parse("\n".join(prefix + line for line in lines)).rows) == 2
    assert len(hccl.parse(prefix + out.hccl_row(1 << 20, 400.5)).rows) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (out.nccl(out.nccl_row(1024, 20.0, 1.5, wrong="7")), "corruption"),
        (out.nccl(out.nccl_row(1024, 20.0, 1.5, wrong="2e-01")), "corruption"),
        (out.nccl(out.nccl_row(1024, 20.0, 1.5), footer="3 FAILED"), "corruption"),
        ("gpu-a: Test timeout (20s) common.cu:412", "timeout"),
        ("gpu-a: Test NCCL failure common.cu:958 'unhandled system error'", "harness"),
        ("There are not enough slots available in the system", "harness"),
        (out.nccl(out.nccl_row(1024, 20.0, 1.5)) * 2, "harness"),  # a build without MPI
    ],
)
def test_reason_of_an_nccl_failure(text: str, reason: str) -> None:
    report = nccl.parse(text)
    assert (report.outcome, report.reason) == ("failed", reason)


def test_unchecked_values_are_not_correct_values() -> None:
    assert nccl.parse(out.nccl(out.nccl_row(1024, 20.0, 1.5, wrong="N/A"))).rows[0].wrong is None
    assert hccl.parse(out.hccl_row(1 << 20, 400.5, "NULL")).rows[0].wrong is None


def test_hccl_counts_in_gib() -> None:
    report = hccl.parse("data_size(Bytes): | avg_time(us): |\n" + out.hccl_row(64 << 20, 2630.2))
    assert report.rows[0].bandwidth_bytes_per_second == pytest.approx((64 << 20) / 2630.2e-6, 1e-5)
    assert hccl.parse(out.hccl_row(64 << 20, 2630.2, "failed")).reason == "corruption"
    failed = "hccl interface return err ./common/src/x.cc:538, retcode: 7"
    assert hccl.parse(failed).reason == "harness"


def test_iperf3_rate_of_the_receiver() -> None:
    report = iperf3.parse(out.iperf3(9.41e9))
    assert report.rows == (
        ResultRow(
            operation="tcp",
            message_bytes=131072,
            bandwidth_bytes_per_second=9.41e9 / 8,
            retransmits=3,
        ),
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("the server is busy running a test. try again later", "peer_busy"),
        ("unable to connect to server: Connection refused", "unreachable"),
        ("unable to connect to server: Connection timed out", "timeout"),
        ("unable to start listener for connections: Address already in use", "harness"),
        ("control socket has closed unexpectedly", "unreachable"),
        ("something new", "harness"),
    ],
)
def test_reason_of_an_iperf3_failure(error: str, reason: str) -> None:
    """With -J its exit status is 0 all the same."""
    assert iperf3.parse(json.dumps({"start": {}, "end": {}, "error": error})).reason == reason
    assert iperf3.parse(f"iperf3: error - {error}\n").reason == reason


WHOLE = {
    "perftest": [
        write_bw("MB/sec", *(out.bandwidth_row(1 << n, 1000, 7.77 * n, "MB/sec") for n in (9, 16))),
        out.perftest_head("send_lat")
        + out.latency_columns()
        + out.latency_row(8, 1000, 1.42, 9.93, 1.47, 1.49, 0.08, 1.57, 5.02),
    ],
    "nccl": [out.nccl(out.nccl_row(1 << 20, 95.31, 1.75) + out.nccl_row(1 << 24, 702.17, 1.75))],
    "hccl": [out.hccl_row(8192, 764.55) + out.hccl_row(1 << 26, 2630.2)],
    "iperf3": [out.iperf3(9.41e9)],
}


def test_a_latency_without_a_standard_deviation_is_read() -> None:
    """Between emulated machines the real tool prints one that is no number."""
    row = (
        " 8       1000          238.21         490892.85      1140.76  \t       2576.72     "
        "\t-nan   \t\t47351.37 \t\t490892.85\n"
    )
    text = out.perftest_head("send_lat") + out.latency_columns() + row
    (read,) = PARSERS["perftest"](text).rows
    assert read.latency_seconds is not None
    assert read.latency_seconds["median"] == pytest.approx(1140.76e-6)
    assert read.latency_seconds["p99"] == pytest.approx(47351.37e-6)


@pytest.mark.parametrize("tool", WHOLE)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_output_gives_no_wrong_number(tool: str, data: st.DataObject) -> None:
    """Whether the text is cut, mixed with other text, or has lines swapped or doubled: every row
    that is still read is one of the printed rows.
    """
    text = data.draw(st.sampled_from(WHOLE[tool]))
    true = figures(PARSERS[tool](text).rows)
    for _ in range(data.draw(st.integers(1, 3))):
        text = data.draw(damaged(text))
    assert figures(PARSERS[tool](text).rows) <= true


def figures(rows: tuple[ResultRow, ...]) -> set[str]:
    """Rows without the fields that damage may remove."""
    removed = {"operation": None, "retransmits": None, "link_layer": None}
    return {repr(msgspec.structs.replace(row, **removed)) for row in rows}


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """One kind of damage."""
    lines = text.splitlines(keepends=True)
    at = draw(st.integers(0, len(text)))
    kind = draw(st.sampled_from(("cut", "begins late", "run through", "swapped", "twice", "junk")))
    if kind == "cut":
        return text[:at]
    if kind == "begins late":
        # At the start of a line, as in a rotated log.
        return "".join(lines[draw(st.integers(0, len(lines))) :])
    if kind == "run through":
        return text[:at] + draw(st.sampled_from((out.CPU, "\n[INFO] 12 of 34\n", "#"))) + text[at:]
    if kind == "junk":
        return text[:at] + draw(st.sampled_from("\x00\ufffd;=x")) + text[at + 1 :]
    number = draw(st.integers(0, max(0, len(lines) - 2)))
    if kind == "twice" and lines:
        return "".join([*lines[: number + 1], *lines[number:]])
    if len(lines) > 1:
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
    return "".join(lines)


def test_serve_imports_no_operator_commands() -> None:
    """The agent must not use memory for code that it never runs."""
    script = (
        "import contextlib, sys; from nodevitals.commands.cli import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):\n"
        "    main(['serve', '--help'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stdout.split()
    assert "nodevitals.commands.cli" in modules
    operator = ("nodevitals.commands.fabric.", "nodevitals.commands.rules.")
    assert not [name for name in modules if name.startswith(operator)]


def test_command_parse_prints_the_report(tmp_path: Path) -> None:
    file = tmp_path / "output"
    file.write_text(write_bw("Gb/sec", out.bandwidth_row(65536, 1000, 391.27, "Gb/sec")))
    done = run("fabric", "parse", "perftest", str(file))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["outcome"], report["reason"]) == ("ok", None)
    assert report["rows"][0]["bandwidth_bytes_per_second"] == pytest.approx(391.27e9 / 8)
    file.write_text("Couldn't listen to port 18515\n")
    done = run("fabric", "parse", "perftest", str(file))
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (1, "harness")
    done = run("fabric", "parse", "perftest", str(tmp_path / "none"))
    assert (done.returncode, done.stderr) == (2, f"{tmp_path}/none: No such file or directory\n")


def test_every_parameter_is_in_the_command_line() -> None:
    """Spelled as in perftest's perftest_parameters.c and iperf3's iperf_api.c; one end, not two."""
    test = TestSettings(
        tool="perftest",
        operation="write_bw",
        device="mlx5_1",
        ib_port=2,
        message_bytes=1 << 20,
        queue_pairs=8,
        seconds=10,
        gid_index=5,
        traffic_class=106,
        timeout=30.0,
    )
    words = "ib_write_bw -d mlx5_1 -i 2 -x 5 -p 18600 -s 1048576 -D 10 --tclass=106 -q 8"
    assert measurement.argv(test, 5, 18600) == [*words.split(), "--report_gbits", "-F"]
    assert list(test.problems()) == []
    tcp = replace(test, tool="iperf3", operation="tcp", device="eth0", gid_index=None)
    words = "iperf3 -c node-2 -p 18600 --connect-timeout 2000 -t 10 -l 1048576 -P 8 --tos 106 -J"
    assert measurement.argv(tcp, None, 18600, "node-2") == words.split()
    assert "-t" not in measurement.argv(replace(tcp, seconds=None), None, 18600, "node-2")
    bound = measurement.argv(tcp, None, 18600, "192.0.2.2", "192.0.2.1")
    assert bound[-3:] == ["-B", "192.0.2.1", "-J"]


@pytest.mark.parametrize(
    ("speed", "streams", "charged"),
    [
        ("10000", 8, 1.25e9),
        ("-1", 1, 12.5e9),  # a link that is down, and most virtual ones
        ("", 1, 12.5e9),
        ("-1", 4, 50e9),
        ("-1", 64, 100e9),
    ],
)
def test_duration_on_a_link_of_unknown_rate_is_charged_with_what_iperf3_moves(
    tmp_path: Path, speed: str, streams: int, charged: float
) -> None:
    """The charge stays a bound, and a test of 5 s with one stream fits the default budget."""
    link = tmp_path / "class/net/eth0"
    link.mkdir(parents=True)
    (link / "speed").write_text(f"{speed}\n")
    host = Host(sysfs=str(tmp_path))
    test = TestSettings(
        tool="iperf3", operation="tcp", device="eth0", seconds=5, queue_pairs=streams
    )
    assert measurement.bytes_of(test, host) == 5 * charged
    assert measurement.bytes_of(test, host, 2.0) == 2 * charged
    gate = GateSettings(require_idle=False)
    guard = Guard(FabricSettings(gate=gate), host, Meter(BudgetSettings()))
    assert guard.refusal(test) == ("" if 5 * charged <= 100e9 else "budget")


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"operation": "send_lat"}, "seconds"),
        ({"operation": "send_lat", "seconds": None, "queue_pairs": 2}, "queue_pairs"),
        ({"gid_index": 65}, "gid_index"),
        ({"timeout": 10.0}, "timeout"),
        ({"peer_device": "../mlx5_0"}, "peer_device"),
        ({"tool": "iperf3", "operation": "tcp", "gid_index": 3}, "gid_index"),
    ],
)
def test_parameter_that_does_not_fit_is_a_problem(changed: dict[str, Any], path: str) -> None:
    test = TestSettings(
        tool="perftest", operation="write_bw", device="mlx5_1", seconds=10, timeout=20.0
    )
    assert list(test.problems()) == []
    assert [problem.path for problem in replace(test, **changed).problems()] == [path]


def test_key_of_a_test_is_that_of_earlier_versions() -> None:
    """Nodes of two versions test each other; what is new and set makes another key."""
    test = TestSettings(tool="perftest", operation="write_bw", device="mlx5_1")
    assert test.key == "perftest-write_bw-mlx5_1-1-65536-1000-1"
    assert replace(test, seconds=5, traffic_class=0).key == f"{test.key}-5s-tc0"
    assert replace(test, gid_index=3).key == test.key
    assert replace(test, peer_device="mlx5_2").key == f"{test.key}-to:mlx5_2"
    assert msgspec.json.encode(test) == (
        b'{"tool":"perftest","operation":"write_bw","device":"mlx5_1"}'
    )


def test_refusals_are_logged_again_after_a_minute_with_those_left_out() -> None:
    log, found = OrderLog(), []
    for now in [100.0] * 25 + [161.0]:
        readings = Readings()
        log.note(readings, FinishedOrder(outcome="refused", text="order refused: x"), now)
        found += [(note.text, note.warning) for note in readings.notes]
    one = ("order refused: x", True)
    assert found == [one] * 10 + [("15 more orders were refused since", True), one]


@pytest.mark.parametrize(("size", "text"), [(100, "x" * 90), (40, "é" * 400), (64, "a\n" * 10**5)])
def test_long_output_is_kept_by_both_ends(size: int, text: str) -> None:
    kept = limited(text, size)
    assert len(kept.encode()) <= size
    assert kept == text or (kept[0], kept[-1]) == (text[0], text[-1])
