"""A worker that misbehaves fails one run of one target and affects no other target."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from nodevitals.engine.forkserver_client import SILENCE_SECONDS
from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, environment, run, wait_until

RUNS = "nodevitals_probe_runs_total"
# Each misbehaviour, the outcome of its runs, and what the agent logs.
EXPECTED = {
    "sleeps": ("timeout", "no result within 2 s; killed by SIGTERM"),
    "segfaults": ("error", "killed by SIGSEGV without a result"),
    "spins": ("timeout", "no result within 2 s"),
    "allocates": ("error", "MemoryError"),
    "garbage": ("error", "unreadable message"),
    "garbage_text": ("error", "unreadable message"),
    "surrogates": ("error", "a text that is no Unicode"),
    "huge_header": ("error", "a frame of 4294967295 bytes"),
    "half_frame": ("error", "ended with status 0 without a result"),
    "leaves_orphans": ("ok", "ok"),
    "ignores_term": ("timeout", "killed by SIGKILL"),
    "floods_stderr": ("ok", "ok"),
    "raises": ("error", "KeyError: 'unexpected"),
    "fails": ("error", "the thing is broken"),
    "undeclared": ("error", "nodevitals_undeclared is not among the probe's families"),
    "invalid": ("error", "nodevitals_undeclared is not declared by this probe"),
    "duplicate": ("error", "appears twice"),
    "state_too_large": ("error", "Expected `bytes` of length <= 1048576"),
    "result_too_large": ("error", "over 4194304"),
    "exits": ("error", "ended with status 3 without a result"),
}


def settings(*behaviours: str, **more: object) -> dict[str, object]:
    """Return a configuration whose misbehaving targets run every two seconds: on a busy machine a
    healthy run may take more than one second.
    """
    misbehave = {"behaviours": list(behaviours), **more}
    timing = {"interval": "2s", "timeout": "2s"}
    return {"defaults": timing, "probes": {"misbehave": misbehave, "node": {"interval": "15s"}}}


def runs(node: Node, target: str) -> dict[str, float]:
    """Return the number of a target's runs by outcome, without zeros."""
    return {
        dict(labels)["outcome"]: value
        for labels, value in node.family(RUNS).items()
        if ("target", target) in labels and value
    }


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return one agent with every misbehaviour at once, and a healthy target."""
    folder = tmp_path_factory.mktemp("crowd")
    with Node(folder, settings("healthy", "forks", *EXPECTED)) as node:
        yield node


def log_lines(node: Node, target: str) -> list[str]:
    """Return what the agent has logged of a target, without the time."""
    lines = [line for line in node.log().splitlines() if f"misbehave {target}:" in line]
    return [line.partition("msg=")[2] for line in lines]


@pytest.mark.parametrize("behaviour", EXPECTED)
def test_misbehaviour_has_its_outcome_and_log_line(crowd: Node, behaviour: str) -> None:
    outcome, message = EXPECTED[behaviour]
    wait_until(lambda: runs(crowd, behaviour).get(outcome, 0) >= 2, 60, behaviour)
    # On a busy machine any run may exceed its deadline.
    assert set(runs(crowd, behaviour)) <= {outcome, "timeout"}
    assert any(message in line for line in log_lines(crowd, behaviour))
    success = outcome == "ok"
    wait_until(lambda: crowd.value("nodevitals_probe_success", target=behaviour) == success)


def test_worker_that_sends_extra_results_is_killed(tmp_path: Path) -> None:
    """The first result belongs to the run; the ones after it are not read."""
    with Node(tmp_path, settings("extra_results", "healthy")) as node:
        wait_until(lambda: runs(node, "extra_results").get("error", 0) >= 2)
        assert "misbehave extra_results: error (garbage): a result without a run" in node.log()
        wait_until(lambda: runs(node, "healthy").get("ok", 0) >= 2)


def test_worker_with_too_many_processes_is_killed(tmp_path: Path) -> None:
    """Also where the machine has CPU time for a few forks a second only."""
    with Node(tmp_path, settings("forks", "healthy", interval="15s", timeout="15s")) as node:
        wait_until(lambda: runs(node, "forks").get("error", 0) >= 1, 60)
        assert any("killed for having" in line for line in log_lines(node, "forks"))
        wait_until(lambda: len(node.tree()) < 10)
        wait_until(lambda: runs(node, "healthy").get("ok", 0) >= 1)


def test_persistent_failure_is_logged_once(crowd: Node) -> None:
    """Another line follows only a change; on a busy machine a timeout may come in between."""
    wait_until(lambda: runs(crowd, "fails").get("error", 0) >= 3)
    lines = log_lines(crowd, "fails")
    assert all(before != after for before, after in itertools.pairwise(lines))
    # A run is logged before it is counted.
    wait_until(lambda: len(lines) <= 1 + 2 * runs(crowd, "fails").get("timeout", 0))
    tracebacks = crowd.log().count("Traceback (most recent call last)")
    assert tracebacks <= crowd.log().count("error (exception)")


def test_samples_read_before_an_error_are_exposed(crowd: Node) -> None:
    value = "nodevitals_misbehave_value"
    wait_until(lambda: crowd.value(value, item="before the error") == 0)


def test_healthy_target_among_them_keeps_its_schedule(crowd: Node) -> None:
    """It runs once per interval, no other target runs more often, and its runs succeed; on a busy
    machine, where they share the processors with those of `spins` and `forks`, most of them.
    """
    wait_until(lambda: runs(crowd, "healthy").get("ok", 0) >= 5, 60)
    other_runs = max(sum(runs(crowd, behaviour).values()) for behaviour in ("forks", *EXPECTED))
    healthy_runs = sum(runs(crowd, "healthy").values())
    assert healthy_runs >= other_runs - 1
    age = time.time() - psutil.Process(crowd.process.pid).create_time()
    assert healthy_runs <= age / 2 + 2
    assert set(runs(crowd, "healthy")) <= {"ok", "timeout"}
    assert runs(crowd, "healthy")["ok"] > healthy_runs / 2


def test_orphans_are_killed_and_the_number_of_processes_is_bounded(crowd: Node) -> None:
    def orphans() -> int:
        return sum(
            process.info["cmdline"] == ["sleep", "4242"]
            for process in psutil.process_iter(["cmdline"])
        )

    wait_until(lambda: runs(crowd, "leaves_orphans"))
    # Each run leaves three, which are killed before the next run.
    assert wait_until(lambda: orphans() <= 3)
    wait_until(lambda: len(crowd.tree()) < 300, what="fewer than 300 processes")


def test_agent_is_healthy_and_ready(crowd: Node) -> None:
    assert crowd.get("/healthz").status_code == 200
    wait_until(lambda: crowd.get("/readyz").status_code == 200)


def test_agent_ends_among_them(crowd: Node) -> None:
    """The last test of the crowd: `spins` takes a processor for as long as it runs."""
    crowd.end()
    assert crowd.process.returncode == 0


def test_fork_server_has_priority_over_workers(tmp_path: Path) -> None:
    """Starved by a fork bomb, it would not reply to pings and be replaced, with every worker."""
    with Node(tmp_path, settings("sleeps")) as node:
        server = node.fork_server()
        wait_until(lambda: server.children())
        allowed = [sys.executable, "-c", "import os; os.setpriority(os.PRIO_PROCESS, 0, -10)"]
        may = subprocess.run(allowed, capture_output=True, check=False).returncode == 0
        assert server.nice() == (-10 if may else 0)
        wait_until(lambda: niceness(server.children()) == {0})


def niceness(processes: Iterable[psutil.Process]) -> set[int]:
    """Return the niceness of those that still exist."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found.add(process.nice())
    return found


def test_absent_hardware_is_not_exposed(tmp_path: Path) -> None:
    with Node(tmp_path, settings("absent")) as node:
        wait_until(lambda: "misbehave absent: absent" in node.log())
        wait_until(lambda: node.value("nodevitals_probe_success", probe="misbehave") is None)
        wait_until(lambda: node.get("/readyz").status_code == 200)


def test_absent_hardware_is_a_failure_when_required(tmp_path: Path) -> None:
    config = settings("absent", enabled=True)
    with Node(tmp_path, config) as node:
        wait_until(lambda: "misbehave absent: error (absent): no such hardware" in node.log())
        assert node.value("nodevitals_probe_success", target="absent") == 0
    for enabled, status, reason in ((True, 1, "absent"), ("auto", 0, "not on this node")):
        misbehave = {"behaviours": ["absent"], "enabled": enabled}
        node.write({"probes": {"misbehave": misbehave}})
        done = run("probe", "misbehave", "--raw", f"--config.file={node.config_file}")
        assert done.returncode == status
        assert done.stderr == f"misbehave absent: {reason}: no such hardware\n"


def test_agent_is_not_ready_before_the_first_result_of_each_target(tmp_path: Path) -> None:
    config = settings("sleeps")
    config["defaults"] = {"interval": "30s", "timeout": "30s"}
    with Node(tmp_path, config) as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="sleeps") == 0)
        name = "nodevitals_probe_last_success_timestamp_seconds"
        assert node.value(name, target="sleeps") is None
        response = node.get("/readyz")
        assert response.status_code == 503
        assert "misbehave/sleeps" in response.text


def test_scrapes_and_stop_succeed_while_every_driver_hangs(tmp_path: Path) -> None:
    """The hang lasts until the test ends, so any wait for a driver would exceed the timeouts."""
    with FaultyFileSystem(tmp_path) as filer:
        filer.fault("hang")
        config = settings("hangs", "sleeps", "ignores_term", folder=str(filer.mountpoint))
        with Node(tmp_path, config) as node:
            wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
            for _ in range(50):
                assert node.get().status_code == 200
            assert node.get("/healthz").status_code == 200
            node.end()
            assert node.process.returncode == 0


def succeeded(node: Node) -> float:
    """Return the number of good runs of `healthy`; on a busy machine its first one may time out."""
    return runs(node, "healthy").get("ok", 0)


def workers(node: Node) -> set[int]:
    """Return the fork server's children that are not zombies."""
    found = set()
    for child in node.fork_server().children():
        with suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_fork_server_that_exits_or_stops_is_replaced(tmp_path: Path, number: int) -> None:
    """Each run that ends with it has an outcome."""
    with Node(tmp_path, settings("healthy", "sleeps")) as node:
        wait_until(lambda: succeeded(node) and runs(node, "sleeps"))
        before = node.fork_server()
        orphaned = wait_until(lambda: workers(node))
        os.kill(before.pid, number)
        wait_until(lambda: "starting another" in node.log())
        done = succeeded(node)
        wait_until(lambda: succeeded(node) > done)
        assert node.fork_server().pid != before.pid
        assert not before.is_running() or before.status() == psutil.STATUS_ZOMBIE
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in orphaned))
        assert node.get("/healthz").status_code == 200
        assert set(runs(node, "sleeps")) <= {"timeout", "error"}
        wait_until(lambda: node.value("nodevitals_fork_server_restarts_total") == 1)
    assert not psutil.pid_exists(before.pid)


def test_fork_server_without_cpu_time_for_seconds_is_kept(tmp_path: Path) -> None:
    """Runs are late, or fail with a timeout; no worker is stuck, for no signal was delivered."""
    with Node(tmp_path, settings("healthy", "sleeps")) as node:
        wait_until(lambda: runs(node, "healthy"))
        server = node.fork_server()
        wait_until(server.children)  # `sleeps` runs: its deadline passes meanwhile
        server.suspend()
        time.sleep(SILENCE_SECONDS / 4)
        server.resume()
        done = succeeded(node)
        wait_until(lambda: succeeded(node) >= done + 2)
        assert "starting another" not in node.log()
        assert set(runs(node, "sleeps")) <= {"timeout"}
        assert set(runs(node, "healthy")) <= {"ok", "timeout"}


def test_hung_device_is_named_and_the_others_are_exposed(tmp_path: Path) -> None:
    """It is read last in the next run, and the run that hangs exposes what it has read."""
    timing = {"interval": "5s", "timeout": "5s", "stale_after": "5m"}
    config = settings("hangs_at_device", **timing)
    with Node(tmp_path, config) as node:
        value = "nodevitals_misbehave_value"
        wait_until(lambda: node.value(value, item="device 2") == 1, 60)
        assert node.value(value, item="device 0") == 1
        assert node.value(value, item="device 1") is None
        line = "no result within 5 s; reading device 1, in driver_read; killed by SIG"
        wait_until(lambda: line in node.log())
        outcomes = wait_until(lambda: runs(node, "hangs_at_device"))
        assert set(outcomes) == {"timeout"}
        assert node.value("nodevitals_probe_success", target="hangs_at_device") == 0


def test_agent_without_a_free_descriptor_goes_on(tmp_path: Path) -> None:
    """It can start no worker, no fork server, and read no file; it does all of it afterwards."""
    with Node(tmp_path, settings("healthy", "sleeps")) as node:
        wait_until(lambda: runs(node, "healthy"))
        assert node.get("/healthz").status_code == 200  # on the connection that stays open
        agent = psutil.Process(node.process.pid)
        before = agent.rlimit(psutil.RLIMIT_NOFILE)
        agent.rlimit(psutil.RLIMIT_NOFILE, (0, before[1]))
        node.fork_server().kill()
        wait_until(lambda: "cannot start the fork server: Too many open files" in node.log())
        wait_until(lambda: "healthy: error (spawn): cannot start a worker" in node.log())
        time.sleep(6)  # the agent's figures of itself are read every five seconds
        assert node.get("/healthz").status_code == 200
        agent.rlimit(psutil.RLIMIT_NOFILE, before)
        done = succeeded(node)
        wait_until(lambda: succeeded(node) >= done + 2)


def test_worker_that_is_stuck_when_the_fork_server_dies_is_not_replaced(tmp_path: Path) -> None:
    with FaultyFileSystem(tmp_path) as filer:
        filer.fault("hang")
        with Node(tmp_path, settings("hangs", "healthy", folder=str(filer.mountpoint))) as node:
            wait_until(lambda: "disk-sleep" in node.tree().values())
            node.fork_server().kill()
            wait_until(lambda: "starting another" in node.log())
            done = succeeded(node)
            wait_until(lambda: succeeded(node) >= done + 2)
            wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
            # Other workers sleep so as well, while they sync the history, but not for ever.
            wait_until(lambda: list(node.tree().values()).count("disk-sleep") == 1)
            filer.fault("none")
            wait_until(lambda: node.value("nodevitals_probe_success", target="hangs") == 1)


def test_agent_that_was_suspended_does_not_replace_the_fork_server(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: runs(node, "healthy"))
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(SILENCE_SECONDS + 0.5)
        node.process.send_signal(signal.SIGCONT)
        done = succeeded(node)
        wait_until(lambda: succeeded(node) >= done + 2)
        assert "starting another" not in node.log()


def test_sigkill_of_the_agent_ends_all_processes(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy", "sleeps", "ignores_term")) as node:
        wait_until(lambda: runs(node, "healthy"))
        tree = wait_until(lambda: node.tree() if len(node.tree()) >= 3 else None)
        node.kill()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in tree))


def test_fork_server_that_cannot_start_is_restarted_with_back_off(tmp_path: Path) -> None:
    """A site's probe exits when the program that replaces the first one imports it."""
    broken = tmp_path / "site/nodevitals/probes/broken.py"
    broken.parent.mkdir(parents=True)
    broken.write_text(
        "import os\nif 'forkserver' in open('/proc/self/cmdline').read(): os._exit(1)\n"
    )
    path = f"{tmp_path / 'site'}:{environment()['PYTHONPATH']}"
    with Node(tmp_path, settings("healthy"), PYTHONPATH=path) as node:
        wait_until(lambda: runs(node, "healthy"))
        node.fork_server().kill()
        wait_until(lambda: "ended with status 1; starting another in 3 s" in node.log())
        assert node.get("/healthz").status_code == 200
        wait_until(lambda: "cannot start a worker: no fork server" in node.log())
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 0)
