"""The agent as a process: start, reload, stop, and what it keeps across restarts."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, run, wait_until

EVENTS = "nodevitals_misbehave_events_total"


def settings(*behaviours: str, **more: object) -> dict[str, object]:
    """Return a configuration with fast targets."""
    misbehave = {"behaviours": list(behaviours), "interval": "200ms"}
    return {"probes": {"misbehave": misbehave}, **more}


def test_the_first_complete_scrape_comes_within_two_seconds(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("healthy", "raises"))
    started = time.monotonic()
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
        # Bench figures come from tests/bench; this only refuses another order of magnitude.
        assert time.monotonic() - started < 10


def test_sigterm_closes_the_port_and_ends_everything(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy", "sleeps")) as node:
        wait_until(lambda: node.value("nodevitals_history_rows"))
        tree = wait_until(lambda: node.tree() if len(node.tree()) >= 3 else None)
        node.process.terminate()
        assert node.process.wait(5) == 0
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tree), 5)
        # The history's writer had the time to fold its log back into the file.
        assert {path.name for path in (tmp_path / "state").iterdir()} == {"history.db"}


@pytest.mark.parametrize("how", ["hangup", "post"])
def test_reload_takes_what_changed_and_leaves_the_rest(tmp_path: Path, how: str) -> None:
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


def test_a_bad_file_changes_nothing_and_shows(tmp_path: Path) -> None:
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
        assert node.value("nodevitals_probe_success", target="healthy") == 1
        node.write(settings("healthy"))
        node.hang_up()
        wait_until(lambda: node.value("nodevitals_config_last_reload_successful") == 1)


def test_reload_over_http_is_off_until_switched_on(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        response = node.session.post(f"{node.url}/-/reload")
        assert response.status_code == 403
        assert "--web.enable-lifecycle" in response.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("probes: {gpu: {}}", "probes.gpu: unknown probe"),
        ("[]", "Expected a mapping"),
        ("a: [", "not valid YAML"),
    ],
)
def test_an_invalid_file_starts_nothing(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    for command in (["serve", "--config.file"], ["check-config"]):
        done = run(*command, str(tmp_path / "c.yaml"))
        assert done.returncode == 1
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        done = run("serve", f"--web.listen-address=127.0.0.1:{node.port}")
        assert done.returncode == 1
        assert "Address already in use; choose another --web.listen-address" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("end", ["term", "kill"])
def test_counters_outlive_the_agent_within_a_boot(tmp_path: Path, end: str) -> None:
    """They never fall: after SIGTERM nothing is lost, after SIGKILL at most what was not yet
    handed over.
    """
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 5)
        before = node.value(EVENTS) or 0
        if end == "kill":
            node.kill()
    node.start()
    with_restart = wait_until(lambda: node.value(EVENTS))
    node.end()
    assert with_restart >= before
    assert with_restart <= before + 30


def test_counters_of_another_boot_are_not_carried_over(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
    with sqlite3.connect(tmp_path / "state/history.db") as database:
        database.execute("UPDATE totals SET boot_id = 'earlier', value = 1000")
    with node:
        assert wait_until(lambda: node.value(EVENTS)) < 1000


def history(node: Node, *arguments: str) -> list[dict[str, str]]:
    """Return what `nodevitals history --json` says."""
    done = run("history", f"--config.file={node.config_file}", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, str]] = json.loads(done.stdout)
    return rows


def test_history_has_a_row_for_each_change_and_no_other(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("healthy", "fails"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 5)
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
    rows = [(row["device"], row["state"]) for row in history(node)]
    assert rows.count(("healthy", "ok")) == 1
    assert rows.count(("fails", "broken")) == 1
    assert history(node, "--device", "fails")[0]["detail"] == "the thing is broken"
    assert history(node, "--since", "2099-01-01") == []
    assert len(history(node, "--since", "1h")) == len(rows)


def test_history_as_table_and_csv(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("fails"))
    with node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
    table = run("history", f"--config.file={node.config_file}").stdout.splitlines()
    assert table[0].split() == ["TIME", "PROBE", "DEVICE", "STATE", "DETAIL"]
    text = run("history", f"--config.file={node.config_file}", "--csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert "broken" in {row["state"] for row in rows}


def test_forget_retires_a_device_of_a_running_agent(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        config = f"--config.file={node.config_file}"
        assert run("history", "forget", "nobody", config).returncode == 1
        done = run("history", "forget", "healthy", config)
        assert done.stdout == "healthy: forgotten (misbehave)\n"

        def states() -> list[str]:
            return [row["state"] for row in history(node, "--device", "healthy")]

        # It is not gone, so the agent sees it anew.
        wait_until(lambda: states() == ["ok", "forgotten", "ok"])


def test_no_history_is_one_line(tmp_path: Path) -> None:
    done = run("history", "--state-directory", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "has `nodevitals serve` run on this node?" in done.stderr
    assert done.stderr.count("\n") == 1


def assert_works_without_state(node: Node, reason: str) -> None:
    """Assert that the agent serves and counts, and says what is wrong with its directory."""
    wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
    assert node.value("nodevitals_probe_success", probe="history") == 0
    assert f"history: error ({reason})" in node.log()
    assert node.log().count("history: error") == 1


def test_a_state_directory_that_cannot_be_made_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = settings("healthy", state_directory=str(tmp_path / "file/state"))
    with Node(tmp_path, config) as node:
        assert_works_without_state(node, "state_directory")


def test_a_read_only_state_directory_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", tmp_path / "state"], check=True)
    try:
        with Node(tmp_path, settings("healthy")) as node:
            assert_works_without_state(node, "state_directory")
    finally:
        subprocess.run(["umount", tmp_path / "state"], check=True)


def test_a_full_state_directory_loses_no_row_once_there_is_room(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", state], check=True)
    node = Node(tmp_path, settings("healthy"))
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
            wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 1, 60)
        with node:
            assert wait_until(lambda: node.value(EVENTS)) >= counted
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_damaged_history_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/history.db").write_bytes(b"no database at all" * 1000)
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: "history: error (corrupt)" in node.log())
        assert (tmp_path / "state/history.db.corrupt").exists()
        wait_until(lambda: node.value("nodevitals_probe_success", probe="history") == 1, 40)


def test_a_state_directory_that_is_removed_comes_back_with_all_counters(tmp_path: Path) -> None:
    """Writing on into the deleted file would succeed, and be lost."""
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        before = node.value(EVENTS) or 0
        shutil.rmtree(tmp_path / "state")
        wait_until((tmp_path / "state/history.db").exists)
        wait_until(lambda: (node.value(EVENTS) or 0) >= before + 3)
        node.kill()
    with node:
        assert wait_until(lambda: node.value(EVENTS)) >= before


def test_a_hung_state_directory_costs_only_the_history(tmp_path: Path) -> None:
    """With its worker in uninterruptible sleep, scrapes and probes and the end go on."""
    with FaultyFileSystem(tmp_path) as disk:
        disk.fault("hang")
        config = settings("healthy", state_directory=str(disk.mountpoint / "state"))
        with Node(tmp_path, config) as node:
            labels = {"target": "healthy", "outcome": "ok"}
            runs = "nodevitals_probe_success"
            wait_until(lambda: node.value(runs, target="healthy") == 1)
            stuck = "nodevitals_probe_stuck_seconds"
            wait_until(lambda: (node.value(stuck, probe="history") or 0) > 10, 30)
            wait_until(lambda: node.value("nodevitals_probe_runs_total", **labels) or 0)
            assert node.get("/healthz").status_code == 200
            started = time.monotonic()
            node.end()
            assert time.monotonic() - started < 5


def test_a_log_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    """Stderr is a full pipe; what does not fit the queue is dropped and counted."""
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
        for _ in range(1200):
            node.get("/healthz")
        wait_until(lambda: (node.value("nodevitals_log_messages_dropped_total") or 0) > 0)
        assert node.value("nodevitals_probe_success", target="healthy") == 1
        started = time.monotonic()
        node.end()
        assert time.monotonic() - started < 5
    os.close(read)
    os.close(write)


def test_ctrl_c_is_an_orderly_end(tmp_path: Path) -> None:
    with Node(tmp_path, settings("healthy")) as node:
        node.process.send_signal(signal.SIGINT)
        assert node.process.wait(5) == 0
