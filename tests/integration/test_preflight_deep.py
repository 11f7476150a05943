"""`preflight --deep` and a real hub: verdicts, refusals, and that no test goes on afterwards."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.agentorders import AgentOrders
from testbed.badserver import BadServer
from testbed.hub import HubProcess, RefusedCallError
from testbed.node import PYTHON, environment, free_port, run, take_interrupts, wait_until
from testbed.standin import stand_in

TEST = {"tool": "perftest", "device": "mlx5_0"}
TOKENS = {"reader": "read", "runner": "run"}
LONG_SECONDS = 600.0
# What is reached in it is not what is tested: it ends a test that has failed.
PATIENT = "5m"


def hub_config(folder: Path, agents: AgentOrders) -> dict[str, Any]:
    """A hub with tokens, and a preset that says how fast a pair is."""
    tokens = [
        {"name": name, "role": role, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        for name, role in TOKENS.items()
    ]
    (folder / "tokens.yaml").write_text(yaml.safe_dump(tokens))
    for name in (*TOKENS, "stranger"):
        (folder / name).write_text(name)
    return {
        **agents.config,
        "access": {"anonymous": None, "tokens_file": str(folder / "tokens.yaml")},
        "presets": {"links": {"kind": "matrix", "test": TEST, "expected": "80 Gbit/s"}},
        "limits": {"running": 1, "queued": 1},
    }


class Bed:
    """The hub, the agents that it asks, and the agent that preflight asks."""

    def __init__(self, folder: Path, agents: AgentOrders, hub: HubProcess, agent: str) -> None:
        self.folder, self.agents, self.hub, self.agent = folder, agents, hub, agent

    def options(
        self, node: str, peer: str, *more: str, url: str = "", token: str = "runner"
    ) -> list[str]:
        """The words after `preflight`."""
        url = url or f"http://127.0.0.1:{self.hub.port}"
        return [
            *("--url", self.agent, "--deep", "--hub", url, "--node", node),
            *("--nodes", f"{node},{peer}", "--port", str(self.agents.port)),
            *("--preset", "links", "--token-file", str(self.folder / token), *more),
        ]

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """A preflight that a test ends."""
        words = self.options(*self.agents.names[:2], *more)
        argv = [PYTHON, "-m", "nodevitals", "preflight", *words]
        return subprocess.Popen(
            argv, env=environment(), stdout=subprocess.PIPE, preexec_fn=take_interrupts
        )

    def none_goes_on(self) -> bool:
        """Whether all checks of the hub have ended, and all tests on the nodes."""
        ended = all(check.ended is not None for check in self.hub.list(limit=1000))
        return ended and not self.agents.active()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("deep")
    status = "\n".join(
        f'nodevitals_probe_{name}{{probe="node",target="node"}} {value}'
        for name, value in (
            ("success", 1),
            ("stuck_seconds", 0),
            ("interval_seconds", 3600),
            ("last_success_timestamp_seconds", time.time()),
        )
    )
    with (
        AgentOrders(folder, 6) as agents,
        HubProcess(folder, **hub_config(folder, agents)) as hub,
        stand_in({"/metrics": f"{status}\n".encode()}) as agent,
    ):
        bed = Bed(folder, agents, hub, agent.url)
        wait_until(lambda: preflight(bed).returncode == 0, 30, "the web server of the hub")
        yield bed


@pytest.fixture
def bed(shared: Bed) -> Iterator[Bed]:
    """After each test, nodes are well and idle."""
    shared.agents.seconds = 0.1
    for name in shared.agents.names:
        shared.agents.metrics[name] = 'nodevitals_accelerators_present{vendor="nvidia"} 8\n'
    shared.agents.slow.clear()
    yield shared
    shared.agents.seconds = 0.1
    for check in shared.hub.list(limit=1000):
        if check.ended is None:
            with suppress(RefusedCallError):  # it has ended meanwhile
                shared.hub.cancel(check.id)


def preflight(
    bed: Bed, *more: str, pair: tuple[int, int] = (0, 1), **options: str
) -> subprocess.CompletedProcess[str]:
    """One preflight to its end."""
    for name in bed.agents.names:
        bed.agents.metrics.setdefault(name, 'nodevitals_accelerators_present{vendor="nvidia"} 8\n')
    names = [bed.agents.names[one] for one in pair]
    return run("preflight", *bed.options(names[0], names[1], *more, **options))


def line(ended: subprocess.CompletedProcess[str], check: str) -> str:
    """The line of a check."""
    (found,) = [one for one in ended.stdout.splitlines() if one.startswith(check)]
    return " ".join(found.split())


def test_a_healthy_pair_passes(bed: Bed) -> None:
    ended = preflight(bed)
    assert ended.returncode == 0, ended.stdout
    assert line(ended, "node check").startswith("node check ok no fault found")
    assert line(ended, "pair test").startswith("pair test ok no fault found")
    newest = bed.hub.list(limit=2)
    assert [one.request.kind for one in newest] == ["pair", "node"]
    assert {one.request.note for one in newest} == {"preflight"}
    assert f"/checks/{newest[0].id}" in line(ended, "pair test")


def test_a_slow_pair_is_refused_by_name(bed: Bed) -> None:
    a, b, *_ = bed.agents.names
    bed.agents.slow.add(b)
    ended = preflight(bed)
    assert ended.returncode == 1
    wanted = f"pair test problem {a} - {b}: 40 % of the expected rate"
    assert line(ended, "pair test").startswith(wanted)


def test_a_node_with_a_lost_device_is_refused_by_name(bed: Bed) -> None:
    """The hub knows for seconds what a node answered: no other test uses this one."""
    lost = bed.agents.names[4]
    text = 'nodevitals_accelerators_{}{{vendor="nvidia"}} {}\n'
    bed.agents.metrics[lost] = text.format("present", 7) + text.format("expected", 8)
    ended = preflight(bed, pair=(4, 0))
    assert ended.returncode == 1
    wanted = f"node check problem {lost}: no_device: 7 of 8 devices are up"
    assert line(ended, "node check").startswith(wanted)


def test_a_peer_that_a_job_uses_is_not_tested(bed: Bed) -> None:
    used = bed.agents.names[5]
    bed.agents.metrics[used] = "nodevitals_jobs_processes 8\n"
    ended = preflight(bed, pair=(0, 5))
    assert ended.returncode == 2
    assert f"HTTP 409: in use by jobs: {used}" in line(ended, "pair test")
    assert "end the jobs on these nodes" in line(ended, "pair test")


@pytest.mark.parametrize(
    ("token", "text"),
    [("reader", "HTTP 403: needs the role run"), ("stranger", "HTTP 401: ")],
)
def test_a_token_that_may_not_start_checks_is_unknown(bed: Bed, token: str, text: str) -> None:
    before = len(bed.hub.list(limit=1000))
    ended = preflight(bed, token=token)
    assert ended.returncode == 2
    assert text in line(ended, "node check")
    assert "check --token-file" in line(ended, "node check")
    assert len(bed.hub.list(limit=1000)) == before


def test_a_preset_that_is_not_there_is_unknown(bed: Bed) -> None:
    ended = preflight(bed, "--preset", "nonexistent")
    assert ended.returncode == 2
    assert "node check ok" in line(ended, "node check")
    assert "HTTP 422: " in line(ended, "pair test")
    assert "check --node, --nodes and --preset" in line(ended, "pair test")


def says(status: str, body: bytes = b"", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (says("500 Error", b"\x1b[31moh"), "HTTP 500: \\x1b[31moh"),
        (says("200 OK", b"<html>\x1b]0;owned\x07"), "not an answer of a hub: '<html>\\\\x1b]0;"),
        (says("200 OK", b'{"id": "2026', 4000), "not HTTP: "),
        (b"\x00\xff" * 5000, "not HTTP: "),
        (b"", "not HTTP: "),
    ],
    ids=["error", "page", "half", "garbage", "nothing"],
)
def test_what_is_no_answer_of_a_hub_is_unknown(bed: Bed, answer: bytes, text: str) -> None:
    with BadServer(lambda send: send(answer)) as server:
        ended = preflight(bed, url=f"http://127.0.0.1:{server.port}")
    assert ended.returncode == 2
    assert text in line(ended, "node check")
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stderr == ""


def test_a_hub_that_is_down_is_unknown(bed: Bed) -> None:
    ended = preflight(bed, url=f"http://127.0.0.1:{free_port()}")
    assert ended.returncode == 2
    assert "Connection refused check --hub" in line(ended, "node check")
    assert "pair test" not in ended.stdout, "it was not asked for again"


def test_a_check_that_outlives_the_limit_is_canceled(bed: Bed) -> None:
    bed.agents.seconds = LONG_SECONDS
    ended = preflight(bed, "--timeout", "8s")
    assert ended.returncode == 2
    assert "unknown not finished in time raise --timeout" in line(ended, "pair test")
    wait_until(bed.none_goes_on)
    check = bed.hub.list(limit=1)[0]
    assert (check.request.kind, check.phase) == ("pair", "canceled")
    assert check.verdict is not None
    assert check.verdict.message == "canceled by runner"


def test_a_check_that_waits_behind_another_is_canceled(bed: Bed) -> None:
    bed.agents.seconds = LONG_SECONDS
    other = bed.hub.submit(kind="pair", nodes=bed.agents.names[:2], test=TEST)
    wait_until(bed.agents.active)
    ended = preflight(bed, "--timeout", "3s")
    assert ended.returncode == 2
    assert "not finished in time" in line(ended, "node check")
    assert "pair test unknown no time was left" in line(ended, "pair test")
    waiting = [one for one in bed.hub.list(limit=1000) if one.ended is None]
    assert [one.id for one in waiting] == [other.id]


def test_a_hub_that_hangs_starts_nothing_that_goes_on(bed: Bed) -> None:
    """What it has in its sockets it takes when it wakes up: then the check's own limit counts."""
    bed.agents.seconds = LONG_SECONDS
    assert bed.hub.process is not None
    bed.hub.process.send_signal(signal.SIGSTOP)
    try:
        ended = preflight(bed, "--timeout", "4s")
    finally:
        bed.hub.process.send_signal(signal.SIGCONT)
    assert ended.returncode == 2
    assert "no complete answer within" in line(ended, "node check")
    wait_until(bed.none_goes_on)


def test_a_hub_that_hangs_while_a_check_runs(bed: Bed) -> None:
    bed.agents.seconds = LONG_SECONDS
    assert bed.hub.process is not None
    started = bed.start("--timeout", "12s")
    wait_until(bed.agents.active)
    bed.hub.process.send_signal(signal.SIGSTOP)
    try:
        output = started.communicate()[0]
    finally:
        bed.hub.process.send_signal(signal.SIGCONT)
    assert started.returncode == 2, output
    wait_until(bed.none_goes_on)


def test_a_hub_that_is_started_again_while_a_check_runs(bed: Bed) -> None:
    bed.agents.seconds = 3.0
    with bed.start("--timeout", PATIENT) as started:
        wait_until(bed.agents.active)
        bed.hub.kill()
        bed.hub.start()
        output = started.communicate()[0]
    assert started.returncode == 0, output


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 2), (signal.SIGINT, 2), (signal.SIGKILL, -9)]
)
def test_a_preflight_that_is_ended_leaves_no_check(bed: Bed, number: int, status: int) -> None:
    """Of one that is killed, the check has a limit of its own."""
    bed.agents.seconds = LONG_SECONDS
    with bed.start("--timeout", "12s" if number == signal.SIGKILL else PATIENT) as started:
        wait_until(bed.agents.active)
        started.send_signal(number)
        started.communicate()
    assert started.returncode == status
    wait_until(bed.none_goes_on)
    check = bed.hub.list(limit=1)[0]
    assert check.phase == ("done" if number == signal.SIGKILL else "canceled")


def test_preflights_at_once_wait_for_each_other(bed: Bed) -> None:
    """Also where the hub's queue has fewer places than there are preflights."""
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2)]
    with ThreadPoolExecutor() as threads:
        ended = list(
            threads.map(lambda pair: preflight(bed, "--timeout", PATIENT, pair=pair), pairs)
        )
    assert [one.returncode for one in ended] == [0] * len(pairs), [one.stdout for one in ended]
    wait_until(bed.none_goes_on)
