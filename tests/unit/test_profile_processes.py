"""The processes that facts of the profile are about, found without a look at all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodevitals.linux.host import Host
from nodevitals.probes.profile.node_facts import LOOK_SECONDS, Running, find_processes
from testbed.trees import write


class Node:
    """A procfs, and what was found there last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: Running | None = None

    def start(self, pid: int, name: str) -> None:
        write(self.folder / str(pid), {"comm": f"{name}\n"})

    def find(self, now: float, *limited: str) -> dict[str, int]:
        self.running = find_processes(Host(procfs=str(self.folder)), limited, self.running, now)
        assert self.running is not None
        return self.running.pids


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path / "proc")
    made.start(7, "kworker/0:0")
    made.start(30, "chronyd")
    made.start(9, "chronyd")
    return made


def test_process_with_the_lowest_id_counts(node: Node) -> None:
    assert node.find(0) == {"chronyd": 9}


def test_nothing_is_known_where_processes_cannot_be_listed(tmp_path: Path) -> None:
    assert find_processes(Host(procfs=str(tmp_path / "none")), (), None, 0) is None


def test_service_that_starts_soon_after_the_agent_is_found_by_the_next_run(node: Node) -> None:
    node.find(0)
    node.start(40, "containerd")
    assert node.find(120) == {"chronyd": 9, "containerd": 40}


def test_looks_become_rare_while_nothing_changes(node: Node) -> None:
    looks = []
    for run in range(40):
        node.find(120.0 * run)
        assert node.running is not None
        if node.running.at == 120.0 * run:
            looks.append(run)
    assert looks == [0, 1, 2, 4, 8, 13, 18, 23, 28, 33, 38]
    assert LOOK_SECONDS == 5 * 120


@pytest.mark.parametrize("name", ["", "other"])
def test_process_that_ended_is_noticed_at_once(node: Node, name: str) -> None:
    """Also where another process has its id."""
    for now in (0, 120, 240):
        node.find(now)
    node.start(40, "ntpd")
    write(node.folder / "9", {"comm": f"{name}\n"})
    assert node.find(241) == {"chronyd": 30, "ntpd": 40}


def test_other_names_are_looked_for_at_once(node: Node) -> None:
    """A profile that was changed."""
    for now in (0, 120, 240):
        node.find(now)
    node.start(50, "a-daemon-of-the")  # the kernel keeps 15 characters
    assert node.find(241, "a-daemon-of-the-site") == {"chronyd": 9, "a-daemon-of-the": 50}


def test_clock_that_began_anew_is_no_reason_to_wait(node: Node) -> None:
    for now in (1000, 1120, 1240):
        node.find(now)
    node.start(40, "ntpd")
    assert "ntpd" in node.find(5)
