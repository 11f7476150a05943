"""Preflight on a real agent: a fit node passes, and each defect is refused with a line that names
it, together with those before it.
"""

from __future__ import annotations

import fcntl
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
from testbed.longforms import long_forms
from testbed.node import PATIENCE_SECONDS, PYTHON, environment, run, wait_until
from testbed.standin import stand_in

# fcntl.F_SETPIPE_SZ is of Python 3.10.
F_SETPIPE_SZ = 1031
# One of each kind of hardware and software; `make proof PART=preflight` has all.
SHORT_DEFECTS = (
    "row",
    "links",
    "lost",
    "port",
    "kernel",
    "nvme",
    "maintenance",
    "mount",
    "service",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FitNode]:
    with FitNode(tmp_path_factory.mktemp("fit")) as fit:
        yield fit


def test_a_fit_node_passes(node: FitNode) -> None:
    """It comes first: the defects stay."""

    def fit() -> subprocess.CompletedProcess[str] | None:
        ended = node.preflight("--path", str(node.mount), "--write", "--json")
        return ended if ended.returncode == 0 else None

    # With an interval of a second, results are old after three: on a busy machine, not at once.
    ended = wait_until(fit, 40)
    states = {(one["check"], one["state"]) for one in json.loads(ended.stdout)}
    parts = (
        "probe",
        "accelerators",
        "nvlink",
        "rdma",
        "network",
        "mounts",
        "node",
        "profile",
        "services",
    )
    assert {(part, "ok") for part in (*parts, "left over", "paths")} == states


def test_processes_of_another_job_are_no_defect(node: FitNode) -> None:
    """On a node that jobs share, a job may only look at its own accelerators."""
    node.machine.set(2, processes=1, memory_used=41 << 30)
    wait_until(lambda: node.preflight(devices="2").returncode == 1, 40)
    assert "nvidia 2: 41 GiB in use" in node.preflight(devices="all").stdout
    wait_until(lambda: node.preflight(devices="").returncode == 0, 40)
    wait_until(lambda: node.preflight(devices="0,1").returncode == 0, 40)
    ended = node.preflight("--json", devices="")
    (line,) = [one for one in json.loads(ended.stdout) if one["check"] == "left over"]
    assert (line["state"], line["detail"]) == (
        "off",
        "not checked: without --devices, processes of other jobs on this node would count",
    )
    node.machine.set(2, processes=0, memory_used=600 << 20)
    wait_until(lambda: node.preflight().returncode == 0, 40)


@pytest.mark.parametrize(
    "defect",
    long_forms("preflight", DEFECTS, [one for one in DEFECTS if one.name in SHORT_DEFECTS]),
    ids=lambda one: one.name,
)
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


def ssh(
    folder: Path, *names: str, options: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    programs.install(folder / "bin", "peerssh", ["ssh"])
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    url = ("--url", "http://127.0.0.1:1", "--timeout", "8s")
    return run("preflight", *url, "--nodes", ",".join(names), "--ssh", *options, PATH=path, **more)


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


def test_ssh_reads_the_configuration_that_the_operator_names(tmp_path: Path) -> None:
    options = ("--ssh-option", "F=/etc/ssh/ssh_config", "--ssh-option=oUser=check")
    wanted = "-F/etc/ssh/ssh_config -oUser=check"
    shown = ssh(tmp_path, "good", options=options, WANTED_OPTIONS=wanted).stdout
    assert "1 reached by ssh, clocks agree" in shown


def test_a_configuration_of_root_starts_no_command(tmp_path: Path) -> None:
    """The real ssh: what stands in ~/.ssh/config of the user that it runs as would be executed."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    passwd = tmp_path / "passwd"
    passwd.write_text(f"root:x:{os.getuid()}:0:root:{home}:/bin/sh\n")
    touched = tmp_path / "touched"
    config = f'Match exec "touch {touched}"\nHost *\nProxyCommand touch {touched}\n'
    (home / ".ssh/config").write_text(config)
    subprocess.run(["mount", "--bind", passwd, "/etc/passwd"], check=True)
    try:
        argv = ["ssh", "-o", "BatchMode=yes", "127.0.0.1", "true"]
        shown = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert touched.exists(), shown.stderr  # it is read without -F
        touched.unlink()
        url = ("--url", "http://127.0.0.1:1", "--timeout", "8s")
        ended = run("preflight", *url, "--nodes", "127.0.0.1", "--ssh")
    finally:
        subprocess.run(["umount", "/etc/passwd"], check=True)
    assert "peers" in ended.stdout
    assert not touched.exists()


def test_what_a_peer_prints_is_shown_short_and_without_control_characters(tmp_path: Path) -> None:
    ended = ssh(tmp_path, "flood", "escapes")
    shown = [one for one in ended.stdout.splitlines() if one.startswith("peers")]
    assert len(shown) == 2
    assert "\x1b" not in ended.stdout
    assert "escapes: ssh: \\x1b]0;owned\\x07\\x1b[2J" in ended.stdout
    assert len(ended.stdout) < 4000


def test_without_ssh_nothing_is_known_of_peers(tmp_path: Path) -> None:
    """That is no defect of this node, or of another one."""
    url = ("--url", "http://127.0.0.1:1", "--timeout", "8s")
    ended = run("preflight", *url, "--nodes", "a,b", "--ssh", PATH=str(tmp_path))
    assert ended.returncode == 2
    assert "a, b: cannot be asked: ssh: No such file or directory" in ended.stdout


def test_a_prolog_takes_other_nodes_for_unknown() -> None:
    """Else one node that is down would drain each other node of the job."""
    url = ("--url", "http://127.0.0.1:1", "--nodes", "192.0.2.1,127.0.0.1", "--port", "1")
    assert run("preflight", *url, "--timeout", "2s").returncode == 1
    ended = run("preflight", *url, "--timeout", "2s", "--this-node")
    assert ended.returncode == 2
    assert {line.split()[1] for line in ended.stdout.splitlines()[1:]} == {"unknown"}


def test_nodes_named_by_addresses_are_all_asked() -> None:
    """An address has no short name: 127.0.0.2 is another node than 127.0.0.1."""
    url = ("--url", "http://127.0.0.1:1", "--node", "127.0.0.1", "--port", "1")
    ended = run("preflight", *url, "--nodes", "127.0.0.[1-3]")
    assert "127.0.0.2, 127.0.0.3: port 1: Connection refused" in ended.stdout


def test_a_reader_that_does_not_read_costs_the_limit_only() -> None:
    """The output is larger than the buffer of the pipe."""
    metrics = "".join(
        f'nodevitals_mount_present{{mountpoint="/{"x" * 90}{n}"}} 0\n' for n in range(3000)
    )
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, F_SETPIPE_SZ, 4096)
    with stand_in({"/metrics": metrics.encode()}) as agent:
        argv = [PYTHON, "-m", "nodevitals", "preflight", "--url", agent.url, "--timeout", "6s"]
        with subprocess.Popen(argv, env=environment(), stdout=write_end) as process:
            assert process.wait(PATIENCE_SECONDS) == 1
    os.close(write_end)
    os.close(read_end)


def test_a_path_is_quoted_in_the_remedy(tmp_path: Path) -> None:
    """A person may copy it, and a job may have named the path."""
    ended = run("preflight", "--url", "http://127.0.0.1:1", "--path", f"{tmp_path}/$(id); x")
    assert ended.returncode == 1
    assert f"findmnt -T '{tmp_path}/$(id); x'" in ended.stdout


def test_a_file_with_mistakes_is_no_defect_of_the_node(tmp_path: Path) -> None:
    """With status 1 a prolog would drain every node."""
    config = tmp_path / "http.yaml"
    config.write_text("basic_auth: [")
    ended = run("preflight", "--url", "http://127.0.0.1:1", "--http.config.file", str(config))
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"{config}:2:1: not valid YAML")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--deep",),
        ("--deep", "--hub", "http://127.0.0.1:1", "--nodes", "a,b"),
        ("--deep", "--hub", "http://127.0.0.1:1", "--token-file", "/nonexistent"),
        ("--timeout", "soon"),
        ("--timeout", "100ms"),
        ("--nodes", "a[1-"),
        ("--nodes=-oProxyCommand=x",),
        ("--nodes", "@/etc/hostname"),
        ("--nodes", f"a[1-1{'0' * 5000}]"),
        ("--nodes", "a\nb[1\n]\x1b[31m"),
        ("--nodes-file", "/nonexistent"),
        ("--ssh-option=---",),
        ("--nodes", "gpu-[1-99999]"),
        ("--url", "localhost"),
    ],
)
def test_wrong_usage_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    ended = run("preflight", *arguments)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stderr.rstrip("\n").isprintable()
    assert ended.stdout == ""
