"""Configuration files that cannot be read: the agent reads them in a process with a deadline."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import bcrypt
import psutil
import pytest
import requests
import trustme

from testbed.faultyfs import FaultyFileSystem
from testbed.node import Node, run, wait_until

FAMILY = "nodevitals_config_last_reload_successful"
# The deadline of a load, shorter than in production.
SHORT = "import nodevitals.engine.loader as loader; loader.LOAD_SECONDS = 1.5"
# The same for reloads only: the first load is to succeed.
SHORT_RELOADS = """import nodevitals.engine.loader as loader
from nodevitals.agent import Agent
serve = Agent.serve
def serve_with_short_reloads(*arguments):
    loader.LOAD_SECONDS = 1.5
    serve(*arguments)
Agent.serve = serve_with_short_reloads
"""

REPORT_OPENS = """import os, sys, threading
agent = os.getpid()
def report(event, arguments):
    own = os.getpid() == agent and threading.current_thread() is threading.main_thread()
    if event == "open" and own:
        print("main thread opens", arguments[0], file=sys.stderr)
sys.addaudithook(report)
"""


def settings(*behaviours: str, **more: object) -> dict[str, Any]:
    """Return a configuration with fast targets."""
    misbehave = {"behaviours": list(behaviours), "interval": "200ms"}
    return {"probes": {"misbehave": misbehave}, **more}


@pytest.fixture
def filer(tmp_path: Path) -> Iterator[FaultyFileSystem]:
    with FaultyFileSystem(tmp_path) as mounted:
        yield mounted


@pytest.fixture
def remote(tmp_path: Path, filer: FaultyFileSystem) -> Node:
    """A node, not started, whose configuration is on a file system that can hang."""
    node = Node(tmp_path, settings("healthy"), "--web.enable-lifecycle")
    (filer.backing / "nodevitals.yaml").write_text(node.config_file.read_text())
    node.config_file = filer.mountpoint / "nodevitals.yaml"
    return node


def reload(node: Node) -> tuple[int, str]:
    """Request a reload; the status and the text of the response."""
    response = node.session.post(f"{node.url}/-/reload", timeout=60)
    return response.status_code, response.text


def hanging(children: list[psutil.Process]) -> list[int]:
    """Those of these processes that wait for the file system of the test bed, killed or not."""
    found = []
    for child in children:
        with suppress(OSError):
            if Path(f"/proc/{child.pid}/wchan").read_text() == "request_wait_answer":
                found.append(child.pid)
    return found


def loaders(node: Node) -> list[int]:
    """The processes of an agent that hang in loading the configuration."""
    return hanging(psutil.Process(node.process.pid).children(recursive=True))


def test_reload_from_a_hung_file_system_ends_at_a_deadline(
    remote: Node, filer: FaultyFileSystem
) -> None:
    """The agent goes on meanwhile; the process that hangs is not joined by another one, and a
    reload works once the file can be read again.
    """
    remote.prelude = SHORT_RELOADS
    with remote as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        filer.fault("hang")
        status, text = reload(node)
        assert (status, text.count("\n")) == (500, 1)
        assert f"{node.config_file}: no result within 1.5 s" in text
        wait_until(lambda: "still the configuration of 20" in node.log())
        wait_until(lambda: node.value(FAMILY) == 0)
        assert node.get("/healthz").status_code == 200
        (hung,) = wait_until(lambda: loaders(node))
        wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 1)
        status, text = reload(node)
        assert status == 500
        assert "process of the last load still hangs" in text
        assert loaders(node) == [hung]
        runs = node.value("nodevitals_probe_runs_total", target="healthy", outcome="ok") or 0
        wait_until(
            lambda: (
                (node.value("nodevitals_probe_runs_total", target="healthy", outcome="ok") or 0)
                > runs
            )
        )
        filer.fault("none")
        wait_until(lambda: reload(node) == (200, "reloaded\n"))
        wait_until(lambda: node.value(FAMILY) == 1)
        wait_until(lambda: node.value("nodevitals_worker_processes", state="stuck") == 0)


def test_sigterm_ends_the_agent_during_a_reload_that_hangs(
    remote: Node, filer: FaultyFileSystem
) -> None:
    with remote as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        filer.fault("hang")
        node.hang_up()
        wait_until(lambda: loaders(node))
        assert node.get("/healthz").status_code == 200
        node.end()
        assert node.process.returncode == 0


def test_requests_during_a_load_are_answered_by_the_next_one(
    remote: Node, filer: FaultyFileSystem
) -> None:
    """The files may have changed since the load under way has read them."""
    with remote as node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        filer.fault("hang")
        node.hang_up()
        wait_until(lambda: loaders(node))
        text = (filer.backing / "nodevitals.yaml").read_text()
        (filer.backing / "nodevitals.yaml").write_text(text.replace("healthy", "healthy-2"))
        node.hang_up()
        filer.fault("none")
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy-2") == 1)


def start(node: Node) -> subprocess.Popen[bytes]:
    """Start a node without waiting for its port."""
    with node.log_file.open("ab") as log:
        return subprocess.Popen(node.command(), env=node.environment, stderr=log)


def test_start_from_a_hung_file_system_ends_at_a_deadline(
    remote: Node, filer: FaultyFileSystem
) -> None:
    remote.prelude = SHORT
    filer.fault("hang")
    assert start(remote).wait(120) == 2
    assert f"{remote.config_file}: no result within 1.5 s" in remote.log()
    assert remote.log().count("\n") == 1


def test_sigterm_ends_a_start_that_hangs(remote: Node, filer: FaultyFileSystem) -> None:
    filer.fault("hang")
    process = start(remote)
    wait_until(lambda: hanging(psutil.Process(process.pid).children(recursive=True)))
    process.terminate()
    assert process.wait(120) == 0
    assert remote.log() == ""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [fifo, device, folder])
def test_special_file_in_place_of_the_configuration_is_refused(tmp_path: Path, make: Any) -> None:
    """At once, in one line, by the start, by a reload and by check-config."""
    with Node(tmp_path, settings("healthy"), "--web.enable-lifecycle") as node:
        text = node.config_file.read_text()
        node.config_file.unlink()
        make(node.config_file)
        expected = f"{node.config_file}: not a regular file: name a file\n"
        assert reload(node) == (500, expected)
        wait_until(lambda: node.value(FAMILY) == 0)
        for command in (["check-config"], ["serve", "--config.file"]):
            done = run(*command, str(node.config_file))
            assert (done.returncode, done.stderr) == (2, expected)
        node.config_file.rmdir() if make is folder else node.config_file.unlink()
        node.config_file.write_text(text)
        assert reload(node) == (200, "reloaded\n")
        wait_until(lambda: node.value(FAMILY) == 1)


def test_configuration_behind_links_is_reloaded(tmp_path: Path) -> None:
    """A ConfigMap is a link to a file below a link that Kubernetes replaces."""
    node = Node(tmp_path, settings("healthy"), "--web.enable-lifecycle")
    first, second = tmp_path / "..first", tmp_path / "..second"
    for version, behaviour in ((first, "healthy"), (second, "healthy-2")):
        version.mkdir()
        text = node.config_file.read_text().replace("healthy", behaviour)
        (version / "nodevitals.yaml").write_text(text)
    data = tmp_path / "..data"
    data.symlink_to(first.name)
    node.config_file.unlink()
    node.config_file.symlink_to("..data/nodevitals.yaml")
    with node:
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy") == 1)
        (tmp_path / "..new").symlink_to(second.name)
        (tmp_path / "..new").replace(data)
        assert reload(node) == (200, "reloaded\n")
        wait_until(lambda: node.value("nodevitals_probe_success", target="healthy-2") == 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# " + "x" * 2**20, "larger than 1024 KiB"),
        ("probes: {mounts: {targets: [" + "a," * 20_000 + "]}}", "20000 items, over 10000"),
        (
            "probes: {mounts: {targets: ["
            + ",".join(f"{{path: /{n}}}" for n in range(6000))
            + "]}}",
            "targets, over 5000",
        ),
    ],
    ids=["bytes", "items", "targets"],
)
def test_large_configuration_is_refused_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    with Node(tmp_path, settings("healthy"), "--web.enable-lifecycle") as node:
        node.config_file.write_text(text)
        status, answer = reload(node)
        assert status == 500
        assert message in answer
        assert answer.count("\n") == 1
        assert node.get("/healthz").status_code == 200
        assert run("check-config", str(node.config_file)).stderr == answer


@pytest.mark.parametrize(
    ("hashed", "message"),
    [
        (
            "$2b$17$22VEZxFhfui4J.Wd/sNdAefHcq1Bl74hpXHxi1NDdFl4Z28wgxETq",
            "cost 17, outside 4 to 14",
        ),
        (
            "$2b$31$22VEZxFhfui4J.Wd/sNdAefHcq1Bl74hpXHxi1NDdFl4Z28wgxETq",
            "cost 31, outside 4 to 14",
        ),
        (
            "$2b$03$22VEZxFhfui4J.Wd/sNdAefHcq1Bl74hpXHxi1NDdFl4Z28wgxETq",
            "cost 03, outside 4 to 14",
        ),
        ("$2b$10$22VEZxFhfui4J.Wd/sNdAf", "not a bcrypt hash"),
        ("$2b$10$22VEZxFhfui4J.Wd/sNdA9Hcq1Bl74hpXHxi1NDdFl4Z28wgxETqa", "not a bcrypt hash"),
        ("$1$salt$hash", "not a bcrypt hash"),
    ],
)
def test_hash_that_would_take_minutes_is_refused(tmp_path: Path, hashed: str, message: str) -> None:
    web = tmp_path / "web.yaml"
    usable = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    web.write_text(f"basic_auth_users: {{u: '{usable}'}}")
    flags = (f"--web.config.file={web}", "--web.enable-lifecycle")
    with Node(tmp_path, settings("healthy"), *flags) as node:
        node.session.auth = ("u", "secret")
        assert reload(node) == (200, "reloaded\n")
        web.write_text(f"basic_auth_users:\n  u: '{usable}'\n  v: '{hashed}'")
        status, answer = reload(node)
        assert status == 500
        assert answer.startswith(f"{web}:3:3: basic_auth_users.v: ")
        assert message in answer
        assert run("check-config", f"--web.config.file={web}").stderr == answer


def test_key_on_a_hung_file_system_does_not_hang_the_agent(
    tmp_path: Path, filer: FaultyFileSystem
) -> None:
    """The certificate and its key are read by the process with the deadline as well."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(filer.backing / "key.pem"))
    web = tmp_path / "web.yaml"
    web.write_text("{}")
    node = Node(
        tmp_path,
        settings("healthy"),
        f"--web.config.file={web}",
        "--web.enable-lifecycle",
    )
    node.prelude = SHORT_RELOADS
    with node:
        filer.fault("hang")
        web.write_text("tls_server_config: {cert_file: cert.pem, key_file: mount/key.pem}")
        status, answer = reload(node)
        assert status == 500
        assert "no result within 1.5 s" in answer
        filer.fault("none")

        def speaks_tls() -> bool:
            node.hang_up()
            try:
                url = node.url.replace("http", "https") + "/healthz"
                return requests.get(url, verify=str(tmp_path / "ca.pem"), timeout=60).ok
            except OSError:
                return False

        wait_until(speaks_tls)


def test_main_process_opens_no_file_of_the_disk_after_its_start(tmp_path: Path) -> None:
    """Not the configuration, not a key: neither at a reload nor between reloads."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    web = tmp_path / "web.yaml"
    web.write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}")
    node = Node(tmp_path, settings("healthy"), f"--web.config.file={web}", "--web.enable-lifecycle")
    node.url = node.url.replace("http", "https")
    node.session.trust_env = False  # else the environment's authorities come first
    node.session.verify = str(tmp_path / "ca.pem")
    node.prelude = REPORT_OPENS
    with node:
        for _ in range(3):
            assert reload(node) == (200, "reloaded\n")
        wait_until(lambda: "/proc/self/statm" in opened(node))
    # A number is an open descriptor: that of the key in memory.
    assert [file for file in opened(node) if not file.isdigit()] == ["/proc/self/statm"]


def opened(node: Node) -> list[str]:
    """The files that the main thread of an agent has opened since it listens."""
    _, _, log = node.log().partition("listening on")
    return sorted(set(re.findall(r"^main thread opens (.*)$", log, re.MULTILINE)))
