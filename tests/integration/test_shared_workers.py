"""Targets that share a process: what happens in a run happens to that run only."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.node import Node, environment, wait_until

RUNS = "nodevitals_probe_runs_total"
VALUE = "nodevitals_misbehave_value"
FEW = tuple(f"process-{number}" for number in range(4))
# What ends a process, and what makes its memory suspect.
FAILING = (
    *("sleeps", "segfaults", "spins", "allocates", "garbage", "garbage_text", "surrogates"),
    *("huge_header", "half_frame", "ignores_term", "raises", "fails", "undeclared", "invalid"),
    *("duplicate", "state_too_large", "result_too_large", "exits"),
)


def settings(*behaviours: str, interval: str = "500ms", **more: object) -> dict[str, Any]:
    """On a busy machine a run that does well may take longer than one that hangs is given."""
    timing = {"interval": interval, "timeout": interval, "healthy_seconds": 60}
    probe = {"behaviours": list(behaviours), **timing, **more}
    return {"probes": {"misbehave_shared": probe, "node": {"enabled": False}}}


def runs(node: Node, target: str) -> dict[str, float]:
    """The number of a target's runs by outcome, without zeros."""
    return {
        dict(labels)["outcome"]: value
        for labels, value in node.family(RUNS).items()
        if ("target", target) in labels and value
    }


def ended(node: Node) -> float:
    """The number of ended runs of all targets."""
    return sum(sum(runs(node, target).values()) for target in FEW)


def has_ended(node: Node, wanted: int) -> bool:
    """Whether there were so many runs."""
    return ended(node) >= wanted


def served(node: Node) -> set[float]:
    """The processes of the last runs."""
    return set(node.family(VALUE).values())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path, settings(*FEW)) as found:
        yield found


def test_one_process_serves_many_runs(node: Node) -> None:
    """Runs that are due at the same time have one each for a moment."""
    seen: set[float] = set()

    def enough() -> bool:
        seen.update(served(node))
        return ended(node) >= 60

    wait_until(enough)
    assert len(seen) <= ended(node) / 4
    assert all(runs(node, target).keys() == {"ok"} for target in FEW)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Every failure beside targets that do well."""
    timing = settings(*FEW, *FAILING, "absent", interval="2s")
    with Node(tmp_path_factory.mktemp("crowd"), timing) as found:
        wait_until(lambda: all(sum(runs(found, name).values()) >= 2 for name in FAILING))
        yield found


@pytest.mark.parametrize("behaviour", FAILING)
def test_failure_is_that_of_one_target(crowd: Node, behaviour: str) -> None:
    assert "ok" not in runs(crowd, behaviour)


@pytest.mark.parametrize("target", FEW)
def test_others_do_well_beside_them(crowd: Node, target: str) -> None:
    wait_until(lambda: runs(crowd, target))
    assert runs(crowd, target).keys() == {"ok"}


def test_no_process_serves_again_after_a_failure(crowd: Node) -> None:
    """Nothing of what failed runs left behind lives on."""
    count = len(FEW) + len(FAILING)
    wait_until(lambda: len(crowd.tree()) <= count)
    assert crowd.value("nodevitals_worker_processes", state="stuck") == 0


def test_idle_process_that_is_killed_is_replaced(node: Node) -> None:
    wait_until(lambda: ended(node) >= 8)
    for wanted in range(16, 56, 8):
        for worker in node.fork_server().children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        wait_until(partial(has_ended, node, wanted))
    # One that is killed within a run fails that run.
    assert all(runs(node, target)["ok"] >= 5 for target in FEW)


def test_fork_server_that_is_killed_takes_its_idle_processes_along(node: Node) -> None:
    wait_until(lambda: ended(node) >= 8)
    old = node.fork_server()
    workers = old.children()
    old.kill()
    before = ended(node)
    wait_until(lambda: ended(node) >= before + 20)
    wait_until(lambda: not any(psutil.pid_exists(worker.pid) for worker in workers))


def test_settings_of_a_reload_reach_a_process_that_lives_on(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy", *FEW, series=2)) as node:
        wait_until(lambda: node.value(VALUE, item="item-1") == 1)
        node.write(settings("healthy", *FEW, series=3))
        node.hang_up()
        wait_until(lambda: node.value(VALUE, item="item-2") == 2)


def test_target_of_a_hung_run_waits_alone(tmp_path: Path) -> None:
    """Its process has the run of no other target; the others share one as before."""
    config = settings("sleeps", *FEW, interval="2s", timeout="100s")
    config["probes"]["misbehave_shared"]["timeout"] = "2s"
    with Node(tmp_path, config) as node:
        wait_until(lambda: runs(node, "sleeps").get("timeout", 0) >= 2)
        wait_until(lambda: all(runs(node, target) for target in FEW))
        assert all(runs(node, target).keys() == {"ok"} for target in FEW)


# Notes the modules of the agent when it forks its fork server, and those of the fork server when
# it begins to serve.
NOTE_MODULES = """
import os, pathlib, sys
sys.modules["typing_extensions"] = None  # the agent alone has it not, and msgspec would import it
from nodevitals.engine import forkserver
def note(name):
    pathlib.Path({folder!r}, name).write_text("\\n".join(sys.modules))
make_ready, serve = forkserver.make_ready, forkserver.ForkServer.serve
forkserver.make_ready = lambda: (make_ready(), note("agent"))
forkserver.ForkServer.serve = lambda server: (note("fork-server"), serve(server))
"""


def test_fork_server_imports_nothing_after_the_fork(tmp_path: Path) -> None:
    """What it imports is written into pages that it has in common with the agent until then."""
    node = Node(tmp_path, settings(*FEW))
    node.prelude = NOTE_MODULES.format(folder=str(tmp_path))
    with node as found:
        wait_until(lambda: has_ended(found, 4))
    modules = {
        name: set((tmp_path / name).read_text().split()) for name in ("agent", "fork-server")
    }
    assert modules["fork-server"] == modules["agent"]
    assert {"encodings.idna", "h2", "pynvml"} <= modules["agent"]
    # Megabytes that nothing needs.
    unneeded = {"google", "grpc", "yaml"}
    assert modules["agent"].isdisjoint(unneeded)


SITE_PROBE = """
import os, pathlib
from nodevitals.probe import Probe
class SiteProbe(Probe):
    name = "site"
    families = ()
    default = "on"
    @classmethod
    def preload(cls):
        with pathlib.Path({file!r}).open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        raise ImportError("no such library")
    def run(self, readings):
        pass
"""


def test_what_a_site_s_probe_imports_is_no_part_of_the_agent(tmp_path: Path) -> None:
    """It may hang, start threads or end its process; one that cannot be imported costs itself."""
    file = tmp_path / "preloaded"
    home = tmp_path / "site/nodevitals/probes"
    home.mkdir(parents=True)
    (home / "site.py").write_text(SITE_PROBE.format(file=str(file)))
    paths = f"{environment()['PYTHONPATH']}:{tmp_path / 'site'}"
    with Node(tmp_path, settings(*FEW), PYTHONPATH=paths) as found:
        wait_until(lambda: has_ended(found, 4))
        assert file.read_text().split() == [str(found.fork_server().pid)]
