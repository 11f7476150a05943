"""The agent as a process: start, reload, stop, and its state across restarts."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, run, wait_until

EVENTS = "nodevitals_misbehave_events_total"
INTERVAL_SECONDS = 0.2


def settings(*behaviours: str, **more: object) -> dict[str, object]:
    """Return a configuration with fast targets. On a busy machine some of their runs time out."""
    misbehave = {"behaviours": list(behaviours), "interval": f"{INTERVAL_SECONDS}s"}
    return {"probes": {"misbehave": misbehave}, **more}


def slow_settings(*behaviours: str, series: int = 1) -> dict[str, object]:
    """Return a configuration whose targets have five seconds for each run, and so do not time out
    on a busy machine. They run again after a reload with another `series`.
    """
    misbehave = {"behaviours": list(behaviours), "series": series}
    return {"probes": {"misbehave": {"interval": "5s", **misbehave}}}


def run_again(node: Node, *behaviours: str, series: int) -> None:
    """Reload with other settings, which makes each target run within half a second."""
    before = node.value(EVENTS) or 0
    node.write(slow_settings(*behaviours, series=series))
    node.hang_up()
    wait_until(lambda: (node.value(EVENTS) or 0) > before, 60)


def run_history_again(node: Node, config: dict[str, object]) -> None:
    """Reload with another limit of the history, which makes its worker run at once."""
    node.write({**config, "history": {"max_rows": 99_999}})
    node.hang_up()


def test_first_results_do_not_wait_for_an_interval(tmp_path: Path) -> None:
    """The agent becomes ready in seconds, and its first scrape then has every target."""
    misbehave = {"behaviours": ["healthy", "raises"]}
    config = {"defaults": {"interval": "1h"}, "probes": {"misbehave": misbehave}}
    with Node(tmp_path, config) as node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
        assert node.value("nodevitals_probe_success", target="healthy") == 1
        assert node.value("nodevitals_probe_success", target="raises") == 0
        assert node.value("nodevitals_probe_success", probe="node") == 1


def test_sigterm_closes_the_port_and_ends_all_processes(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy", "sleeps")) as node:
        wait_until(lambda: node.value("nodevitals_history_rows"))
        tree = wait_until(lambda: node.tree() if len(node.tree()) >= 3 else None)
        node.end()
        assert node.process.returncode == 0
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tree))
        # The history's worker has merged the write-ahead log into the file.
        assert {path.name for path in (tmp_path / "state").iterdir()} == {"history.db"}


@pytest.mark.parametrize("how", ["hangup", "post"])
def test_reload_applies_changes_and_keeps_other_targets(tmp_path: Path, how: str) -> None:
    with Node(tmp_path, settings("healthy-1", "healthy-2"), "--web.enable-lifecycle") as node:

        def ok(target: str) -> float:
            value = node.value("nodevitals_probe_runs_total", target=target, outcome="ok")
            return value or 0

        wait_until(lambda: ok("healthy-1") >= 3 and ok("healthy-2") >= 3)
        before = ok("healthy-1")
        node.write(settings("healthy-1", "healthy-3", labels={"rack": "r1"}))
        if how == "hangup":
            node.hang_up()
        else:
            assert node.session.post(f"{node.url}/-/reload").text == "reloaded\n"
        wait_until(lambda: ok("healthy-3") >= 2)
        assert ok("healthy-1") >= before
        assert node.value("nodevitals_probe_success", target="healthy-2") is None
        assert node.value("nodevitals_node_info", rack="r1") == 1


def test_reload_of_an_invalid_file_changes_nothing_and_is_exposed(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy"), "--web.enable-lifecycle") as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        loaded = node.value("nodevitals_config_last_reload_success_timestamp_seconds")
        node.config_file.write_text("probes: {misbehave: {interval: soon}, gpu: {}}")
        response = node.session.post(f"{node.url}/-/reload")
        assert response.status_code == 500
        assert response.text.count("\n") == 2
        assert "probes.misbehave.interval: 'soon' is not a duration" in response.text
        wait_until(lambda: node.value("nodevitals_config_last_reload_successful") == 0)
        assert node.value("nodevitals_config_last_reload_success_timestamp_seconds") == loaded
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        node.write(settings("healthy"))
        node.hang_up()
        wait_until(lambda: node.value("nodevitals_config_last_reload_successful") == 1)


def test_reload_over_http_is_off_by_default(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        response = node.session.post(f"{node.url}/-/reload")
        assert response.status_code == 403
        assert "--web.enable-lifecycle" in response.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("probes: {gpu: {}}", "probes.gpu: unknown probe"),
        ("[]", "Expected a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_agent_does_not_start_with_an_invalid_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    for command in (["serve", "--config.file"], ["check-config"]):
        done = run(*command, str(tmp_path / "c.yaml"))
        assert done.returncode == 1
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_address_in_use_is_a_one_line_error(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        done = run("serve", f"--web.listen-address=127.0.0.1:{node.port}")
        assert done.returncode == 1
        assert "Address already in use; choose another --web.listen-address" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("end", ["term", "kill"])
def test_counters_continue_after_a_restart_within_a_boot(tmp_path: Path, end: str) -> None:
    """They do not fall, and rise by at most one event per interval."""
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 5)
        before, started = node.value(EVENTS) or 0, time.monotonic()
        if end == "kill":
            node.kill()
    node.start()
    after = wait_until(lambda: node.value(EVENTS))
    intervals = (time.monotonic() - started) / INTERVAL_SECONDS
    node.end()
    assert before <= after <= before + intervals + 2


def test_counters_of_another_boot_are_removed(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
    with sqlite3.connect(tmp_path / "state/history.db") as database:
        database.execute("UPDATE totals SET boot_id = 'earlier', value = 1000")
    with node:
        assert wait_until(lambda: node.value(EVENTS)) < 1000


def history(node: Node, *arguments: str) -> list[dict[str, str]]:
    """Return the rows of `nodevitals history --json`."""
    done = run("history", f"--config.file={node.config_file}", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def test_history_has_a_row_for_each_change_only(tmp_path: Path) -> None:
    """Neither further runs with the same result nor a restart add a row."""
    node = Node(tmp_path, slow_settings("healthy", "fails"))
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
        for series in range(2, 5):
            run_again(node, "healthy", "fails", series=series)
        failed = {"target": "fails", "outcome": "error"}
        wait_until(lambda: (node.value("nodevitals_probe_runs_total", **failed) or 0) > 1, 60)
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
    rows = [(row["device"], row["state"]) for row in history(node)]
    assert [state for device, state in rows if device == "healthy"] == ["ok"]
    assert [state for device, state in rows if device == "fails"] == ["broken"]
    assert history(node, "--device", "fails")[0]["detail"] == "the thing is broken"
    assert history(node, "--since", "2099-01-01") == []
    assert len(history(node, "--since", "1h")) == len(rows)


def test_history_as_table_and_csv(tmp_path: Path) -> None:
    node = Node(tmp_path, slow_settings("fails"))
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
    table = run("history", f"--config.file={node.config_file}").stdout.splitlines()
    assert table[0].split() == ["TIME", "PROBE", "DEVICE", "STATE", "DETAIL"]
    text = run("history", f"--config.file={node.config_file}", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert "broken" in {row["state"] for row in rows}


def test_forget_retires_a_device_of_a_running_agent(tmp_path: Path) -> None:
    """The device still exists, so a run after that adds it again."""
    with Node(tmp_path, slow_settings("healthy")) as node:
        wait_until(lambda: node.value("nodevitals_history_rows"))
        run_again(node, "healthy", series=2)
        config = f"--config.file={node.config_file}"
        assert run("history", "forget", "unknown", config).returncode == 1
        done = run("history", "forget", "healthy", config)
        assert done.stdout == "healthy: forgotten (misbehave)\n"

        def states() -> list[str]:
            return [row["state"] for row in history(node, "--device", "healthy")]

        assert states() == ["ok", "forgotten"]
        numbers = itertools.count(3)

        def is_added_again() -> bool:
            run_again(node, "healthy", series=next(numbers))
            return states() == ["ok", "forgotten", "ok"]

        # The first run starts a write, whose reply has the retirement; the second adds the row.
        wait_until(is_added_again)


def test_missing_history_is_a_one_line_error(tmp_path: Path) -> None:
    done = run("history", "--state-directory", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "has `nodevitals serve` run on this node?" in done.stderr
    assert done.stderr.count("\n") == 1


def assert_works_without_state(node: Node, reason: str) -> None:
    """Assert that the agent serves and counts, and logs the error of its directory once."""
    wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
    assert node.value("nodevitals_probe_success", probe="history") == 0
    assert f"history: error ({reason})" in node.log()
    assert node.log().count("history: error") == 1


def test_state_directory_that_cannot_be_created_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = settings("healthy", state_directory=str(tmp_path / "file/state"))
    with Node(tmp_path, config) as node:
        assert_works_without_state(node, "state_directory")


def test_read_only_state_directory_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", tmp_path / "state"], check=True)
    try:
        with Node(tmp_path, settings("healthy")) as node:
            assert_works_without_state(node, "state_directory")
    finally:
        subprocess.run(["umount", tmp_path / "state"], check=True)


def test_counters_are_written_once_a_full_state_directory_has_space(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", state], check=True)
    config = settings("healthy")
    node = Node(tmp_path, config)
    try:
        with node:
            wait_until(lambda: (node.value(EVENTS) or 0) >= 2)
            filler = os.open(state / "filler", os.O_CREAT | os.O_WRONLY)
            with pytest.raises(OSError, match="space"):
                while True:
                    os.write(filler, bytes(4096))
            os.close(filler)
            wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 0, 60)
            assert "history: error (disk_full)" in node.log()
            counted = node.value(EVENTS) or 0
            (state / "filler").unlink()
            run_history_again(node, config)
            wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 1, 60)
        with node:
            assert wait_until(lambda: node.value(EVENTS)) >= counted
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_damaged_history_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/history.db").write_bytes(b"no database at all" * 1000)
    config = settings("healthy")
    with Node(tmp_path, config) as node:
        wait_until(lambda: "history: error (corrupt)" in node.log())
        assert (tmp_path / "state/history.db.corrupt").exists()
        run_history_again(node, config)
        wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 1, 40)


def test_removed_state_directory_is_created_again_with_all_counters(tmp_path: Path) -> None:
    """Writes to the deleted file would succeed and be lost."""
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        before = node.value(EVENTS) or 0
        shutil.rmtree(tmp_path / "state")
        wait_until((tmp_path / "state/history.db").exists)
        wait_until(lambda: (node.value(EVENTS) or 0) >= before + 3)
        node.kill()
    with node:
        assert wait_until(lambda: node.value(EVENTS)) >= before


def process_states(pids: Iterable[int]) -> set[str]:
    """Return the states of those processes that still exist."""
    found: set[str] = set()
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.add(psutil.Process(pid).status())
    return found


def test_hung_state_directory_affects_only_the_history(tmp_path: Path) -> None:
    """Scrapes, probes and the stop succeed while SIGKILL does not end the history's worker."""
    with FaultyFileSystem(tmp_path) as disk:
        disk.fault("hang")
        config = settings("healthy", state_directory=str(disk.mountpoint / "state"))
        with Node(tmp_path, config) as node:
            last = "nodevitals_probe_last_success_timestamp_seconds"
            before = wait_until(lambda: node.value(last, target="healthy"))
            wait_until(lambda: (node.value(last, target="healthy") or 0) > before)
            assert node.get("/healthz").status_code == 200
            assert "history/history" in node.get("/readyz").text
            tree = node.tree()
            node.end()
            assert psutil.STATUS_DISK_SLEEP in process_states(tree)


def test_full_log_pipe_blocks_nothing(tmp_path: Path) -> None:
    """Stderr is a pipe that no process reads; messages beyond the queue are dropped and counted."""
    read, write = os.pipe()
    node = Node(tmp_path, settings("fails", "healthy"), "--log.level=debug")
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
    node.log_file = tmp_path / "pipe"
    node.log_file.symlink_to(f"/proc/self/fd/{write}")
    with node:
        with socket.create_connection(("127.0.0.1", node.port), timeout=30) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n" * 1200)
            responses = connection.makefile("rb")
            for _ in range(1200):
                while responses.readline() != b"ok\n":
                    pass
        node.hang_up()  # a reload exposes the agent's own families at once
        wait_until(lambda: (node.value("nodevitals_log_messages_dropped_total") or 0) > 0)
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        node.end()
    os.close(read)
    os.close(write)


def test_sigint_stops_the_agent_like_sigterm(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        node.process.send_signal(signal.SIGINT)
        assert node.process.wait(10) == 0
