"""A hub as a process, with stand-ins for the agents."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodevitals.checks.model import Check
from testbed.agentorders import (
    PORT_BYTES_PER_SECOND,
    USUAL_BYTES_PER_SECOND,
    AgentOrders,
)
from testbed.hub import HubProcess, RefusedCallError
from testbed.node import SOURCES, wait_until

TEST = {"tool": "perftest", "device": "mlx5_0"}


QUICK = 0.1


@pytest.fixture(scope="module")
def shared_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentOrders]:
    with AgentOrders(tmp_path_factory.mktemp("agents"), 8, seconds=QUICK) as found:
        yield found


@pytest.fixture(scope="module")
def shared_hub(
    tmp_path_factory: pytest.TempPathFactory, shared_agents: AgentOrders
) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub"), **shared_agents.config) as hub:
        yield hub


@pytest.fixture
def agents(shared_agents: AgentOrders) -> Iterator[AgentOrders]:
    """Eight nodes; after each test, they are idle and well."""
    yield shared_agents
    shared_agents.seconds = QUICK
    shared_agents.crashes = False
    shared_agents.rate = USUAL_BYTES_PER_SECOND
    shared_agents.port_rate = PORT_BYTES_PER_SECOND
    shared_agents.executions.clear()
    for changed in (
        *(shared_agents.slow, shared_agents.hung, shared_agents.metrics),
        *(shared_agents.occupied, shared_agents.jobs),
        *(shared_agents.gone, shared_agents.unreached),
    ):
        changed.clear()


@pytest.fixture
def hub(agents: AgentOrders, shared_hub: HubProcess) -> Iterator[HubProcess]:
    """A hub that others have used; after each test, no check goes on."""
    yield shared_hub
    for check in shared_hub.list(limit=1000):
        if check.ended is None:
            shared_hub.cancel(check.id)
    wait_until(lambda: not agents.active())


def test_a_matrix_names_the_slow_node_and_the_next_has_a_baseline(
    tmp_path: Path, agents: AgentOrders
) -> None:
    agents.slow.add(agents.names[3])
    with HubProcess(tmp_path, **agents.config) as hub:
        check = hub.submit(kind="matrix", nodes=agents.names, test=TEST)
        detail = hub.ended(check.id)
        verdict = detail.check.verdict
        assert verdict is not None
        assert (verdict.outcome, verdict.reason) == ("bad", "threshold"), verdict
        assert [one.subject for one in verdict.findings] == [agents.names[3]]
        # 28 pairs in both directions, and those of the slow node once more.
        assert detail.check.cost.runs == 56
        assert len(detail.results) == detail.check.runs_done == detail.check.runs == 56 + 14
        assert set(agents.executions.values()) == {1}
        assert len(agents.executions) == 70
        run = detail.results[0]
        source, target = run.nodes
        assert run.commands == (f"# {target}\nperftest\n# {source}\nperftest {target}",)
        assert run.outputs == (f"# {source}\nas {source}",)
        assert run.ports_bytes_per_second == ((12.5e9, 12.5e9),)
        assert run.port_limits == (("PCIe 8.0 GT/s x4 of 8.0 GT/s x16",) * 2,)
        agents.slow.clear()
        first = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id)
        assert first.check.verdict is not None
        assert (first.check.verdict.outcome, first.check.baseline) == ("ok", None)
        second = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id)
        assert second.check.baseline == second.check.figure == first.check.figure == 10e9
        assert hub.kill(signal.SIGTERM) == 0
        hub.start()
        assert hub.detail(check.id) == detail
        assert not agents.active()


def test_pairs_without_a_reference_are_unknown_and_are_none_for_the_next(
    tmp_path: Path, agents: AgentOrders
) -> None:
    """Until a rate is expected once. What is slower than a past without a reference is bad."""
    agents.port_rate = None
    nodes = agents.names[:2]
    with HubProcess(tmp_path, **agents.config) as hub:

        def checked(**more: Any) -> Check:
            return hub.ended(hub.submit(kind="pair", nodes=nodes, test=TEST, **more).id).check

        first, second = checked(), checked()
        for one in (first, second):
            assert one.verdict is not None
            assert (one.verdict.outcome, one.verdict.reason) == ("unknown", "threshold")
            assert "reached 80 Gb/s; no reference: give --expected" in one.verdict.message
        assert (first.baseline, second.baseline, second.baseline_ok) == (None, 10e9, False)
        agents.rate = 4e9
        slower = checked()
        assert slower.verdict is not None
        assert (slower.verdict.outcome, slower.verdict.reason) == ("bad", "threshold")
        agents.rate = 10e9
        expected = checked(expected_bytes_per_second=10e9)
        after = checked()
        for one in (expected, after):
            assert one.verdict is not None
            assert one.verdict.outcome == "ok", one.verdict
        assert (after.baseline, after.baseline_ok) == (10e9, True)


def test_pairs_far_below_the_rate_of_their_ports_are_repeated_and_bad(
    agents: AgentOrders, hub: HubProcess
) -> None:
    agents.rate = 0.1e9
    test = {**TEST, "sizes": "1MiB"}
    for nodes in (agents.names[:2], agents.names[:4]):
        kind = "pair" if len(nodes) == 2 else "matrix"
        detail = hub.ended(hub.submit(kind=kind, nodes=nodes, test=test).id)
        verdict, planned = detail.check.verdict, detail.check.cost.runs
        assert verdict is not None
        assert (verdict.outcome, verdict.reason) == ("bad", "hardware"), verdict
        assert "reached 0.8 of 100 Gb/s, 1 %, also when it was repeated" in verdict.message
        again = 3 if kind == "pair" else 2
        assert [one.number for one in detail.results] == list(range(again * planned))
    agents.rate = 4e9
    between = hub.ended(hub.submit(kind="pair", nodes=agents.names[2:4], test=test).id)
    assert len(between.results) == 2
    assert between.check.verdict is not None
    assert between.check.verdict.outcome == "unknown"
    assert "reached 32 of 100 Gb/s, 32 %; no reference" in between.check.verdict.message


def test_a_node_has_one_check_at_a_time_and_none_is_overtaken(
    agents: AgentOrders, hub: HubProcess
) -> None:
    agents.seconds = 0.5
    a, b, c, d, e, *_ = agents.names
    first = hub.submit(kind="pair", nodes=[a, b], test=TEST)
    second = hub.submit(kind="pair", nodes=[b, c], test=TEST)
    third = hub.submit(kind="pair", nodes=[c, d], test=TEST)
    other = hub.submit(kind="pair", nodes=[d, e], test=TEST)
    ended = [hub.ended(one.id).check for one in (first, second, third, other)]
    starts = [one.started or 0.0 for one in ended]
    ends = [one.ended or 0.0 for one in ended]
    assert ends[0] <= starts[1]
    assert ends[1] <= starts[2]
    assert ends[2] <= starts[3]
    assert all(one.verdict and one.verdict.outcome == "ok" for one in ended)


def test_the_same_key_starts_one_check(agents: AgentOrders, hub: HubProcess) -> None:
    one = hub.submit("k", kind="pair", nodes=agents.names[:2], test=TEST)
    assert hub.submit("k", kind="pair", nodes=agents.names[:2], test=TEST).id == one.id
    hub.ended(one.id)
    hub.kill()
    hub.start()
    assert hub.submit("k", kind="pair", nodes=agents.names[:2], test=TEST).id == one.id
    assert sum(agents.executions.values()) == 2
    assert [check.id for check in hub.list(limit=1000)].count(one.id) == 1


def test_cancel_ends_the_tests_and_frees_the_nodes(agents: AgentOrders, hub: HubProcess) -> None:
    agents.seconds = 60
    running = hub.submit(kind="matrix", nodes=agents.names, test=TEST)
    waiting = hub.submit(kind="matrix", nodes=agents.names, test=TEST)
    wait_until(lambda: len(agents.active()) == 8, 20, "the first round")
    for check in (waiting, running):
        ended = hub.cancel(check.id)
        assert (ended.phase, ended.verdict and ended.verdict.message) == (
            "canceled",
            "canceled by test",
        )
    assert agents.active() == []
    with pytest.raises(RefusedCallError, match="has ended") as refused:
        hub.cancel(running.id)
    assert refused.value.kind == "conflict"
    agents.seconds = 0.1
    again = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id).check
    assert again.verdict is not None
    assert again.verdict.outcome == "ok"


def test_a_time_limit_ends_a_check(agents: AgentOrders, hub: HubProcess) -> None:
    agents.seconds = 60
    nodes = agents.names[:2]
    check = hub.submit(kind="pair", nodes=nodes, test=TEST, limit_seconds=1)
    ended = hub.ended(check.id).check
    assert ended.verdict is not None
    assert (ended.phase, ended.verdict.outcome, ended.verdict.reason) == (
        "done",
        "unknown",
        "harness",
    )
    assert "time limit of 1 s" in ended.verdict.message
    assert agents.active() == []


def test_a_hung_agent_delays_no_other_check(agents: AgentOrders, hub: HubProcess) -> None:
    a, b, c, d, *_ = agents.names
    agents.hung.add(a)
    hung = hub.submit(kind="pair", nodes=[b, a], test=TEST, limit_seconds=1)
    well = hub.ended(hub.submit(kind="pair", nodes=[c, d], test=TEST).id).check
    assert well.verdict is not None
    assert well.verdict.outcome == "ok"
    ended = hub.ended(hung.id).check
    assert ended.verdict is not None
    assert (ended.verdict.outcome, ended.verdict.reason) == ("unknown", "harness")
    agents.hung.clear()


def test_a_node_that_no_partner_reaches_is_hardware(agents: AgentOrders, hub: HubProcess) -> None:
    node = agents.names[2]
    agents.unreached.add(node)
    check = hub.submit(kind="matrix", nodes=agents.names[:4], test=TEST)
    verdict = hub.ended(check.id).check.verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == ("bad", "hardware"), verdict
    (found,) = verdict.findings
    assert (found.subject, found.scope, found.reason) == (node, "node", "hardware")
    assert "6 of 6 tests failed: unreachable" in found.message


def test_an_agent_that_ends_under_a_test_says_nothing_about_its_node(
    agents: AgentOrders, hub: HubProcess
) -> None:
    """Its partner reports that it is unreachable; the hub knows that its agent does not answer."""
    node = agents.names[1]
    agents.unreached.add(node)
    agents.crashes = True
    detail = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id)
    verdict = detail.check.verdict
    assert verdict is not None
    assert (verdict.outcome, verdict.reason) == ("unknown", "harness"), verdict
    assert detail.results[0].skipped == "no_agent"
    assert f"agent of {node}" in detail.results[0].outputs[0]


@pytest.mark.parametrize("end", [0, 1])
def test_a_node_with_a_planned_test_is_asked_again(
    agents: AgentOrders, hub: HubProcess, end: int
) -> None:
    agents.occupied[agents.names[end]] = 3
    detail = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id)
    assert detail.check.verdict is not None
    assert (detail.check.verdict.outcome, detail.results[0].skipped) == ("ok", "")
    assert list(agents.executions.values()) == [1, 1]


def test_the_reason_of_the_target_is_that_of_the_run(agents: AgentOrders, hub: HubProcess) -> None:
    agents.jobs[agents.names[1]] = "accelerator_in_use"
    detail = hub.ended(hub.submit(kind="pair", nodes=agents.names[:2], test=TEST).id)
    assert detail.check.verdict is not None
    assert detail.results[0].skipped == "accelerator_in_use"
    assert (detail.check.verdict.outcome, detail.check.verdict.reason) == ("unknown", "workload")


def test_a_second_hub_on_the_directory_refuses(agents: AgentOrders, hub: HubProcess) -> None:
    own = {**os.environ, "PYTHONPATH": SOURCES}
    argv = [sys.executable, "-m", "nodevitals", "hub", f"--config.file={hub.config}"]
    second = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=own)
    assert second.returncode == 2
    assert second.stderr.count("\n") == 1
    assert "another hub on" in second.stderr
    hub.call("list")


@pytest.mark.parametrize(
    ("request_", "kind", "text"),
    [
        ({"kind": "pair", "nodes": ["nowhere", "127.0.1.1"]}, "invalid", "nowhere"),
        ({"kind": "pair", "nodes": ["127.0.1.1", "127.0.1.2"], "force": True}, "forbidden", "act"),
        ({"kind": "collective", "nodes": ["127.0.1.1", "127.0.1.2"]}, "invalid", "launcher"),
    ],
)
def test_refusals(hub: HubProcess, request_: dict[str, object], kind: str, text: str) -> None:
    before = hub.list(limit=1000)
    test = {} if request_["kind"] == "collective" else TEST
    with pytest.raises(RefusedCallError, match=text) as refused:
        hub.call("submit", request={**request_, "test": test})
    assert refused.value.kind == kind
    assert hub.list(limit=1000) == before


METRICS = """\
# HELP nodevitals_accelerator_up Whether it answers.
# TYPE nodevitals_accelerator_up gauge
nodevitals_accelerator_up{vendor="nvidia",device="0",uuid="a"} 1
nodevitals_accelerator_up{vendor="nvidia",device="1",uuid="b"} {second}
nodevitals_accelerators_expected{vendor="nvidia"} 2
nodevitals_accelerator_processes{vendor="nvidia",device="0",uuid="a"} {processes}
nodevitals_build_info{version="1.2",python_version="3.11"} 1
nodevitals_probe_success{probe="nvidia",target=""} 1
"""


def metrics(second: int = 1, processes: int = 0) -> str:
    return METRICS.replace("{second}", str(second)).replace("{processes}", str(processes))


def test_nodes_in_use_are_refused(tmp_path: Path, agents: AgentOrders) -> None:
    a, b, *_ = agents.names
    agents.metrics.update({a: metrics(), b: metrics(processes=2)})
    with HubProcess(tmp_path, **agents.config) as hub:  # it keeps what it has read
        with pytest.raises(RefusedCallError, match=f"in use by jobs: {b};") as refused:
            hub.submit(kind="pair", nodes=[a, b], test=TEST)
        assert refused.value.kind == "conflict"
        forced = hub.submit(kind="pair", nodes=[a, b], test=TEST, force=True, role="act")
        verdict = hub.ended(forced.id).check.verdict
        assert verdict is not None
        assert verdict.outcome == "ok"


def test_a_node_check_names_lost_devices_and_silent_agents(
    tmp_path: Path, agents: AgentOrders
) -> None:
    a, b, c, *_ = agents.names
    agents.metrics.update({a: metrics(), b: metrics(second=0)})
    with HubProcess(tmp_path, **agents.config) as hub:  # it keeps what it has read
        detail = hub.ended(hub.submit(kind="node", nodes=[a, b, c]).id)
        verdict = detail.check.verdict
        assert verdict is not None
        assert verdict.outcome == "bad"
        found = [(one.subject, one.reason, one.message) for one in verdict.findings]
        assert found == [
            (b, "hardware", "no_device: 1 of 2 devices are up"),
            (c, "harness", "harness: /metrics: HTTP 404"),
        ]
        assert detail.results[0].versions == {"nodevitals": "1.2"}


def test_a_full_queue_refuses_and_sighup_reads_the_configuration_again(
    tmp_path: Path, agents: AgentOrders
) -> None:
    agents.seconds = 60
    nodes = agents.names[:2]
    with HubProcess(tmp_path, **agents.config, limits={"queued": 1}) as hub:
        hub.submit(kind="pair", nodes=nodes, test=TEST)
        wait_until(lambda: hub.list()[0].phase == "running")
        hub.submit(kind="pair", nodes=nodes, test=TEST)
        with pytest.raises(RefusedCallError, match=r"limits\.queued") as refused:
            hub.submit(kind="pair", nodes=nodes, test=TEST)
        assert refused.value.kind == "busy"
        text = hub.config.read_text()
        assert hub.process is not None
        hub.config.write_text("nonsense: 1\n")
        hub.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: " in hub.log.read_text(), 20)
        assert "nonsense" in hub.log.read_text()
        assert "reload: done" not in hub.log.read_text()
        hub.config.write_text(text.replace("queued: 1", "queued: 3"))
        hub.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "reload: done" in hub.log.read_text(), 20)
        hub.submit(kind="pair", nodes=nodes, test=TEST)
        assert len(hub.list()) == 3
