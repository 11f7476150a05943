"""`nodevitals fabric check`: every pair of some nodes once, by ssh; it leaves no process behind."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.ssh.remote import parse_gids
from testbed import perftools, programs
from testbed.node import PYTHON, environment, wait_until
from testbed.ssh import Nodes

DEVICE = "mlx5_0"
NAMES = [f"127.0.0.{number}" for number in range(2, 6)]
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """Four nodes, each with another GID index, all with the same speed and a port of 400 Gb/s."""
    made = Nodes(tmp_path / "nodes")
    tools = programs.install(tmp_path / "tools", "perftools", perftools.PROGRAMS)
    for index, name in enumerate(NAMES, 3):
        settings = {"FAKE_DEVICE": f"{DEVICE}:1:{index}", "PATH": f"{tools}:{os.environ['PATH']}"}
        folder = made.add(name, **settings)
        port = folder / f"sys/class/infiniband/{DEVICE}/ports/1"
        for part in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
            (port / part).mkdir(parents=True)
        (port / f"gids/{index}").write_text("0000:0000:0000:0000:0000:ffff:c000:0207\n")
        (port / f"gid_attrs/types/{index}").write_text("RoCE v2\n")
        (port / f"gid_attrs/ndevs/{index}").write_text("eth0\n")
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port.parents[1] / "node_desc").write_text(f"{name} {DEVICE}\n")
        (port.parents[1] / "device").symlink_to("../../../0000:18:00.0")
        (folder / GOVERNOR).parent.mkdir(parents=True)
        (folder / GOVERNOR).write_text("powersave\n")
    return made


def change(nodes: Nodes, name: str, **more: str) -> None:
    with (nodes.folder / name / "environment").open("a") as file:
        file.writelines(f"{key}={value}\n" for key, value in more.items())


def without_ports(nodes: Nodes) -> None:
    """As a virtual device, which has no port of its own."""
    for name in NAMES:
        (nodes.folder / name / f"sys/class/infiniband/{DEVICE}/device").unlink()


def start(nodes: Nodes, *arguments: str) -> subprocess.Popen[str]:
    command = [PYTHON, "-m", "nodevitals", "fabric", "check", "--device", DEVICE]
    path = f"{nodes.folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        [*command, "--timeout", "10", *arguments],
        env=environment(PATH=path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(nodes: Nodes, *arguments: str) -> tuple[int, str, str]:
    process = start(nodes, *arguments)
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


def verdict(output: str) -> Any:
    """The verdict of the check that `--json` has printed."""
    return json.loads(output)["check"]["verdict"]


def test_every_pair_is_tested_in_both_directions(nodes: Nodes) -> None:
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES), "--operation", "write")
    assert (status, errors) == (0, ""), output
    assert output.count("390.00") == 12  # six pairs, in both directions
    assert output.endswith("ok: no fault found\n")
    assert all((nodes.folder / name / GOVERNOR).read_text() == "powersave\n" for name in NAMES)


def test_slow_node_is_one_verdict(nodes: Nodes) -> None:
    change(nodes, NAMES[3], FAKE_GBITS="190")
    status, output, _ = check(nodes, "--nodes", ",".join(NAMES), "--json")
    assert status == 1
    assert verdict(output)["message"] == f"{NAMES[3]}: 49 % of the median"


def test_all_pairs_may_be_below_the_expected_rate(nodes: Nodes) -> None:
    status, output, _ = check(
        nodes, "--nodes", ",".join(NAMES[:2]), "--expected", "780Gb/s", "--csv"
    )
    assert status == 1
    rows = list(csv.DictReader(output.splitlines()))
    assert [(row["nodes"], row["device"]) for row in rows[:2]] == [
        ("127.0.0.2 127.0.0.3", DEVICE),
        ("127.0.0.3 127.0.0.2", DEVICE),
    ]
    assert {row["bandwidth_bytes_per_second"] for row in rows} == {"48750000000.0"}


def test_unreachable_node_is_reported_and_the_others_are_tested(nodes: Nodes) -> None:
    names = [*NAMES[:2], "127.0.0.99"]
    status, output, errors = check(nodes, "--nodes", ",".join(names))
    assert status == 2
    assert errors == "127.0.0.99: ssh: ssh: connect to host 127.0.0.99 port 22: No route to host\n"
    assert output.count("390.00") == 2


def test_node_in_use_is_not_tested(nodes: Nodes) -> None:
    process = nodes.folder / NAMES[1] / "proc/4242"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("python3\n")
    (process / "fd/7").symlink_to("/dev/nvidia0")
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES[:3]))
    assert (status, output) == (2, "")
    assert errors == f"{NAMES[1]} is in use by python3; --force tests all the same\n"
    (process / "comm").write_text("nv-hostengine\n")  # a monitoring program
    assert check(nodes, "--nodes", ",".join(NAMES[:3]))[0] == 0


def test_node_with_hidden_processes_is_not_tested(nodes: Nodes) -> None:
    """As for a user without access to the processes of other users."""
    (nodes.folder / NAMES[1] / "proc/1/fd").rmdir()
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES[:2]))
    assert (status, output) == (2, "")
    assert errors.startswith(f"{NAMES[1]} may be in use: its processes cannot be seen")


def test_failures_are_reported_with_their_reasons(nodes: Nodes, tmp_path: Path) -> None:
    change(nodes, NAMES[1], FAKE_DEVICE="mlx5_9:1:4")
    status, output, _ = check(nodes, "--nodes", ",".join(NAMES[:2]))
    assert status == 1
    assert "no_device" in output
    change(nodes, NAMES[1], PATH="/usr/bin:/bin")
    status, output, _ = check(nodes, "--nodes", ",".join(NAMES[:2]))
    assert status == 2
    assert "tool_missing" in output


def test_slow_node_counts_beside_a_failure_of_the_test(nodes: Nodes) -> None:
    change(nodes, NAMES[3], FAKE_GBITS="190")
    status, output, _ = check(nodes, "--nodes", ",".join([*NAMES, "127.0.0.99"]))
    assert status == 1
    assert "No route to host" in output


def test_a_pair_that_does_not_end_in_its_time_is_slow(nodes: Nodes) -> None:
    for name in NAMES[:2]:
        change(nodes, name, FAKE_SECONDS="30")
    done = check(nodes, "--nodes", ",".join(NAMES[:2]), "--timeout", "4", "--json")
    assert done[0] == 1, done
    (found,) = verdict(done[1])["findings"]
    assert (found["reason"], found["message"]) == (
        "threshold",
        "timeout: still transferring after 4 s",
    )


def test_a_tool_that_never_connects_says_nothing_about_the_hardware(nodes: Nodes) -> None:
    for name in NAMES[:2]:
        change(nodes, name, FAKE_DELAY="30")
    done = check(nodes, "--nodes", ",".join(NAMES[:2]), "--timeout", "2", "--json")
    assert done[0] == 2, done
    assert verdict(done[1])["reason"] == "harness"


@pytest.mark.parametrize("count", [2, 4])
def test_nodes_that_are_equally_slow_are_not_well(nodes: Nodes, count: int) -> None:
    """Partners that are all slow agree with each other."""
    for name in NAMES[:count]:
        change(nodes, name, FAKE_GBITS="5")
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES[:count]), "--sizes", "64KiB")
    assert (status, errors) == (2, ""), output
    assert "reached 5 of 400 Gb/s, 1 %; no reference: give --expected" in output
    assert "--sizes 1MiB" in output


def test_pairs_that_are_alike_need_a_reference(nodes: Nodes) -> None:
    """Ports that promise no rate are none; a rate that is expected is."""
    without_ports(nodes)
    names = ",".join(NAMES)
    status, output, _ = check(nodes, "--nodes", names, "--json")
    found = verdict(output)
    assert (status, found["outcome"], found["reason"]) == (2, "unknown", "threshold")
    assert "reached 390 Gb/s; no reference: give --expected" in found["message"]
    status, output, _ = check(nodes, "--nodes", names, "--expected", "380Gb/s")
    assert (status, "ok: no fault found" in output) == (0, True)


@pytest.mark.parametrize("count", [2, 4])
def test_far_below_the_rate_of_the_port_is_bad_after_a_repetition(nodes: Nodes, count: int) -> None:
    for name in NAMES[:count]:
        change(nodes, name, FAKE_GBITS="5")
    status, output, _ = check(nodes, "--nodes", ",".join(NAMES[:count]), "--json")
    found = verdict(output)
    assert (status, found["outcome"]) == (1, "bad")
    (finding,) = found["findings"]
    assert finding["reason"] == "hardware"
    assert "reached 5 of 400 Gb/s, 1 %, also when it was repeated" in finding["message"]
    # Few are repeated twice, many once.
    assert len(json.loads(output)["results"]) == {2: 3 * 2, 4: 2 * 12}[count]


def test_soft_roce_promises_no_rate(nodes: Nodes) -> None:
    for name in NAMES[:2]:
        change(nodes, name, FAKE_GBITS="5")
        (nodes.folder / name / f"sys/class/infiniband/{DEVICE}/node_desc").write_text("rxe\n")
    status, output, _ = check(nodes, "--nodes", ",".join(NAMES[:2]), "--json")
    assert (status, len(json.loads(output)["results"])) == (2, 2)
    assert "reached 5 Gb/s; no reference" in verdict(output)["message"]


def test_governors_are_restored_after_a_crash(nodes: Nodes) -> None:
    for name in NAMES[:2]:
        change(nodes, name, FAKE_SECONDS="8")
    process = start(nodes, "--nodes", ",".join(NAMES[:2]))
    files = [nodes.folder / name / GOVERNOR for name in NAMES[:2]]
    wait_until(lambda: all(file.read_text() == "performance\n" for file in files), 30)
    process.kill()
    process.communicate(timeout=300)
    assert files[0].read_text() == "performance\n"
    # The tools end by themselves; the next check restores what the crashed one had saved.
    for name in NAMES[:2]:
        change(nodes, name, FAKE_SECONDS="0.05")
    assert check(nodes, "--nodes", ",".join(NAMES[:2]))[0] == 0
    assert [file.read_text() for file in files] == ["powersave\n"] * 2
    assert not list(nodes.folder.glob("*/run/nodevitals-*"))


def test_governors_are_restored_after_sigterm(nodes: Nodes) -> None:
    for name in NAMES[:2]:
        change(nodes, name, FAKE_SECONDS="2")
    process = start(nodes, "--nodes", ",".join(NAMES[:2]))
    files = [nodes.folder / name / GOVERNOR for name in NAMES[:2]]
    wait_until(lambda: all(file.read_text() == "performance\n" for file in files), 30)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert [file.read_text() for file in files] == ["powersave\n"] * 2


def test_pool_is_the_nodes_with_this_label(nodes: Nodes, tmp_path: Path) -> None:
    static = [
        {"targets": NAMES[:2], "labels": {"pool": "train"}},
        {"targets": NAMES[2:], "labels": {"pool": "infer"}},
    ]
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"probes": {"fabric": {"static": static}}}))
    status, output, _ = check(nodes, "--pool", "train", "--config.file", str(config))
    assert (status, output.count("390.00")) == (0, 2)
    status, _, errors = check(nodes, "--pool", "none", "--config.file", str(config))
    assert (status, errors) == (2, "a pair takes two nodes; there are: none\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("--nodes", "a,b", "--operation", "write_bx"),
            "perftest has no 'write_bx': choose",
        ),
        (("--nodes", "a"), "a pair takes two nodes; there are: a"),
        (("--nodes", "a,-oProxyCommand=x"), "'-oProxyCommand=x' is no node"),
        (("--nodes", "a,b", "--expected", "fast"), "--expected: 'fast' is not a rate"),
    ],
)
def test_wrong_arguments_are_reported(
    nodes: Nodes, arguments: tuple[str, ...], problem: str
) -> None:
    status, _, errors = check(nodes, *arguments)
    assert status == 2
    assert problem in errors


def test_gid_table_of_a_port() -> None:
    text = (
        "gids/0:fe80:0000:0000:0000:0000:0000:0000:0001\n"
        "gids/3:0000:0000:0000:0000:0000:ffff:c000:0207\n"
        "gids/9:0000:0000:0000:0000:0000:0000:0000:0000\n"
        "gid_attrs/types/0:RoCE v2\ngid_attrs/types/3:RoCE v2\ngid_attrs/ndevs/3:eth0\n"
    )
    assert [(gid.index, gid.interface) for gid in parse_gids(text)] == [(0, ""), (3, "eth0")]
    assert parse_gids("grep: no such file\n") == []


def test_every_size_of_a_sweep_is_tested_with_every_parameter(nodes: Nodes) -> None:
    """The tools of the test bed end where an argument is not one of theirs."""
    for name in NAMES[:2]:
        change(nodes, name, FAKE_DEVICE=f"{DEVICE}:1:9")
        slot = nodes.folder / name / "sys/0000:18:00.0"
        slot.mkdir()
        (slot / "local_cpulist").write_text("0\n")
    sweep = ("--sizes", "64KiB..1MiB x4", "--queue-pairs", "8", "--gid-index", "9")
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES[:2]), *sweep, "--json")
    assert (status, errors) == (0, ""), output
    for result in json.loads(output)["results"]:
        rows = [row for report in result["reports"] for row in report["rows"]]
        assert [row["message_bytes"] for row in rows] == [65536, 262144, 1048576]
        assert all(command.count("taskset -c 0 ib_write_bw") == 2 for command in result["commands"])
        assert all("-q 8" in command for command in result["commands"])


def test_all_devices_and_a_latency_are_one_check(nodes: Nodes) -> None:
    """Rail to rail: a slow device of one node is named, with what else is well."""
    for number, name in enumerate(NAMES):
        gid = f":1:{number + 3}"
        change(nodes, name, FAKE_DEVICE=f"{DEVICE}{gid},mlx5_1{gid}")
        folder = nodes.folder / name / "sys/class/infiniband"
        (folder / DEVICE / "ports/1/state").write_text("4: ACTIVE\n")
        shutil.copytree(folder / DEVICE, folder / "mlx5_1", symlinks=True)
    change(nodes, NAMES[2], FAKE_GBITS_mlx5_1="190")
    arguments = ("--nodes", ",".join(NAMES), "--device", "all", "--operation", "write_bw,read_lat")
    status, output, errors = check(nodes, *arguments)
    assert (status, errors) == (1, ""), output
    assert "bad: 127.0.0.4: 49 % of the median (write_bw, mlx5_1)" in output
    lines = [line.split() for line in output.splitlines()]
    assert lines[0] == ["write_bw", "Gb/s", "mlx5_0", "mlx5_1"]
    assert ["127.0.0.4", "390.00", "190.00"] in lines
    assert ["read_lat", "us", "mlx5_0", "mlx5_1"] in lines


@pytest.mark.parametrize("slow", [NAMES[2:3], NAMES])
def test_a_latency_ten_times_as_long_is_named(nodes: Nodes, slow: list[str]) -> None:
    """Of one node by its partners, of all nodes by what their link layer takes at most."""
    for name in slow:
        change(nodes, name, FAKE_LATENCY="14.7" if len(slow) == 1 else "147")
    arguments = ("--nodes", ",".join(NAMES), "--operation", "send_lat", "--rounds", "3", "--json")
    status, output, _ = check(nodes, *arguments)
    found = verdict(output)
    assert (status, found["outcome"]) == (1, "bad"), found
    if len(slow) == 1:
        assert found["message"] == "127.0.0.4: 10.0 times the median"
    else:
        assert "reached a latency of 147 us" in found["message"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--sizes", "8..4"), "--sizes: "),
        (("--seconds", "5", "--iterations", "5"), "--seconds: either iterations or seconds"),
        (("--seconds", "30"), "--timeout: is not over the duration"),
        (("--device", "mlx5_0;id"), "--device: 'mlx5_0;id' is no device"),
        (("--queue-pairs", "65"), "Expected `int` <= 64"),
        (("--operation", "send_lat", "--seconds", "3"), "--seconds: a latency test counts"),
        (("--operation", "send_lat", "--queue-pairs", "2"), "--queue-pairs: a latency test has"),
        (("--gid-index", "65"), "--gid-index: perftest has at most 64"),
    ],
)
def test_parameters_that_do_not_fit_are_one_line(
    nodes: Nodes, arguments: tuple[str, ...], problem: str
) -> None:
    status, output, errors = check(nodes, "--nodes", ",".join(NAMES[:2]), *arguments)
    assert (status, output) == (2, "")
    assert errors.startswith(problem)
    assert len(errors.splitlines()) == 1
