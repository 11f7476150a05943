"""The governors of the processors: set while a test runs, restored whatever ends it.

Each agent has a /run and processors of its own; the tools are stand-ins.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from nodevitals.probes.fabric.node.governors import RESTORE, SET
from testbed.loopback import TEST, Loopback
from testbed.node import Node, wait_until
from testbed.ordering import HUB_NAME, HUB_TOKEN, OrderClient, order

A, B = "127.0.0.2", "127.0.0.3"
BEFORE = ["powersave\n", "schedutil\n"]
HELD = ["performance\n"] * 2


def files(loopback: Loopback, name: str) -> list[Path]:
    cpus = loopback.folder / name / "sys/devices/system/cpu"
    return [cpus / f"cpu{number}/cpufreq/scaling_governor" for number in range(2)]


def governors(loopback: Loopback, name: str) -> list[str]:
    return [file.read_text() for file in files(loopback, name)]


def start(loopback: Loopback, **settings: str) -> None:
    for name, node in loopback.nodes.items():
        for file, text in zip(files(loopback, name), BEFORE, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        own = loopback.folder / name / "run"
        own.mkdir(exist_ok=True)
        script = f'mount --bind {own} /run && {settings.get("first", "true")} && exec "$@"'
        node.wrapper = ("unshare", "--mount", "sh", "-c", script, "sh")
    loopback.start()
    for node in loopback.nodes.values():
        wait_until(partial(_is_member, node))


def _is_member(node: Node) -> bool:
    return node.value("nodevitals_fabric_members") == 2


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Loopback]:
    (tmp_path / "hub-token").write_text(HUB_TOKEN)
    hub = {"token_file": str(tmp_path / "hub-token"), "names": [HUB_NAME]}
    more = {"interval": "1s", "timeout": "1s", "slot": "60s", "tests": []}
    with Loopback(tmp_path, 2, hub=hub, governor="performance", **more) as loopback:
        loopback.issue(HUB_NAME)
        yield loopback


def client(loopback: Loopback, name: str) -> OrderClient:
    port = loopback.proxies[name].port
    return OrderClient(name, port, loopback.folder / "ca.pem", loopback.folder / HUB_NAME)


def placed(loopback: Loopback, seconds: str, *tests: dict[str, Any]) -> dict[str, Any]:
    for node in loopback.nodes.values():
        node.environment["FAKE_SECONDS"] = seconds
    start(loopback)
    wanted = order(A, B, *(tests or [{**TEST, "timeout": 60}]))
    for name in (B, A):
        status, body = client(loopback, name).put({**wanted, "node": name})
        assert status == 200, body
    return wanted


def done(loopback: Loopback, name: str, identity: str) -> dict[str, Any] | None:
    body = client(loopback, name).get(identity, 5)[1]
    return body if body["state"] == "done" else None


def test_they_hold_for_a_whole_order_on_both_nodes(pair: Loopback) -> None:
    wanted = placed(pair, "3", TEST, {**TEST, "message_bytes": 8})
    for name in (A, B):
        wait_until(lambda name=name: governors(pair, name) == HELD)  # type: ignore[misc]
    for name in (A, B):
        state = wait_until(lambda name=name: done(pair, name, wanted["id"]), 60)  # type: ignore[misc]
        assert state["governor"] == "performance"
        wait_until(lambda name=name: governors(pair, name) == BEFORE)  # type: ignore[misc]
        assert list((pair.folder / name / "run").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_they_are_restored_after_a_killed_agent(pair: Loopback, number: signal.Signals) -> None:
    """At its next start, or where it may end by itself at once."""
    placed(pair, "30")
    wait_until(lambda: governors(pair, A) == HELD)
    agent = psutil.Process(pair.nodes[A].process.pid)
    processes = [agent, *agent.children(recursive=True)]
    if number == signal.SIGTERM:
        agent.send_signal(number)
        pair.nodes[A].process.wait(60)
        wait_until(lambda: governors(pair, A) == BEFORE)
        return
    for process in processes:
        process.kill()
    pair.nodes[A].process.wait(60)
    psutil.wait_procs(processes, 60)
    assert governors(pair, A) == HELD
    pair.nodes[A].start()
    wait_until(lambda: governors(pair, A) == BEFORE)


def test_what_cannot_be_set_is_named_and_changes_nothing(pair: Loopback) -> None:
    """As under the shipped unit and in a container: the state has the governor that held."""
    cpus = [pair.folder / name / "sys/devices/system/cpu" for name in (A, B)]
    for name in (A, B):
        for file in files(pair, name):
            file.parent.mkdir(parents=True)
    first = " && ".join(f"mount --bind -o ro {cpu} {cpu}" for cpu in cpus)
    start(pair, first=first)
    wanted = order(A, B, TEST)
    for name in (B, A):
        assert client(pair, name).put({**wanted, "node": name})[0] == 200
    state = wait_until(lambda: done(pair, A, wanted["id"]), 60)
    assert (state["reports"][0]["outcome"], state["governor"]) == ("ok", "powersave,schedutil")
    wait_until(lambda: "CPU governors cannot be set" in pair.nodes[A].log())
    assert governors(pair, A) == BEFORE


def scripted(script: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A script with no program in its path, as in the agent's image."""
    command = ["/bin/sh", "-c", script.replace("/run/", f"{folder}/"), "sh", *words]
    empty = {"PATH": str(folder / "empty")}
    return subprocess.run(command, env=empty, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("cut", [None, 0, 20])
def test_the_scripts_need_only_a_shell(tmp_path: Path, cut: int | None) -> None:
    """What was saved twice is what was there first; a file that was cut is of a script that had
    changed nothing.
    """
    saved = tmp_path / "saved"
    names = [tmp_path / f"cpu{number}/cpufreq/scaling_governor" for number in range(3)]
    for name, text in zip(names, ("powersave", "schedutil", "ondemand"), strict=True):
        name.parent.mkdir(parents=True)
        name.write_text(f"{text}\n")
    before = [name.read_text() for name in names]
    for _ in range(2):
        made = scripted(SET, tmp_path, str(tmp_path), str(saved))
        assert (made.returncode, made.stderr) == (0, "")
    assert saved.stat().st_mode & 0o777 == 0o600
    assert [name.read_text() for name in names] == ["performance\n"] * 3
    if cut is not None:
        os.truncate(saved, cut)
    made = scripted(RESTORE, tmp_path, str(tmp_path), str(saved))
    assert (made.returncode, made.stderr) == (0, "")
    assert [name.read_text() for name in names] == (before if cut is None else HELD[:1] * 3)
    assert not saved.exists() or saved.read_text() == ""


def test_where_nothing_can_be_saved_nothing_is_set(tmp_path: Path) -> None:
    """What could not be restored stays saved, and the others are restored."""
    names = [tmp_path / f"cpu{number}/cpufreq/scaling_governor" for number in range(2)]
    for name in names:
        name.parent.mkdir(parents=True)
        name.write_text("powersave\n")
    made = scripted(SET, tmp_path, str(tmp_path), str(tmp_path / "none/saved"))
    assert made.returncode == 1
    assert "none/saved" in made.stderr
    assert {name.read_text() for name in names} == {"powersave\n"}
    saved = str(tmp_path / "saved")
    assert scripted(SET, tmp_path, str(tmp_path), saved).returncode == 0
    names[0].unlink()
    names[0].mkdir()
    assert scripted(RESTORE, tmp_path, str(tmp_path), saved).returncode == 1
    assert names[1].read_text() == "powersave\n"
    names[0].rmdir()
    assert scripted(RESTORE, tmp_path, str(tmp_path), saved).returncode == 0
    assert not os.path.exists(saved) or os.path.getsize(saved) == 0


def test_a_node_without_governors_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cpu0").mkdir()
    for script in (SET, RESTORE):
        assert scripted(script, tmp_path, str(tmp_path), str(tmp_path / "saved")).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu0"]
