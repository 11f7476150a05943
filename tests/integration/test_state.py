"""Counters and history across restarts, and faulty state directories."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from nodevitals.state import database, tables
from nodevitals.state.records import Row, Total
from testbed.faultyfs import FaultyFileSystem
from testbed.node import ROOT, Node, environment, run, wait_until

EVENTS = "nodevitals_misbehave_events_total"
VALUE = "nodevitals_misbehave_value"
SET_ASIDE = "nodevitals_history_set_aside_timestamp_seconds"
LAST_SUCCESS = "nodevitals_probe_last_success_timestamp_seconds"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
INTERVAL_SECONDS = 0.2


def settings(*behaviours: str, **more: object) -> dict[str, object]:
    """Return a configuration with fast targets. On a busy machine some of their runs time out."""
    misbehave = {"behaviours": list(behaviours), "interval": f"{INTERVAL_SECONDS}s"}
    return {"probes": {"misbehave": misbehave}, **more}


def slow_settings(*behaviours: str, series: int = 1) -> dict[str, object]:
    """Return a configuration whose targets have ten seconds for each run, and so do not time out
    on a busy machine. They run again after a reload with another `series`, seldom before.
    """
    misbehave = {"behaviours": list(behaviours), "series": series}
    return {"probes": {"misbehave": {"interval": "1m", **misbehave}}}


def run_again(node: Node, *behaviours: str, series: int) -> None:
    """Reload with more series, which makes each target run within half a second, and wait until
    `healthy` has.
    """
    node.write(slow_settings(*behaviours, series=series))
    node.hang_up()
    wait_until(lambda: node.value(VALUE, item=f"item-{series - 1}") is not None, 60)


def run_history_again(node: Node, config: dict[str, object]) -> None:
    """Reload with another limit of the history, which makes its worker run at once."""
    node.write({**config, "history": {"max_rows": 99_999}})
    node.hang_up()


@pytest.mark.parametrize("end", ["term", "kill"])
def test_counters_continue_after_a_restart_within_a_boot(tmp_path: Path, end: str) -> None:
    """They do not fall, and rise by at most one event per interval."""
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 5)
        before = node.value(EVENTS) or 0
        workers = node.tree()
        if end == "kill":
            node.kill()
    # What was not exposed yet may be written still.
    wait_until(lambda: not any(map(psutil.pid_exists, workers)))
    (written,) = stored_events(tmp_path / "state")
    started = time.monotonic()
    node.start()
    after = wait_until(lambda: node.value(EVENTS))
    intervals = (time.monotonic() - started) / INTERVAL_SECONDS
    node.end()
    assert before <= written <= after <= written + intervals + 2


def stored_totals(state: Path, boot_id: str) -> tuple[Total, ...]:
    """Return the counters of a boot in the database."""
    with closing(tables.connect(str(state))) as connection:
        return database.load_totals(connection, boot_id)


def stored_events(state: Path) -> list[float]:
    """Return the events that the database has."""
    return [total.value for total in stored_totals(state, BOOT_ID) if total.family == EVENTS]


def test_count_is_not_exposed_before_it_is_written(tmp_path: Path) -> None:
    """It is lost where the agent is killed just then, and a counter must not fall."""
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        children = psutil.Process(node.process.pid).children(recursive=True)
        (writer,) = [one for one in children if one.name() == "nodevitals-hist"]
        writer.suspend()
        for _ in range(3):  # a run may have ended before
            ended = node.value(LAST_SUCCESS, target="healthy") or 0
            wait_until(lambda: (node.value(LAST_SUCCESS, target="healthy") or 0) > ended)  # noqa: B023
        before = node.value(EVENTS) or 0
        assert writer.status() == psutil.STATUS_STOPPED
        node.kill()
    assert [before] <= stored_events(tmp_path / "state")


def test_counters_of_another_boot_are_removed(tmp_path: Path) -> None:
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
    total = Total("misbehave", "healthy", "kept", EVENTS, ("run",), 1000.0)
    with closing(tables.connect(str(tmp_path / "state"))) as connection, connection:
        database.remove_totals(connection)
        database.save_totals(connection, "earlier", [total])
    with node:
        assert wait_until(lambda: node.value(EVENTS)) < 1000
    assert "is damaged" not in node.log()


def test_second_agent_on_a_state_directory_does_not_use_it(tmp_path: Path) -> None:
    """Nor does it take the counters of the first one when that has ended. The command reads."""
    (tmp_path / "second").mkdir()
    state = str(tmp_path / "state")
    first = Node(tmp_path, settings("healthy", state_directory=state))
    second = Node(tmp_path / "second", settings("fails", state_directory=state))
    success = {"probe": "history"}
    with first:
        wait_until(lambda: (first.value(EVENTS) or 0) >= 3)
        with second:
            wait_until(lambda: second.value("nodevitals_probe_success", **success) == 0)
            wait_until(
                lambda: second.value("nodevitals_probe_runs_total", outcome="error", target="fails")
            )
            assert "history: error (in_use)" in second.log()
            assert f"{state}: another agent on {platform.node()} uses it" in second.log()
            assert first.value("nodevitals_probe_success", **success) == 1
            assert "broken" not in {row["state"] for row in history(first)}
            first.end()
            run_history_again(second, settings("fails", state_directory=state))
            wait_until(lambda: second.value("nodevitals_probe_success", **success) == 1, 40)
    targets = {total.target for total in stored_totals(tmp_path / "state", BOOT_ID)}
    assert "fails" in targets
    assert "healthy" not in targets


@pytest.mark.parametrize("days", [400, -400, -365 * 40])
def test_wrong_clock_removes_no_history(tmp_path: Path, days: int) -> None:
    """Neither while it is wrong, nor when it is right again."""
    times = [time.time() - age * 86400 for age in (20, 10, 5)]
    right = Node(tmp_path, settings("healthy"))
    wrong = Node(tmp_path, settings("healthy"), **skewed(days))
    with right:
        wait_until(lambda: node_counts(right) >= 3)
    with closing(tables.connect(str(tmp_path / "state"))) as connection, connection:
        rows = [Row(at, "p", "device", f"state {n}") for n, at in enumerate(times)]
        database.append(connection, rows)
    before = history(right)
    with wrong:
        counts = wait_until(lambda: node_counts(wrong))
        wait_until(lambda: wrong.value("nodevitals_history_rows"))
    with right:
        assert wait_until(lambda: node_counts(right)) >= counts >= 3
        wait_until(lambda: right.value("nodevitals_history_rows"))
    assert [row for row in history(right) if row in before] == before


def skewed(days: int) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong."""
    return {
        "SKEW_SECONDS": str(days * 86400),
        "PYTHONPATH": f"{ROOT / 'tests/testbed/skew'}:{environment()['PYTHONPATH']}",
    }


def node_counts(node: Node) -> float:
    """Return the events that an agent has counted."""
    return node.value(EVENTS) or 0


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
    assert done.returncode == 2
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


def test_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    """Once: the next agent continues with the new one."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state/history.db").write_bytes(b"no database at all" * 1000)
    started = time.time()
    node = Node(tmp_path, settings("healthy"))
    with node:
        moment = wait_until(lambda: node.value(SET_ASIDE), 40)
        assert started - 1 <= moment <= time.time()
        assert node.value("nodevitals_probe_success", probe="history") == 1
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        before = node.value(EVENTS) or 0
    with node:
        assert wait_until(lambda: node.value(EVENTS)) >= before
        assert wait_until(lambda: node.value(SET_ASIDE)) == moment
    assert node.log().count("history.db is damaged (file is not a database): it is now ") == 1
    [aside] = (tmp_path / "state").glob("history.db.damaged-*")
    assert aside.read_bytes() == b"no database at all" * 1000


def test_counters_of_a_running_agent_outlive_a_damaged_file(tmp_path: Path) -> None:
    """They are in its memory, and do not fall: neither at once nor after the next start."""
    node = Node(tmp_path, settings("healthy"))
    with node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        with closing(sqlite3.connect(tmp_path / "state/history.db", timeout=30)) as connection:
            before = node.value(EVENTS) or 0
            connection.execute("DROP TABLE totals")
        wait_until(lambda: node.value(SET_ASIDE), 40)
        after = wait_until(lambda: node.value(EVENTS))
        assert after >= before
        wait_until(lambda: (node.value(EVENTS) or 0) >= after + 1)
    with node:
        assert wait_until(lambda: node.value(EVENTS)) >= after


def test_removed_state_directory_is_created_again_with_all_counters(tmp_path: Path) -> None:
    """Writes to the deleted file would succeed and be lost."""
    with Node(tmp_path, settings("healthy")) as node:
        wait_until(lambda: (node.value(EVENTS) or 0) >= 3)
        before = node.value(EVENTS) or 0
        # Moved first: what is created again meanwhile is not among what is removed.
        shutil.rmtree((tmp_path / "state").rename(tmp_path / "removed"))
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
