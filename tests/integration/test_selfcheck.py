"""`nodevitals selfcheck`: the tools of a node, each failing in turn; nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.loadnode import DEVICE, LoadNode
from testbed.node import PYTHON, environment, run, take_interrupts, wait_until

ALL = ("host_to_device", "device_to_host", "memory", "rdma_loopback", "collective", "dcgm")
# Keeps a tool from running for longer than a test waits.
LIMIT = ("--time-limit", "4m")


@pytest.fixture
def node(tmp_path: Path) -> LoadNode:
    """Two GPUs, one RDMA port, all tools."""
    return LoadNode(tmp_path)


def words(*kinds: str) -> list[str]:
    return [f"--kind={kind}" for kind in kinds]


def selfcheck(
    node: LoadNode, *arguments: str, **more: str
) -> tuple[int, list[dict[str, Any]], dict[str, str]]:
    done = run(
        *("selfcheck", "--json", *LIMIT, *node.options, *arguments), **node.environment, **more
    )
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    return done.returncode, document["results"], document["absent"]


def test_all_checks_of_a_good_node(node: LoadNode) -> None:
    status, results, absent = selfcheck(node, *words(*ALL))
    assert (status, absent) == (0, {}), results
    assert [(one["kind"], one.get("device"), one.get("port")) for one in results] == [
        *(("host_to_device", "0", None), ("host_to_device", "1", None)),
        *(("device_to_host", "0", None), ("device_to_host", "1", None)),
        ("memory", None, None),
        ("rdma_loopback", DEVICE, "1"),
        ("collective", None, None),
        *(("dcgm", "0", None), ("dcgm", "1", None)),
    ]
    assert {one["outcome"] for one in results} == {"ok"}
    figures = {one["kind"]: one.get("bandwidth_bytes_per_second") for one in results}
    assert figures["host_to_device"] == pytest.approx(55.5e9)
    assert figures["memory"] == pytest.approx(55.5e9, rel=1e-3)
    assert figures["rdma_loopback"] == pytest.approx(390e9 / 8)
    assert figures["collective"] == pytest.approx(55.5e9, rel=1e-2)
    assert figures["dcgm"] is None


def test_the_table_and_the_kinds_without_dcgm(node: LoadNode) -> None:
    (node.bin / "mbw").unlink()
    done = run("selfcheck", *node.options, **{**node.environment, "PATH": str(node.bin)})
    # `timeout` is not on this PATH either, so each check has a line that says so.
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["CHECK", "DEVICE", "PORT", "OUTCOME", "GB/s", "EXPECTED", "NOTE"]
    assert all("harness" in line and "timeout: No such file" in line for line in lines[1:])
    assert done.stderr == "memory is not checked: mbw is not on PATH\n"


def test_what_is_below_the_expectation_is_slow(node: LoadNode) -> None:
    expected = {"host_to_device": "480Gb/s", "device_to_host": "400Gb/s"}
    config = node.configure(expected=expected, kinds=["host_to_device", "device_to_host"])
    status, results, _ = selfcheck(node, config, "--device", "1")
    assert status == 1
    assert [(one["kind"], one["device"], one["outcome"]) for one in results] == [
        ("host_to_device", "1", "slow"),
        ("device_to_host", "1", "ok"),
    ]
    assert results[0]["expected_bytes_per_second"] == 60e9


@pytest.mark.parametrize("kind", ALL)
def test_an_absent_tool_is_no_failure(node: LoadNode, kind: str) -> None:
    """It is not offered; asked for by name, it cannot be told."""
    for tool in ("nvbandwidth", "mbw", "dcgmi", "all_reduce_perf", "ib_write_bw"):
        (node.bin / tool).unlink()
    path = {**node.environment, "PATH": "/usr/bin:/bin"}
    done = run("selfcheck", "--json", *node.options, *words(kind), **path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["results"] == []
    assert json.loads(done.stdout)["absent"][kind].endswith("is not on PATH")


TOOLS = {
    "host_to_device": "nvbandwidth",
    "memory": "mbw",
    "collective": "all_reduce_perf",
    "dcgm": "dcgmi",
}


@pytest.mark.parametrize("fault", ["exit", "killed", "flood", "cut"])
@pytest.mark.parametrize("kind", TOOLS)
def test_a_tool_that_fails_says_nothing_of_the_hardware(
    node: LoadNode, kind: str, fault: str
) -> None:
    status, results, _ = selfcheck(node, *words(kind), FAKE_FAULT=f"{TOOLS[kind]}={fault}")
    assert status == 2, results
    assert {one["outcome"] for one in results} == {"harness"}
    assert all("bandwidth_bytes_per_second" not in one and one["message"] for one in results)


@pytest.mark.parametrize(
    ("kind", "fault", "status", "outcomes"),
    [
        ("host_to_device", "na", 0, {"skipped", "ok"}),
        ("host_to_device", "waived", 2, {"skipped"}),
        ("host_to_device", "nan", 2, {"harness", "ok"}),
        ("host_to_device", "negative", 2, {"harness", "ok"}),
        ("host_to_device", "enormous", 2, {"harness", "ok"}),
        ("host_to_device", "zero", 2, {"harness", "ok"}),
        ("host_to_device", "running", 2, {"harness"}),
        ("host_to_device", "error", 2, {"harness"}),
        ("host_to_device", "mig", 2, {"harness"}),
        ("host_to_device", "corrupt", 1, {"failed"}),
        ("memory", "nan", 2, {"harness"}),
        ("memory", "enormous", 2, {"harness"}),
        ("collective", "corrupt", 1, {"failed"}),
        ("dcgm", "fail", 1, {"failed", "ok"}),
        ("dcgm", "configuration", 0, {"warning", "ok"}),
        ("dcgm", "odd", 2, {"harness", "ok"}),
        ("dcgm", "runtime_error", 2, {"harness"}),
    ],
)
def test_what_the_tool_prints(
    node: LoadNode, kind: str, fault: str, status: int, outcomes: set[str]
) -> None:
    found, results, _ = selfcheck(node, *words(kind), FAKE_FAULT=f"{TOOLS[kind]}={fault}")
    assert (found, {one["outcome"] for one in results}) == (status, outcomes), results


def test_the_npus_of_an_ascend_node(tmp_path: Path) -> None:
    node = LoadNode(tmp_path, gpus=0, npus=2)
    status, results, absent = selfcheck(node, *words("host_to_device", "dcgm"))
    assert status == 2  # dcgm was asked for
    assert [(one["device"], one["outcome"]) for one in results] == [("0", "ok"), ("1", "ok")]
    assert absent == {"dcgm": "the node has no GPU"}


def test_a_port_that_is_down_is_not_checked(node: LoadNode) -> None:
    (node.folder / f"sys/class/infiniband/{DEVICE}/ports/1/state").write_text("1: DOWN\n")
    _, results, absent = selfcheck(node, *words("rdma_loopback"))
    assert (results, absent) == ([], {"rdma_loopback": "no RDMA port is active"})


@pytest.mark.parametrize(
    ("device", "gbits", "outcome"), [("mlx5_9:1:3", "390", "harness"), (f"{DEVICE}:1:3", "0", "")]
)
def test_a_loopback_that_fails(node: LoadNode, device: str, gbits: str, outcome: str) -> None:
    """The server ends at once, or no figure is printed."""
    environment = {**node.environment, "FAKE_DEVICE": device, "FAKE_GBITS": gbits}
    done = run("selfcheck", "--json", *node.options, *words("rdma_loopback"), **environment)
    (result,) = json.loads(done.stdout)["results"]
    assert (done.returncode, result["outcome"]) == (2, outcome or "harness")


def test_a_node_in_use_is_refused_and_force_checks(node: LoadNode) -> None:
    node.start_job()
    status, results, _ = selfcheck(node, *words("memory"))
    assert (status, results[0]["outcome"]) == (2, "refused")
    assert results[0]["message"] == "accelerator_in_use"
    status, results, _ = selfcheck(node, *words("memory"), "--force")
    assert (status, results[0]["outcome"]) == (0, "ok")


def test_a_worker_of_an_agent_is_no_job(node: LoadNode) -> None:
    node.start_job(parent=77, name="python3")
    server = node.folder / "proc/77"
    server.mkdir()
    (server / "stat").write_text("77 (python3) S 1 77 77 0\n")
    (server / "fd").mkdir()
    (server / "comm").write_text("nodevitals-fork\n")
    assert selfcheck(node, *words("memory"))[0] == 0
    (server / "comm").write_text("python3\n")
    assert selfcheck(node, *words("memory"))[0] == 2


class Hanging:
    """A command whose tool hangs, ignores SIGTERM and has a child."""

    def __init__(self, node: LoadNode, *arguments: str) -> None:
        command = [PYTHON, "-m", "nodevitals", "selfcheck", "--json", *node.options, *arguments]
        more = {**node.environment, "FAKE_FAULT": "nvbandwidth=hang"}
        self.process = subprocess.Popen(
            [*command, *words("host_to_device")],
            env=environment(**more),
            stdout=subprocess.PIPE,
            preexec_fn=take_interrupts,
            text=True,
        )
        file = node.folder / "nvbandwidth.pids"
        wait_until(file.exists, what="the tool runs")
        self.pids = [int(word) for word in file.read_text().split()]

    def results(self) -> list[dict[str, Any]]:
        output, _ = self.process.communicate(timeout=300)
        found: list[dict[str, Any]] = json.loads(output)["results"]
        return found

    def nothing_is_left(self) -> None:
        wait_until(lambda: not any(map(_runs, self.pids)), what="the tool and its child end")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_job_that_starts_ends_the_tool_and_its_children(node: LoadNode) -> None:
    hanging = Hanging(node)
    node.start_job()
    results = hanging.results()
    assert {(one["outcome"], one["message"]) for one in results} == {
        ("refused", "accelerator_in_use")
    }
    hanging.nothing_is_left()


def test_a_tool_that_hangs_is_ended_at_the_time_limit(node: LoadNode) -> None:
    hanging = Hanging(node, "--time-limit", "5s")
    results = hanging.results()
    assert {(one["outcome"], one["message"]) for one in results} == {
        ("harness", "no result in time")
    }
    assert hanging.process.returncode == 2
    hanging.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_killed_leaves_nothing(node: LoadNode, number: signal.Signals) -> None:
    hanging = Hanging(node)
    hanging.process.send_signal(number)
    hanging.process.communicate(timeout=300)
    hanging.nothing_is_left()


def test_what_a_tool_leaves_is_killed(node: LoadNode) -> None:
    """A child that outlives its tool is in the tool's process group."""
    before = {one.pid for one in psutil.process_iter()}
    status, _, _ = selfcheck(node, *words("memory"), FAKE_FAULT="mbw=child")
    assert status == 0
    sleeping = [
        one.pid
        for one in psutil.process_iter(["name", "environ"])
        if one.pid not in before
        and one.info["name"] == "sleep"
        and (one.info["environ"] or {}).get("FAKE_FOLDER") == str(node.folder)
    ]
    wait_until(lambda: not any(map(_runs, sleeping)), what="the child ends")


def test_memory_that_is_short_is_left_alone(node: LoadNode) -> None:
    (node.folder / "proc/meminfo").write_text("MemAvailable:     2000000 kB\n")
    _, results, _ = selfcheck(node, *words("memory"))
    assert [one["message"] for one in results] == ["memory_short"]


def test_maintenance_keeps_also_forced_checks_away(node: LoadNode) -> None:
    file = node.folder / "maintenance"
    file.touch()
    config = node.configure(gate={"maintenance_file": str(file)})
    _, results, _ = selfcheck(node, config, *words("memory"), "--force")
    assert results[0]["message"] == "maintenance"
    assert os.path.exists(file)
