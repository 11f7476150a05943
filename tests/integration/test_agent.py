"""The agent as a process: start, reload, stop, and a log that no process reads."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from testbed.node import Node, run, wait_until

# What ends at SIGTERM has this time for it; in production, a second.
PATIENT_END = """import nodevitals.agent as agent, nodevitals.engine.forkserver as forkserver
forkserver.END_SECONDS, agent.STOP_SECONDS = 60, 120
"""


def settings(*behaviours: str, **more: object) -> dict[str, object]:
    """Return a configuration with fast targets. On a busy machine some of their runs time out."""
    misbehave = {"behaviours": list(behaviours), "interval": "200ms"}
    return {"probes": {"misbehave": misbehave}, **more}


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
    node = Node(tmp_path, settings("healthy", "sleeps"))
    node.prelude = PATIENT_END
    with node:
        wait_until(lambda: node.value("nodevitals_history_rows"))
        tree = wait_until(lambda: node.tree() if len(node.tree()) >= 3 else None)
        node.end()
        assert node.process.returncode == 0
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tree))
        # The history's worker has merged the write-ahead log into the file.
        assert {path.name for path in (tmp_path / "state").iterdir()} == {
            "history.db",
            "history.lock",
        }


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
        ("[]", "is a list: write a mapping"),
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
        assert done.returncode == 2
        assert "Address already in use; choose another --web.listen-address" in done.stderr
        assert done.stderr.count("\n") == 1


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
        with socket.create_connection(("127.0.0.1", node.port), timeout=60) as connection:
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
        assert node.process.wait(120) == 0
