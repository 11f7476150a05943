"""The profile of a running agent: facts of the driver, and the commands against it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.gpus import Machine
from testbed.node import OFF, Node, run, wait_until

INTERVAL = {"interval": "1s", "timeout": "1s"}


class Simulated(NamedTuple):
    """An agent with eight GPUs, and the file of its profile."""

    machine: Machine
    agent: Node
    profile: Path

    @property
    def url(self) -> str:
        """Where the agent listens."""
        return f"http://127.0.0.1:{self.agent.port}"

    def conforms(self, check: str) -> float | None:
        """Whether a check is fulfilled."""
        return self.agent.value("nodevitals_profile_conforms", check=check)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulated]:
    folder = tmp_path_factory.mktemp("profile")
    machine = Machine(folder, "H100").start()
    profile = folder / "profile.yaml"
    profile.write_text("name: early\nexpect: {accelerator.count: 8}\n")
    probes = {
        **OFF,
        "nvidia": {**INTERVAL, **machine.settings},
        "profile": {**INTERVAL, "file": str(profile)},
    }
    agent = Node(folder, {"probes": probes}, *machine.flags, **machine.environment)
    with agent as running:
        simulated = Simulated(machine, running, profile)
        wait_until(lambda: simulated.conforms("accelerator.count") == 1)
        learned = command("learn", "--url", simulated.url, "--name", "EX")
        assert learned.returncode == 0, learned.stderr
        profile.write_text(learned.stdout)
        wait_until(lambda: simulated.conforms("nvidia.ecc") == 1)
        yield simulated


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("profile", *arguments)


def test_a_healthy_node_differs_from_nothing(node: Simulated) -> None:
    shown = command("show", "--differing", "--url", node.url)
    assert shown.stdout.split() == ["FACT", "FOUND", "WANTED", "STATE"], shown.stderr
    assert shown.returncode == 0
    diff = command("diff", node.url, str(node.profile))
    assert (diff.stdout, diff.returncode) == ("no difference\n", 0)
    check = command("check", str(node.profile))
    assert "ok: EX, " in check.stdout


@pytest.mark.parametrize("mode", ["ecc", "mig", "persistence"])
def test_a_mode_that_differs_on_one_gpu_is_named(node: Simulated, mode: str) -> None:
    key = mode if mode == "persistence" else f"{mode}_mode"
    before = node.machine.state[f"3.{key}"]
    node.machine.set(3, **{key: "0" if before == "1" else "1"})
    try:
        wait_until(lambda: node.conforms(f"nvidia.{mode}") == 0)
        shown = command("show", "--differing", "--url", node.url)
        assert shown.returncode == 1
        (row,) = shown.stdout.splitlines()[1:]
        assert row.startswith(f"nvidia.{mode} ")
        assert "(GPU 3)" in row
        diff = command("diff", str(node.profile), node.url)
        assert diff.returncode == 1
        assert f"nvidia.{mode}" in diff.stdout
    finally:
        node.machine.set(3, **{key: before})
        wait_until(lambda: node.conforms(f"nvidia.{mode}") == 1)


def test_a_saved_exposition_is_compared_as_the_agent_is(node: Simulated, tmp_path: Path) -> None:
    saved = tmp_path / "gpu-7.txt"
    saved.write_text(node.agent.get().text)
    assert command("diff", node.url, str(saved)).stdout == "no difference\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("show", "--url", "http://127.0.0.1:1"), "Connection refused"),
        (("show", "--url", "gpu-7:9855"), "not a URL"),
        (("diff", "{folder}/none", "{folder}/none"), "cannot be read"),
        (("check", "{folder}/none"), "cannot be read"),
        (("check", "{folder}"), "not a regular file"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    ended = command(*(one.format(folder=tmp_path) for one in arguments))
    assert ended.returncode == 2
    assert text in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
