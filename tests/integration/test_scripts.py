"""A running agent and real executables: what they say, and what they do to the agent: nothing."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from functools import partial
from pathlib import Path

import psutil
import pytest

from testbed.node import Node, run, wait_until

STATUS = "nodevitals_scripts_status"
FAILURES = "nodevitals_scripts_failures_total"
SUCCESS = "nodevitals_probe_success"
RUNS = "nodevitals_probe_runs_total"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return an empty folder of scripts."""
    path = tmp_path / "scripts"
    path.mkdir()
    return path


def script(folder: Path, name: str, *lines: str, interpreter: str = "/bin/sh") -> Path:
    """Write an executable."""
    path = folder / name
    path.write_text("\n".join([f"#!{interpreter}", *lines, ""]))
    path.chmod(0o755)
    return path


def agent(tmp_path: Path, folder: Path, **settings: object) -> Node:
    """Return an agent that runs the folder's scripts every two seconds."""
    own = {"folder": str(folder), "interval": "2s", "timeout": "2s", **settings}
    return Node(tmp_path, {"probes": {"scripts": own}})


def status_of(node: Node, name: str) -> str | None:
    """The status of a script's last run; None before it."""
    found = [
        dict(pairs)["status"]
        for (family, pairs), value in node.samples().items()
        if family == STATUS and value == 1 and ("script", name) in pairs
    ]
    return found[0] if found else None


def has_status(node: Node, name: str, status: str) -> bool:
    """Whether this was the status of a script's last run."""
    return status_of(node, name) == status


def runs(samples: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str) -> float:
    """The number of a script's runs, in a scrape."""
    family, target = "nodevitals_probe_runs_total", ("target", name)
    return sum(
        value for (one, pairs), value in samples.items() if one == family and target in pairs
    )


def succeeds(node: Node, name: str) -> bool:
    """Whether a script could be run."""
    return node.value(SUCCESS, target=name) == 1


def fails(node: Node, name: str) -> bool:
    """Whether a script could not be run."""
    return node.value(SUCCESS, target=name) == 0


def with_marker(marker: str) -> list[psutil.Process]:
    """The processes on whose command line the marker is."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if marker in (process.info["cmdline"] or [])
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def test_statuses_values_and_texts(tmp_path: Path, folder: Path) -> None:
    script(folder, "fine", "echo 'FINE - all well|load=0.5;1;2 used=50% t=20ms n=7c x=U y=1,5'")
    script(folder, "warns", "echo careful; exit 1")
    script(folder, "with spaces", "echo broken; exit 2")
    script(folder, "says unknown", "exit 3")
    script(folder, "exits 255", "exit 255")
    script(folder, "killed", "kill -9 $$")
    script(folder, "binary", "head -c 100000 /dev/urandom; exit 1")
    script(folder, "nhc", "echo 'ERROR:  nhc:  Health check failed:  no /scratch' >&2; exit 1")
    (folder / "README").write_text("not a script")
    (folder / "with spaces").rename(folder / "with  spaces")
    settings = [{"name": "nhc", "output": "nhc"}]
    expected = {
        "fine": "ok",
        "warns": "warning",
        "with  spaces": "critical",
        "says unknown": "unknown",
        "exits 255": "unknown",
        "killed": "unknown",
        "binary": "warning",
        "nhc": "critical",
    }
    own = {"interval": "5s", "timeout": "5s", "scripts": settings}
    with agent(tmp_path, folder, **own) as node:
        for name, status in expected.items():
            wait_until(partial(has_status, node, name, status), what=name)
            wait_until(partial(succeeds, node, name), what=name)
        for label, unit, value in (("load", "none", 0.5), ("used", "ratio", 0.5)):
            found = node.value("nodevitals_scripts_value", label=label, unit=unit)
            assert found == pytest.approx(value)
        assert node.value("nodevitals_scripts_count_total", label="n") == 7
        counters = (
            ("nodevitals_scripts_unreadable_values_total", {"script": "fine"}),
            (FAILURES, {"script": "exits 255", "reason": "status"}),
            (FAILURES, {"script": "killed", "reason": "signal"}),
        )
        for family, labels in counters:  # exposed once they are written, later than the statuses
            wait_until(partial(node.value, family, **labels), what=f"{labels}")
        samples = node.samples()  # one scrape: scripts are run again meanwhile
        for family, labels in counters:
            assert samples[family, frozenset(labels.items())] == runs(samples, labels["script"])
        assert node.value("nodevitals_scripts_discarded_bytes", script="binary") == 100000 - 65536
        files = "nodevitals_scripts_files"
        wait_until(lambda: node.value(files, state="run") == len(expected))
        assert node.value(files, state="not_executable") == 1
        wait_until(lambda: "scripts warns: WARNING: careful" in node.log())
    done = run("history", f"--config.file={node.config_file}", "--json")
    rows = {row["device"]: row for row in json.loads(done.stdout)}
    assert (rows["nhc"]["state"], rows["nhc"]["detail"]) == ("critical", "no /scratch")


def test_a_hung_script_is_ended_with_its_children(tmp_path: Path, folder: Path) -> None:
    marker = "7731.25"
    script(
        folder,
        "hangs",
        "trap '' TERM",
        f"sleep {marker} &",
        f"setsid sleep {marker} &",
        f"sleep {marker}",
    )
    script(folder, "fine", "echo fine")
    with agent(tmp_path, folder, interval="2s", timeout="2s") as node:
        wait_until(lambda: (node.value(FAILURES, script="hangs", reason="timeout") or 0) >= 2)
        assert status_of(node, "hangs") == "unknown"
        assert status_of(node, "fine") == "ok"
        assert node.value("nodevitals_probe_stuck_seconds", target="hangs") == 0
        # Those of one run at most: none is left of the runs before it.
        assert len(with_marker(marker)) <= 3
        node.write({"probes": {"scripts": {"enabled": False}}})
        node.hang_up()
        wait_until(lambda: not with_marker(marker))


def test_a_daemon_that_keeps_the_output_open_delays_nothing(tmp_path: Path, folder: Path) -> None:
    marker = "7732.25"
    script(folder, "daemon", f"setsid sleep {marker} &", "echo 'started|a=1'")
    with agent(tmp_path, folder, interval="4s", timeout="4s") as node:
        wait_until(lambda: status_of(node, "daemon") == "ok")
        assert node.value("nodevitals_scripts_value", label="a") == 1
        wait_until(lambda: not with_marker(marker))
        wait_until(lambda: (node.value(RUNS, target="daemon", outcome="ok") or 0) >= 2)


def test_endless_output_is_discarded(tmp_path: Path, folder: Path) -> None:
    script(folder, "gigabyte", "echo 'first line'; head -c 1000000000 /dev/zero; exit 1")
    script(folder, "endless", "exec yes")
    settings = [{"name": "gigabyte", "interval": "50s", "timeout": "50s"}]
    with agent(tmp_path, folder, interval="2s", timeout="2s", scripts=settings) as node:
        wait_until(lambda: status_of(node, "gigabyte") == "warning", 50)
        discarded = node.value("nodevitals_scripts_discarded_bytes", script="gigabyte")
        assert discarded == 11 + 1_000_000_000 - 65536
        wait_until(lambda: node.value(FAILURES, script="endless", reason="timeout"))
        wait_until(lambda: "scripts gigabyte: WARNING: first line" in node.log())


def test_a_fork_bomb_is_ended(tmp_path: Path, folder: Path) -> None:
    marker = "7733.25"
    script(folder, "bomb", f"while :; do sleep {marker} & done")
    script(folder, "fine", "echo fine")
    with agent(tmp_path, folder, interval="5s", timeout="5s") as node:
        wait_until(lambda: "processes" in node.log() and "bomb" in node.log())
        wait_until(lambda: node.value(SUCCESS, target="bomb") == 0)
        assert node.value(SUCCESS, probe="node") == 1
        wait_until(lambda: status_of(node, "fine") == "ok")
    wait_until(lambda: not with_marker(marker))


def test_what_others_could_have_changed_is_not_run(tmp_path: Path, folder: Path) -> None:
    marker = tmp_path / "ran"
    for name in ("writable", "foreign", "absent interpreter"):
        script(folder, name, f"touch '{marker}'")
    (folder / "writable").chmod(0o757)
    os.chown(folder / "foreign", 12345, 0)
    script(folder, "absent interpreter", interpreter="/no/such/shell")
    script(folder, "fine", "echo fine")
    with agent(tmp_path, folder) as node:
        wait_until(lambda: status_of(node, "fine") == "ok")
        for name in ("writable", "foreign", "absent interpreter"):
            wait_until(partial(fails, node, name), what=name)
            assert status_of(node, name) is None
        wait_until(lambda: "chmod go-w" in node.log() and "chown root" in node.log())
        folder.chmod(0o777)
        wait_until(lambda: node.value(SUCCESS, target="fine") == 0)
        wait_until(lambda: node.value(SUCCESS, target=str(folder)) == 0)
    assert not marker.exists()


def test_a_new_script_is_run_after_a_reload_and_a_removed_one_fails(
    tmp_path: Path, folder: Path
) -> None:
    script(folder, "old", "echo fine")
    files = "nodevitals_scripts_files"
    with agent(tmp_path, folder) as node:
        wait_until(lambda: status_of(node, "old") == "ok")
        script(folder, "added", "echo careful; exit 1")
        wait_until(lambda: node.value(files, state="new") == 1)
        assert status_of(node, "added") is None
        node.hang_up()
        wait_until(lambda: status_of(node, "added") == "warning")
        wait_until(lambda: node.value(files, state="new") == 0)
        (folder / "old").unlink()
        wait_until(lambda: node.value(SUCCESS, target="old") == 0)
        wait_until(lambda: node.value(files, state="removed") == 1)
        wait_until(lambda: status_of(node, "old") is None)
        node.hang_up()
        wait_until(lambda: node.value(SUCCESS, target="old") is None)
        assert status_of(node, "added") == "warning"


def test_a_script_that_is_deleted_while_it_runs_ends_as_it_says(
    tmp_path: Path, folder: Path
) -> None:
    script(folder, "deletes itself", 'rm -- "$0"', "echo gone; exit 2")
    with agent(tmp_path, folder, interval="5s", timeout="5s") as node:
        wait_until(lambda: status_of(node, "deletes itself") == "critical")


def test_the_environment_is_clean_and_the_user_another(tmp_path: Path) -> None:
    # Below tmp_path no other user can reach it.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        run_in_a_clean_environment(tmp_path, folder)


def run_in_a_clean_environment(tmp_path: Path, folder: Path) -> None:
    """Run a script that prints its environment, and one that prints its arguments."""
    script(folder, "environment", "env | sort | tr '\\n' ' '; id -u")
    script(folder, "arguments", 'echo "$#:$1:$2"')
    settings = [
        {"name": "environment", "user": "nobody"},
        {"name": "arguments", "arguments": ["a b", "$(id)"]},
    ]
    node = agent(tmp_path, folder, interval="5s", timeout="5s", scripts=settings)
    node.environment["SECRET_TOKEN"] = "s3cret"
    with node:
        wait_until(lambda: "scripts arguments: OK: 2:a b:$(id)" in node.log())
        wait_until(lambda: "scripts environment: " in node.log())
        line = next(line for line in node.log().splitlines() if "scripts environment: " in line)
        assert "HOME=/ LC_ALL=C" in line
        nobody = pwd.getpwnam("nobody").pw_uid
        assert line.endswith(f' {nobody}"')
        assert "SECRET" not in line
        assert "PYTHONPATH" not in line


def test_text_files_of_jobs(tmp_path: Path) -> None:
    folder = tmp_path / "nccl"
    settings = {"textfiles": [{"path": str(folder), "interval": "2s", "max_age": "1h"}]}
    with Node(tmp_path, {"probes": {"scripts": settings}}) as node:
        wait_until(lambda: node.get("/readyz").status_code == 200)
        assert node.value(SUCCESS, target=str(folder)) is None  # absent is not failed
        folder.mkdir()
        (folder / "a.prom").write_text("nccl_x 1\n")
        os.mkfifo(folder / "b.prom")
        wait_until(lambda: node.value("nodevitals_scripts_textfile_value", metric="nccl_x") == 1)
        assert node.value("nodevitals_scripts_textfiles", state="unreadable") == 1
        (folder / "a.prom").write_text("nccl_x 2")
        wait_until(lambda: node.value("nodevitals_scripts_textfiles", state="unreadable") == 2)
        assert node.value("nodevitals_scripts_textfile_value") is None
        assert node.value(SUCCESS, target=str(folder)) == 1
