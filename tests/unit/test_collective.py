"""Collectives: sweeps, what reaches a command line, and one report per size."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.checks import CheckError
from nodevitals.checks.launchers.mpi import Mpi
from nodevitals.checks.launchers.mpirun import argv
from nodevitals.checks.model import CheckRequest, TestRequest
from nodevitals.checks.processes import Excerpt
from nodevitals.checks.requests.collective import (
    Collective,
    Sweep,
    environment,
    finished,
    judge,
    of_request,
    sizes_of,
    sweeps,
    tool_argv,
    verify,
    versions,
)
from nodevitals.checks.requests.parameters import checked
from nodevitals.checks.requests.presets import PRESETS
from nodevitals.probes.fabric.tools import nccl
from testbed import tooloutput

NODES = ("gpu-1", "gpu-2")
WANTED = Collective(backend="nccl", operation="all_reduce", nodes=NODES, sizes=(1024, 2048, 4096))
RANKS = 16
GOOD = [tooloutput.nccl_row(size, 50.0, 1.875) for size in WANTED.sizes]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((8,), [(8, 8, 1)]),
        ((8, 16, 32), [(8, 32, 2)]),
        ((8, 65536, 1 << 20), [(8, 65536, 8192), (1 << 20, 1 << 20, 1)]),
        ((3, 5), [(3, 3, 1), (5, 5, 1)]),
        ((1, 2, 4, 12, 36), [(1, 4, 2), (12, 36, 3)]),
    ],
)
def test_sizes_are_measured_in_few_sweeps(
    sizes: tuple[int, ...], found: list[tuple[int, int, int]]
) -> None:
    assert sweeps(sizes) == [Sweep(*one) for one in found]


@given(st.sets(st.integers(1, 1 << 36), min_size=1, max_size=40))
def test_sweeps_measure_each_size_once_and_in_order(numbers: set[int]) -> None:
    sizes = sorted(numbers)
    assert [size for swept in sweeps(sizes) for size in sizes_of(swept)] == sizes


def test_tcp_is_no_way_out_where_rdma_was_asked_for() -> None:
    assert environment(WANTED) == {"NCCL_DEBUG": "WARN"}
    for test in (
        TestRequest(device="mlx5_1"),
        TestRequest(traffic_class=0),
        TestRequest(gid_index=0),
        TestRequest(queue_pairs=8),
        TestRequest(environment={"NCCL_IB_HCA": "mlx5_1"}),
    ):
        found = environment(of_request(test, NODES))
        assert (found["NCCL_NET"], found["NCCL_IB_DISABLE"]) == ("IB", "0"), test
    tcp = of_request(TestRequest(environment={"NCCL_NET": "Socket"}), NODES)
    assert environment(tcp) == {"NCCL_DEBUG": "WARN", "NCCL_NET": "Socket"}


@pytest.mark.parametrize(
    "test",
    [
        TestRequest(environment={"LD_PRELOAD": "/x.so"}),
        TestRequest(environment={"NCCL_NET_PLUGIN": "/x.so"}),
        TestRequest(environment={"NCCL_ALGO": "$(id)"}),
        TestRequest(mca={"plm_rsh_agent": "sh"}),
        TestRequest(mca={"plm_rsh_args": "-o ProxyCommand=id"}),
        TestRequest(mca={"pml": "ob1;id"}),
        TestRequest(tool="hccl", operation="sendrecv"),
        TestRequest(operation="../x"),
        TestRequest(device="mlx5_0;id"),
        TestRequest(sizes="8B..4B x2"),
        TestRequest(data_type="fp32"),
        TestRequest(tool="hccl", data_type="float"),
        TestRequest(tool="hccl", data_type="uint8"),
        TestRequest(data_type="half;id"),
        TestRequest(reduction="id"),
        TestRequest(tool="hccl", reduction="avg"),
        TestRequest(operation="broadcast", reduction="sum"),
        TestRequest(devices_per_node=8, devices_per_process=3),
        TestRequest(tool="hccl", environment={"HCCL_ALGO": "level0:NA;id"}),
        TestRequest(tool="hccl", operation="gather"),
    ],
)
def test_what_must_not_reach_a_command_line_is_refused(test: TestRequest) -> None:
    with pytest.raises(CheckError) as refusal:
        of_request(test, NODES)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "changed", [{"nodes": ("-oProxyCommand=id",)}, {"program": "x y"}, {"sizes": (4, 2)}]
)
def test_what_the_command_line_names_is_checked_as_well(changed: dict[str, Any]) -> None:
    values: dict[str, Any] = {"backend": "nccl", "operation": "all_reduce", "nodes": NODES}
    with pytest.raises(CheckError):
        verify(Collective(**{**values, **changed}))


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (
            TestRequest(data_type="bfloat16", reduction="avg", warm_up_iterations=0),
            "all_reduce_perf -b 1G -e 1G -g 1 -d bfloat16 -o avg -n 20 -w 0 -c 1",
        ),
        (
            TestRequest(operation="reduce", sizes="8B..9KiB x3", devices_per_process=4),
            "reduce_perf -b 8 -e 5832 -f 3 -g 4 -n 20 -w 5 -c 1",
        ),
        (
            TestRequest(operation="hypercube", sizes="1MiB", iterations=100),
            "hypercube_perf -b 1M -e 1M -g 1 -n 100 -w 5 -c 1",
        ),
        (
            TestRequest(tool="hccl", operation="scatter", data_type="hif8", devices_per_node=4),
            "scatter_test -p 4 -b 1G -e 1G -d hif8 -n 20 -w 5 -c 1",
        ),
        (
            TestRequest(tool="hccl", operation="reduce", data_type="int8", reduction="max"),
            "reduce_test -p 8 -b 1G -e 1G -d int8 -o max -n 20 -w 5 -c 1",
        ),
    ],
)
def test_parameters_reach_the_tool(test: TestRequest, words: str) -> None:
    wanted = of_request(test, NODES)
    assert " ".join(tool_argv(wanted, sweeps(wanted.sizes)[0])) == words


def command(preset: str, mpi: Mpi) -> str:
    """The command line of a preset on two nodes, without what ends it in time."""
    request = checked(CheckRequest(kind="collective", preset=preset, nodes=NODES), PRESETS)
    wanted = of_request(request.test, request.nodes)
    [swept] = sweeps(wanted.sizes)
    return " ".join(argv(wanted, swept, 60, mpi=mpi))


def test_preset_of_nccl_is_what_operators_run() -> None:
    """One process per node drives its eight GPUs."""
    line = command("nccl-all-reduce-roce", "open_mpi")
    assert "--host gpu-1:1,gpu-2:1 " in line
    assert "-np 2 --bind-to none --map-by slot " in line
    mca = "--mca coll_hcoll_enable 0 --mca pml ob1 --mca btl ^openib"
    assert f"{mca} --mca btl_tcp_if_include bond0 " in line
    assert " -x NCCL_IB_GID_INDEX=3 " in line
    assert " all_reduce_perf -b 32M -e 8G -f 2 -g 8 " in line


def test_preset_of_hccl_is_what_operators_run() -> None:
    """16 processes, one per NPU; the hosts need no file on the machine that starts it."""
    line = command("hccl-all-reduce-sweep", "mpich")
    assert line.startswith("mpirun -hosts gpu-1:8,gpu-2:8 -n 16 ")
    assert " all_reduce_test -p 8 -b 8K -e 64M -f 2 -d fp32 -o sum " in line


@pytest.mark.parametrize(
    ("operation", "share", "is_read"),
    [
        ("hypercube", 0.5, True),  # of two ranks, each has half of the size itself
        ("hypercube", 0.9375, True),
        ("hypercube", 0.4, False),
        ("hypercube", 1.1, False),
        ("all_gather", 0.5, False),  # garbled
    ],
)
def test_hypercube_counts_what_the_other_ranks_have(
    operation: str, share: float, is_read: bool
) -> None:
    """Its algorithm bandwidth is not the size per time (src/hypercube.cu)."""
    half = f"{1000.0:>8.2f} {share * 1.05:>7.2f} {share * 1.05:>7.2f} {'0':>6}"
    row = f"{1 << 20:>12} {1 << 18:>13}     float    none      -1 {half} {half}\n"
    found = nccl.parse(tooloutput.nccl(row, operation))
    assert bool(found.rows) == is_read


def test_sizes_are_taken_from_an_output_that_goes_on() -> None:
    whole = tooloutput.nccl("".join(GOOD))
    cut = whole[: whole.index(GOOD[1]) + len(GOOD[1]) // 2]
    assert len(finished(WANTED, WANTED.sizes, cut)) == 1
    assert finished(WANTED, WANTED.sizes, "") == ()
    bad = tooloutput.nccl(tooloutput.nccl_row(1024, 50.0, 1.875, "3"))
    assert [report.reason for report in finished(WANTED, WANTED.sizes, bad)] == ["corruption"]


WORD = st.text(max_size=20)


@given(
    st.builds(
        dict,
        operation=WORD,
        device=WORD,
        sizes=WORD,
        environment=st.dictionaries(st.one_of(WORD, st.just("NCCL_IB_HCA")), WORD, max_size=2),
        mca=st.dictionaries(st.one_of(WORD, st.just("btl_tcp_if_include")), WORD, max_size=2),
    ),
    st.lists(WORD, max_size=2),
)
def test_no_word_of_a_client_is_more_than_a_word(fields: dict[str, Any], nodes: list[str]) -> None:
    """What is accepted has no character that a shell, mpirun or ssh would interpret."""
    try:
        wanted = of_request(TestRequest(**fields), nodes)
    except CheckError:
        return
    for word in argv(wanted, sweeps(wanted.sizes)[0], 60):
        assert re.fullmatch(r"[A-Za-z0-9 .,:=_/^@+-]*", word), word


@given(st.floats(1, 1e5))
def test_time_limit_of_mpirun_is_whole_and_not_before_the_deadline(seconds: float) -> None:
    """Open MPI takes no fraction (help-orterun.txt, `--timeout`)."""
    words = argv(WANTED, Sweep(8, 8, 1), seconds)
    limit = words[words.index("--timeout") + 1]
    assert re.fullmatch(r"\d+", limit)
    assert int(limit) - 1 < seconds <= int(limit)


def test_each_size_has_a_report() -> None:
    reports = judge(WANTED, WANTED.sizes, tooloutput.nccl("".join(GOOD)), 0)
    assert [report.rows[0].message_bytes for report in reports] == list(WANTED.sizes)
    assert all(report.outcome == "ok" and len(report.rows) == 1 for report in reports)


def test_small_sizes_that_are_rounded_down_are_taken_in_order() -> None:
    rows = "".join(tooloutput.nccl_row(0, 20.0, 0.9375) for _ in range(3))
    wanted = Collective(backend="nccl", operation="all_gather", nodes=NODES, sizes=(8, 16, 32))
    reports = judge(wanted, wanted.sizes, tooloutput.nccl(rows, "all_gather"), 0)
    assert [report.outcome for report in reports] == ["ok"] * 3


@pytest.mark.parametrize(
    ("rows", "footer", "status", "outcomes", "reason"),
    [
        (GOOD[:2], "0 OK", 0, ["ok", "ok", "failed"], "harness"),
        (GOOD[:1], "0 OK", 124, ["ok", "failed"], "harness"),
        (GOOD, "0 OK", 1, ["ok", "ok", "failed"], "harness"),
        (GOOD, "7 FAILED", 0, ["ok", "ok", "failed"], "corruption"),
        (GOOD[1:], "0 OK", 0, ["failed"], "harness"),
        (
            [GOOD[0], tooloutput.nccl_row(2048, 50.0, 1.875, "7"), GOOD[2]],
            "7 FAILED",
            1,
            ["ok", "failed"],
            "corruption",
        ),
    ],
)
def test_bad_output_ends_the_reports_with_a_failure(
    rows: list[str], footer: str, status: int, outcomes: list[str], reason: str
) -> None:
    text = tooloutput.nccl("".join(rows), footer=footer)
    reports = judge(WANTED, WANTED.sizes, text, status)
    assert [report.outcome for report in reports] == outcomes
    assert reports[-1].reason == reason


@given(st.text(max_size=300), st.integers(-10, 300))
def test_garbage_is_never_a_result(text: str, status: int) -> None:
    assert judge(WANTED, WANTED.sizes, text, status)[-1].outcome == "failed"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mpirun (Open MPI) 4.1.4\n", {"Open MPI": "4.1.4"}),
        ("HYDRA build details:\n    Version:           3.2.1\n", {"MPICH": "3.2.1"}),
        ("0: NCCL version 2.16.2+cuda11.6\n", {"nccl": "2.16.2+cuda11.6"}),
        ("# nccl-tests version 2.9 nccl-library=2804\n", {"nccl-tests": "2.9", "nccl": "2.8.4"}),
        ("nothing", {}),
    ],
)
def test_versions_are_read(text: str, found: dict[str, str]) -> None:
    assert versions(text) == found


@given(st.lists(st.binary(max_size=30), max_size=30))
def test_excerpt_keeps_whole_lines_of_both_ends(parts: list[bytes]) -> None:
    excerpt = Excerpt(head=20, tail=30)
    for part in parts:
        excerpt.add(part)
    whole = b"".join(parts)
    text = excerpt.text()
    if len(whole) <= 50:
        assert text == whole.decode("utf-8", "replace")
    else:
        assert f"[{len(whole) - 50} bytes left out]" in text
        assert len(text) < 50 + 40
