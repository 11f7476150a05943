"""Preflight on a real agent: a fit node passes, and each defect is refused with a line that names
it, together with those before it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import programs
from testbed.faultyfs import FaultyFileSystem
from testbed.fitnode import DEFECTS, Defect, FitNode
from testbed.node import run, wait_until
from testbed.standin import stand_in


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FitNode]:
    with FitNode(tmp_path_factory.mktemp("fit")) as fit:
        yield fit


def test_a_fit_node_passes(node: FitNode) -> None:
    """It comes first: the defects stay."""
    ended = node.preflight("--path", str(node.mount), "--write", "--json")
    assert ended.returncode == 0, ended.stdout
    states = {(one["check"], one["state"]) for one in json.loads(ended.stdout)}
    parts = ("probe", "accelerators", "nvlink", "rdma", "network", "mounts", "node", "profile")
    assert {(part, "ok") for part in (*parts, "left over", "paths")} == states


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.name)
def test_a_defect_is_refused_with_a_line_that_names_it(node: FitNode, defect: Defect) -> None:
    assert defect.line not in node.preflight().stdout, "before it"
    defect.put(node)

    def refused() -> bool:
        ended = node.preflight()
        lines = [line for line in ended.stdout.splitlines() if defect.line in line]
        return ended.returncode == 1 and len(lines) == 1

    wait_until(refused, 40, defect.line)


def test_a_driver_that_hangs_is_unknown_within_the_limit(node: FitNode) -> None:
    """The last defect of this node."""
    node.machine.hang()
    hung = wait_until(
        lambda: (text := node.preflight("--timeout", "3s").stdout) and "probe" in text and text,
        40,
    )
    wait_until(
        lambda: any(
            line.split()[:3] == ["probe", "unknown", "nvidia:"]
            for line in node.preflight("--timeout", "3s").stdout.splitlines()
        ),
        40,
        hung,
    )


def test_without_an_agent_nothing_is_known() -> None:
    ended = run("preflight", "--url", "http://127.0.0.1:1")
    assert ended.returncode == 2
    assert "Connection refused" in ended.stdout


def test_an_agent_that_never_answers_costs_the_limit_only(tmp_path: Path) -> None:
    """The command ends by itself, whatever hangs: the agent, Prometheus, a path, a peer."""
    server = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with server, FaultyFileSystem(tmp_path) as files:
        files.fault("hang")
        ended = run(
            *("preflight", "--url", url, "--prometheus", url, "--timeout", "2s"),
            *("--path", str(tmp_path / "mount"), "--nodes", "192.0.2.1"),
        )
        files.fault("none")
    assert ended.returncode in (1, 2)
    assert "does not answer" in ended.stdout
    assert "no complete answer" in ended.stdout


ALERTS = [
    {"labels": {"alertname": "RdmaPortDown", "severity": "critical", "instance": "gpu-7:9855"},
     "annotations": {"summary": "Port down on gpu-7", "action": "Check the cable."},
     "state": "firing"},
    {"labels": {"alertname": "Other", "severity": "critical", "instance": "gpu-70:9855"},
     "state": "firing"},
    {"labels": {"alertname": "Pending", "severity": "critical", "instance": "gpu-7"},
     "state": "pending"},
    {"labels": {"alertname": "Info", "severity": "info", "instance": "gpu-7"}, "state": "firing"},
    {"labels": {"alertname": "Drill", "severity": "critical", "instance": "gpu-7", "drill": "true"},
     "state": "firing"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "lines"),
    [("gpu-7", ["RdmaPortDown: Port down on gpu-7"]), ("gpu-7.example.org", ["RdmaPortDown"]),
     ("gpu-70", ["Other:"]), ("gpu-8", ["none of this node among 5"])],
)  # fmt: skip
def test_alerts_of_this_node_refuse(name: str, lines: list[str]) -> None:
    body = json.dumps({"status": "success", "data": {"alerts": ALERTS}})
    with stand_in({"/api/v1/alerts": body.encode()}) as prometheus:
        url = ("--url", "http://127.0.0.1:1", "--prometheus", prometheus.url)
        ended = run("preflight", *url, "--node", name)
    shown = [line for line in ended.stdout.splitlines() if line.startswith("alerts")]
    assert len(shown) == len(lines)
    assert all(line in one for line, one in zip(lines, shown))


def ssh(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    programs.install(folder / "bin", "peerssh", ["ssh"])
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    url = ("--url", "http://127.0.0.1:1", "--timeout", "8s")
    return run("preflight", *url, "--nodes", ",".join(names), "--ssh", PATH=path)


def test_peers_are_logged_in_to(tmp_path: Path) -> None:
    names = ("good", "denied", "changed", "down", "hang", "garbage", "late")
    shown = [one for one in ssh(tmp_path, *names).stdout.splitlines() if one.startswith("peers")]
    wanted = {
        "denied: ssh: user@denied: Permission denied",
        "changed: ssh: Host key verification failed",
        "down: ssh: ssh: connect to host down",
        "hang: ",
        "clocks differ from this node: late by",
    }
    assert len(shown) == len(wanted)
    for text in wanted:
        assert any(text in line for line in shown), shown


def test_good_peers_are_one_line(tmp_path: Path) -> None:
    shown = ssh(tmp_path, "good", "other").stdout
    assert "2 reached by ssh, clocks agree" in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("--deep",),
        ("--timeout", "soon"),
        ("--timeout", "100ms"),
        ("--nodes", "a[1-"),
        ("--nodes=-oProxyCommand=x",),
        ("--nodes", "@/nonexistent"),
        ("--nodes", "gpu-[1-99999]"),
        ("--url", "localhost"),
    ],
)
def test_wrong_usage_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    ended = run("preflight", *arguments)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout == ""
