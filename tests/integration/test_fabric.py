"""Agents that test each other: gates, budgets, tokens, crashes, losses, and no process left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from testbed import programs
from testbed.growing import GrowingCounter
from testbed.loopback import DEVICE, TEST, TOKEN, Loopback
from testbed.node import Node, run, wait_until

GBITS = 390
FIGURE = GBITS * 1e9 / 8
SLOT_SECONDS = 1.5
# For tests in which no tool runs to its end.
SHORT: dict[str, Any] = {"slot": "750ms", "tests": [{**TEST, "timeout": "250ms"}]}
RUNS, SKIPPED = "nodevitals_fabric_runs_total", "nodevitals_fabric_skipped_total"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path, 2) as made:
        yield made


@pytest.fixture
def short_pair(tmp_path: Path) -> Iterator[Loopback]:
    with Loopback(tmp_path, 2, **SHORT) as made:
        yield made


def total(node: Node, family: str, **labels: str) -> float:
    """Sum a family's samples that have these labels."""
    return sum(
        value for pairs, value in node.family(family).items() if labels.items() <= set(pairs)
    )


def ok(made: Loopback) -> float:
    return sum(total(node, RUNS, outcome="ok") for node in made.nodes.values())


def skipped(made: Loopback, reason: str) -> float:
    return sum(total(node, SKIPPED, reason=reason) for node in made.nodes.values())


def failed(made: Loopback, reason: str) -> float:
    return sum(total(node, RUNS, outcome="failed", reason=reason) for node in made.nodes.values())


def job(made: Loopback, name: str, comm: str = "python3", device: str = "/dev/nvidia0") -> Path:
    """Let a process of a node have an accelerator open. Returns its folder."""
    folder = made.folder / name / "proc/4242"
    (folder / "fd").mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_text(f"4242 ({comm}) S 1 4242 4242 0 -1\n")
    (folder / "fd/7").symlink_to(device)
    return folder


def test_two_nodes_test_each_other(pair: Loopback) -> None:
    """In both directions, with the result, its cost on both sides, and a row of the history."""
    pair.start()
    wait_until(lambda: all(total(n, RUNS, outcome="ok") >= 1 for n in pair.nodes.values()), 30)
    node = pair.nodes["127.0.0.2"]
    labels = {
        "source": "127.0.0.2",
        "peer": "127.0.0.3",
        "device": DEVICE,
        "message_bytes": "65536",
    }
    assert total(node, "nodevitals_fabric_bandwidth_bytes_per_second", **labels) == FIGURE
    # Its own test, and the peer's that it served, which its next run reports.
    wait_until(lambda: total(node, "nodevitals_fabric_test_bytes_total") >= 2 * 65_536_000)
    assert total(node, "nodevitals_fabric_test_bytes_total") % 65_536_000 == 0
    assert total(node, "nodevitals_fabric_test_seconds_total") > 0
    assert failed(pair, "harness") == failed(pair, "corruption") == 0
    wait_until(lambda: f"write_bw {DEVICE} 127.0.0.2 127.0.0.3" in history(node))


def history(node: Node) -> str:
    return run("history", "--state-directory", str(node.folder / "state")).stdout


def test_unreadable_lists_keep_the_last_good_ones(tmp_path: Path) -> None:
    """Half a list would give another plan, and no list no test."""
    file = tmp_path / "peers.yaml"
    with Loopback(tmp_path, 2, static=[], file_sd=[str(file)]) as made:
        file.write_text(json.dumps([{"targets": made.addresses()}]))
        made.start()
        wait_until(lambda: ok(made) >= 1, 30)
        file.write_text('[{"targets": ["127.0')
        family = "nodevitals_fabric_lists_read"
        wait_until(lambda: all(node.value(family) == 0 for node in made.nodes.values()), 30)
        before = ok(made)
        wait_until(lambda: ok(made) >= before + 2, 30, "tests by the last good lists")
        success = [n.value("nodevitals_probe_success", probe="fabric") for n in made.nodes.values()]
        assert success == [1, 1]


def test_large_messages_are_expected_to_fill_the_link(tmp_path: Path) -> None:
    """0.9 of the port's rate from 1 MiB on; unknown for smaller messages."""
    tests = [{**TEST, "message_bytes": size, "timeout": "250ms"} for size in (65536, 1 << 20)]
    with Loopback(tmp_path, 2, tests=tests) as made:
        port = made.folder / f"127.0.0.2/sys/class/infiniband/{DEVICE}/ports/1"
        port.mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        node = made.nodes["127.0.0.2"]
        with node:
            family = "nodevitals_fabric_bandwidth_expected_bytes_per_second"
            wait_until(lambda: node.value(family) == 45e9)
            assert node.value(family, message_bytes=str(1 << 20)) == 45e9


def test_latency_with_the_current_gid_index(tmp_path: Path) -> None:
    """On RoCE the index of the GID that the port has at that moment."""
    test = {**TEST, "operation": "send_lat", "message_bytes": 8, "timeout": "500ms"}
    with Loopback(tmp_path, 2, tests=[test]) as made:
        for name, index in zip(made.names, (3, 5), strict=True):
            port = made.folder / name / f"sys/class/infiniband/{DEVICE}/ports/1"
            for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
                (port / folder).mkdir(parents=True)
            (port / "link_layer").write_text("Ethernet\n")
            (port / f"gids/{index}").write_text("0000:0000:0000:0000:0000:ffff:c000:0207\n")
            (port / f"gid_attrs/types/{index}").write_text("RoCE v2\n")
            (port / f"gid_attrs/ndevs/{index}").write_text("eth0\n")
            made.nodes[name].environment["FAKE_DEVICE"] = f"{DEVICE}:1:{index}"
        made.start()
        wait_until(lambda: ok(made) >= 1, 30, "a latency")
        family = "nodevitals_fabric_latency_seconds"
        medians = [total(node, family, statistic="median") for node in made.nodes.values()]
        assert max(medians) == pytest.approx(1.47e-6)


@pytest.mark.parametrize("both", [True, False])
def test_no_test_runs_while_an_accelerator_is_in_use(short_pair: Loopback, both: bool) -> None:
    """On either side. Monitoring programs do not count."""
    pair = short_pair
    job(pair, "127.0.0.3")
    if both:
        job(pair, "127.0.0.2", device="/dev/davinci5")
    else:
        job(pair, "127.0.0.2", comm="nv-hostengine")
    pair.start()
    wait_until(lambda: skipped(pair, "accelerator_in_use") >= 1, 30)
    if not both:
        wait_until(lambda: skipped(pair, "peer_busy") >= 1, 30)
    assert ok(pair) == 0
    assert total(pair.nodes["127.0.0.2"], "nodevitals_fabric_test_bytes_total") == 0


def test_starting_job_stops_the_test(tmp_path: Path) -> None:
    """Within a second on an idle machine; here, before it has ended: it would have succeeded."""
    with Loopback(tmp_path, 2, slot="18s", tests=[{**TEST, "timeout": "6s"}]) as made:
        for node in made.nodes.values():
            node.environment["FAKE_SECONDS"] = "5.5"
        made.start()
        wait_until(lambda: len(made.tool_processes()) == 2, 60, "a test")
        for name in made.names:
            job(made, name)
        wait_until(lambda: not made.tool_processes(), what="the tools' end")
        wait_until(lambda: skipped(made, "accelerator_in_use") >= 1)
        assert ok(made) == 0


@pytest.mark.parametrize(
    ("gate", "reason"),
    [
        ({"job_file": "{folder}/job"}, "job_marker"),
        ({"maintenance_file": "{folder}/job"}, "maintenance"),
        ({"job_command": ["test", "-e", "{folder}/job"]}, "job_marker"),
        ({"job_command": ["sleep", "60"]}, "job_marker"),  # unknown: then no test
        ({"job_command": ["sh", "-c", "exit 3"]}, "job_marker"),
    ],
)
def test_site_keeps_tests_away(tmp_path: Path, gate: dict[str, object], reason: str) -> None:
    settings = json.loads(json.dumps(gate).replace("{folder}", str(tmp_path)))
    (tmp_path / "job").touch()
    with Loopback(tmp_path, 2, gate=settings) as made:
        made.start()
        wait_until(lambda: skipped(made, reason) >= 1, 30)
        assert ok(made) == 0
        (tmp_path / "job").unlink()
        if "{folder}" in str(gate):
            wait_until(lambda: ok(made) >= 1, 30, "a test once the job is gone")


def test_no_test_runs_where_processes_cannot_be_seen(short_pair: Loopback) -> None:
    """As in a container without hostPID: a process that is not seen may be a job."""
    pair = short_pair
    (pair.folder / "127.0.0.2/proc/2/stat").unlink()
    pair.start()
    wait_until(lambda: skipped(pair, "processes_unseen") >= 1, 30)
    wait_until(lambda: skipped(pair, "peer_busy") >= 1, 30)
    assert ok(pair) == 0


def test_no_test_runs_on_a_busy_link(pair: Loopback, tmp_path: Path) -> None:
    """A tenth of 400 Gb/s is 5 GB/s; a count is four bytes."""
    counters = []
    for name in pair.names:
        port = pair.folder / name / f"sys/class/infiniband/{DEVICE}/ports/1"
        (port / "counters").mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "counters/port_rcv_data").write_text("0\n")
        counters.append(port / "counters/port_xmit_data")
    with GrowingCounter(tmp_path, 8e9 / 4) as growing:
        for file in counters:
            file.symlink_to(growing.path)
        pair.start()
        wait_until(lambda: skipped(pair, "link_busy") >= 2, 30)
        assert ok(pair) == 0
        for file in counters:
            draft = file.with_name("draft")
            draft.write_text("0\n")
            draft.replace(file)
        wait_until(lambda: ok(pair) >= 1, 30, "a test on a quiet link")


def test_spent_budget_stays_spent_after_a_restart(tmp_path: Path) -> None:
    budget = {"seconds_per_hour": 3600, "bytes_per_hour": 2 * 65_536_000}
    # A test that takes too long, as on a busy machine, would be charged as well.
    tests = [{**TEST, "timeout": "2s"}]
    with Loopback(tmp_path, 2, slot="6s", tests=tests, budget=budget) as made:
        made.start()
        wait_until(lambda: ok(made) == 2, what="a test of each node")
        wait_until(lambda: skipped(made, "budget") >= 1, 40)
        assert ok(made) == 2
        for node in made.nodes.values():
            node.end()
            node.start()
        before = skipped(made, "budget")
        wait_until(lambda: skipped(made, "budget") >= before + 2, 40)
        assert ok(made) == 2


def test_request_without_the_token_is_rejected(short_pair: Loopback) -> None:
    pair = short_pair
    (pair.folder / "127.0.0.3/token").write_text("another token, as long\n")
    pair.start()
    wait_until(lambda: failed(pair, "harness") >= 2, 30)
    assert ok(pair) == 0
    assert not pair.tool_processes()
    url = f"https://127.0.0.2:{pair.proxies['127.0.0.2'].port}/fabric/v1/tests"
    tls = credentials(pair, "127.0.0.3")
    answers = [
        requests.post(url, headers=headers, data=b"{}", timeout=60, **tls).status_code
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Bearer {TOKEN}"})
    ]
    assert answers == [401, 401, 400]


def credentials(made: Loopback, name: str) -> dict[str, Any]:
    """The options with which requests presents a node's certificate."""
    folder = made.folder / name
    files = (str(folder / "cert.pem"), str(folder / "key.pem"))
    return {"verify": str(made.folder / "ca.pem"), "cert": files}


def test_unplanned_test_is_refused(pair: Loopback) -> None:
    pair.start()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"https://127.0.0.2:{pair.proxies['127.0.0.2'].port}/fabric/v1/tests"
    key = f"perftest-write_bw-{DEVICE}-1-65536-1000-1"

    def answered(client: str = "127.0.0.3", slots_ago: int = 0, **changed: object) -> str:
        slot = int(time.time() // SLOT_SECONDS) - slots_ago
        body = {"id": "x", "source": client, "slot": slot, "test": key, **changed}
        tls = credentials(pair, client)
        answer = requests.post(url, headers=headers, json=body, timeout=60, **tls)
        assert answer.status_code == 409, answer.text
        found = str(answer.json()["refusal"])
        return "" if found == "busy" else found  # a test of the plan runs

    def refusal(**changed: Any) -> str:
        return str(wait_until(partial(answered, **changed)))

    wait_until(lambda: pair.nodes["127.0.0.2"].value("nodevitals_fabric_members") == 2)
    assert refusal(test="perftest-other") == "test_differs"
    assert refusal(slots_ago=100) == "plan_differs"
    assert refusal(client="127.0.0.2") == "plan_differs"
    pair.issue("127.0.0.9")
    assert refusal(client="127.0.0.9") == "plan_differs"


@pytest.mark.parametrize("missing", ["token_file", "tls", "tests", "static"])
def test_missing_setting_is_a_configuration_error(tmp_path: Path, missing: str) -> None:
    with Loopback(tmp_path, 2) as made:
        config = made.config("127.0.0.2")
        del config["probes"]["fabric"][missing]
        (tmp_path / "config.yaml").write_text(json.dumps(config))
        done = run("check-config", str(tmp_path / "config.yaml"))
        assert done.returncode == 1
        assert f"probes.fabric.{missing}: " in done.stderr


def test_missing_tool_is_a_failure_with_its_reason(short_pair: Loopback) -> None:
    pair = short_pair
    for program in pair.tools.iterdir():
        program.unlink()
    pair.start()
    wait_until(lambda: failed(pair, "tool_missing") >= 1, 30)


def workers(node: Node) -> list[psutil.Process]:
    return psutil.Process(node.process.pid).children(recursive=True)


def kill_one(made: Loopback, node: Node) -> None:
    """Kill an agent, a worker or a tool, or stop a tool, at whatever step it is."""
    kind = random.choice(("agent", "worker", "tool", "stopped tool"))
    tools = made.tool_processes()
    if kind == "agent":
        node.kill()
        node.start()
    elif kind == "worker":
        children = workers(node)
        if children:
            _send(random.choice(children), signal.SIGKILL)
    elif tools:
        _send(random.choice(tools), signal.SIGKILL if kind == "tool" else signal.SIGSTOP)


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def chaos(
    folder: Path, slots: int, slot_seconds: float, kill_seconds: float = 1.0
) -> dict[str, float]:
    """Four agents, one with another token, clocks up to 5 s apart, 30 % of connections lost, and a
    process killed every `kill_seconds`. When they have ended, no tool and no port is left.
    """
    tests = [{**TEST, "timeout": f"{slot_seconds / 4:g}s"}]
    with Loopback(folder, 4, slot=f"{slot_seconds:g}s", tests=tests) as made:
        (folder / "127.0.0.5/token").write_text("another token, as long\n")
        for name, skew in zip(made.names, ("0", "5", "-5", "2"), strict=True):
            made.nodes[name].environment["SKEW_SECONDS"] = skew
        made.start()
        for proxy in made.proxies.values():
            proxy.lost_share = 0.3
        counts = {"ok": 0.0, "wrong": 0.0, "kills": 0.0}
        end = time.monotonic() + slots * slot_seconds
        while time.monotonic() < end:
            time.sleep(kill_seconds)
            kill_one(made, made.nodes[random.choice(made.names)])
            counts["kills"] += 1
            for node in made.nodes.values():
                counts["wrong"] += wrong(node)
        for proxy in made.proxies.values():
            proxy.lost_share = 0.0
        before = ok(made)
        wait_until(lambda: ok(made) > before, 60, "a test after the chaos")
        counts["ok"] = ok(made)
        for reason in ("unreachable", "timeout", "harness"):
            counts[reason] = failed(made, reason)
        for node in made.nodes.values():
            node.end()
        wait_until(lambda: not made.tool_processes(), 10, "the end of all tools")
        assert made.tool_ports_taken() == []
        return counts


def wrong(node: Node) -> int:
    """Number of bandwidths other than that of the tool."""
    try:
        samples = node.samples()
    except requests.RequestException:
        return 0
    return sum(
        value != FIGURE
        for (name, _), value in samples.items()
        if name == "nodevitals_fabric_bandwidth_bytes_per_second"
    )


def test_chaos_leaves_nothing_behind(tmp_path: Path) -> None:
    """Four slots here; `make proof` has a thousand."""
    counts = chaos(tmp_path, 4, 1.5, kill_seconds=0.3)
    assert counts["wrong"] == 0
    assert counts["ok"] >= 1
    assert not [pid for pid in psutil.pids() if _orphan(pid, tmp_path)]


def _orphan(pid: int, folder: Path) -> bool:
    try:
        return str(folder) in " ".join(psutil.Process(pid).cmdline()) and pid != os.getpid()
    except psutil.Error:
        return False


def test_fake_tools_check_their_arguments(tmp_path: Path) -> None:
    tools = programs.install(tmp_path, "perftools", ["ib_write_bw"])
    command = [str(tools / "ib_write_bw"), "-d", DEVICE, "-p", "17999", "-s", "64", "-n", "5", "-F"]
    environment = {**os.environ, "FAKE_DEVICE": f"{DEVICE}:1:"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert b"required: -i" in done.stderr
