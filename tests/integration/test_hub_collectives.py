"""Collectives of a hub process: mpirun over ssh, both stand-ins, and what agents say of nodes.

Nodes are addresses of the loopback interface; their agents' /metrics are texts of the test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed import mpi, programs
from testbed.agentorders import AgentOrders
from testbed.hub import HubProcess
from testbed.node import wait_until
from testbed.ssh import Nodes

COUNT = 2
RAILS = 4


def metrics(devices: int = 8, processes: int = 0) -> str:
    """What an agent exposes: devices that are up, out of eight, and processes on the first."""
    lines = ["# TYPE nodevitals_accelerator_up gauge"]
    lines += [
        f'nodevitals_accelerator_up{{vendor="nvidia",device="{number}"}} {int(number < devices)}'
        for number in range(8)
    ]
    lines += ["# TYPE nodevitals_accelerator_processes gauge"]
    lines += [f'nodevitals_accelerator_processes{{vendor="nvidia",device="0"}} {processes}']
    lines += ["# TYPE nodevitals_rdma_port_up gauge"]
    lines += [
        f'nodevitals_rdma_port_up{{device="mlx5_{number}",port="1"}} 1' for number in range(RAILS)
    ]
    return "\n".join(lines) + "\n"


def hardware(ports: int = 8) -> str:
    """What an agent exposes of eight H100 and their ports of 400 Gb/s."""
    lines = [metrics()]
    for number in range(8):
        gpu = f'device="{number}",uuid="GPU-{number}"'
        lines += [
            f'nodevitals_accelerator_info{{{gpu},model="NVIDIA H100 80GB HBM3"}} 1',
            f"nodevitals_nvidia_nvlinks_expected{{{gpu}}} 18",
        ]
    for number in range(ports):
        port = f'device="mlx5_{number}",port="1",link_layer="InfiniBand"'
        lines += [
            f'nodevitals_rdma_device_info{{device="mlx5_{number}",hca_type="MT4129"}} 1',
            f"nodevitals_rdma_port_expected_rate_bytes_per_second{{{port}}} 5e+10",
        ]
    return "\n".join(lines) + "\n"


class Site:
    """Agents, ssh and mpirun, and a hub that uses them."""

    def __init__(self, folder: Path, agents: AgentOrders) -> None:
        self.agents = agents
        self.names = agents.names
        agents.metrics.update({name: metrics() for name in agents.names})
        self._nodes = Nodes(folder / "nodes")
        for name in agents.names:
            self._nodes.add(name)
        programs.install(folder / "nodes/bin", "mpi", mpi.PROGRAMS)
        (folder / "service").mkdir()
        config = {"collectives": {"launcher": "mpirun"}, **agents.config}
        self.hub = HubProcess(folder / "service", **config)
        self.record = folder / "record"
        self.output = folder / "output"
        self.hub.environment = {
            "PATH": f"{folder / 'nodes/bin'}:{os.environ['PATH']}",
            "FAKE_COLLECTIVE_RECORD": str(self.record),
            "EVERY_SECONDS": "0.1",
            "SETTLE_SECONDS": "0.5",
        }

    def started(self) -> None:
        """Wait until a collective runs."""
        wait_until(self.record.exists, 30, "the ranks")

    def left(self) -> list[psutil.Process]:
        """Processes of a collective."""
        return [one for one in psutil.process_iter() if self._is_of_a_run(one)]

    def _is_of_a_run(self, process: psutil.Process) -> bool:
        try:
            return any("all_reduce_perf" in word for word in process.cmdline())
        except psutil.Error:
            return False


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Two nodes, idle, with eight devices each."""
    (tmp_path / "agents").mkdir()
    with AgentOrders(tmp_path / "agents", COUNT) as agents:
        yield Site(tmp_path, agents)


def test_a_node_with_seven_of_eight_devices_is_named_before_the_test(site: Site) -> None:
    """It lost one a moment ago: what the hub had read of it just before has eight."""
    short = site.names[1]
    with site.hub as hub:
        wanted: dict[str, Any] = {
            "kind": "collective",
            "nodes": site.names,
            "expected_bytes_per_second": 1e9,
        }
        first = hub.ended(hub.submit(**wanted).id).check
        assert first.verdict is not None
        assert first.verdict.outcome == "ok", first.verdict
        site.agents.metrics[short] = metrics(devices=7)
        detail = hub.ended(hub.submit(**wanted).id)
        verdict = detail.check.verdict
        assert verdict is not None
        assert (verdict.outcome, verdict.reason) == ("bad", "hardware"), verdict
        found = [(one.subject, one.scope, one.message) for one in verdict.findings]
        assert found == [(short, "node", "7 of 8 devices are up")]
        assert detail.results == ()
        seven = {"devices_per_node": 7}
        enough = hub.ended(hub.submit(**wanted, test=seven).id).check
        assert enough.verdict is not None
        assert enough.verdict.outcome == "ok", enough.verdict


def test_the_slow_rail_is_named(site: Site) -> None:
    """The request names no device: those that the agents of all nodes know are compared."""
    rate = (1 << 30) / (mpi.MICROSECONDS / 1e6) * 2 * 15 / 16
    site.hub.environment["FAKE_COLLECTIVE_SLOW"] = "mlx5_2"
    with site.hub as hub:
        check = hub.submit(kind="collective", nodes=site.names, expected_bytes_per_second=rate)
        detail = hub.ended(check.id)
        verdict = detail.check.verdict
        assert verdict is not None
        assert (verdict.outcome, verdict.reason) == ("bad", "threshold"), verdict
        found = [(one.subject, one.scope, one.message) for one in verdict.findings]
        assert found == [("mlx5_2", "rail", "40 % of the other rails")]
        assert detail.results[0].rails == ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def test_a_job_that_takes_a_node_ends_the_collective(site: Site) -> None:
    """Its own ranks are no job; one process more than those is."""
    site.hub.environment["FAKE_COLLECTIVE_SECONDS"] = "1"
    with site.hub as hub:
        check = hub.submit(kind="collective", nodes=site.names, expected_bytes_per_second=1e9)
        site.started()
        site.agents.metrics[site.names[1]] = metrics(processes=8)
        verdict = hub.ended(check.id).check.verdict
        assert verdict is not None
        assert verdict.outcome == "ok", verdict
        hub.kill()
        site.record.unlink()
        site.agents.metrics[site.names[1]] = metrics()
        hub.environment["FAKE_COLLECTIVE_SECONDS"] = "60"
        hub.start()
        check = hub.submit(kind="collective", nodes=site.names)
        site.started()
        site.agents.metrics[site.names[1]] = metrics(processes=9)
        verdict = hub.ended(check.id).check.verdict
        assert verdict is not None
        assert (verdict.outcome, verdict.reason) == ("unknown", "workload"), verdict
        assert verdict.message == f"peer_busy: in use by jobs: {site.names[1]}"
        wait_until(lambda: not site.left())  # what is killed ends a moment later


def test_a_job_between_two_steps_ends_the_search(site: Site) -> None:
    site.hub.environment |= {"FAKE_COLLECTIVE_WRONG": "3", "FAKE_COLLECTIVE_SECONDS": "1"}
    with site.hub as hub:
        check = hub.submit(kind="collective", nodes=site.names)
        site.started()
        site.agents.metrics[site.names[0]] = metrics(processes=1)
        detail = hub.ended(check.id)
        verdict = detail.check.verdict
        assert verdict is not None
        text = f"the search ended: peer_busy: in use by jobs: {site.names[0]}"
        assert text in verdict.message
        first, *others = detail.results
        assert first.reports[0].reason == "corruption"
        assert others
        assert {one.reports[0].reason for one in others} <= {"peer_busy", "corruption"}
        assert others[-1].reports[0].reason == "peer_busy"


@pytest.mark.parametrize("silent", [False, True])
def test_an_unreachable_node_is_hardware_while_its_agent_answers(site: Site, silent: bool) -> None:
    """What NCCL prints is the same in both cases."""
    site.output.write_text("gpu-a:1:2 [3] NCCL WARN Got completion from peer with error 12\n")
    site.hub.environment |= {
        "FAKE_COLLECTIVE_OUTPUT": str(site.output),
        "FAKE_COLLECTIVE_STATUS": "3",
    }
    if silent:
        del site.agents.metrics[site.names[1]]
    with site.hub as hub:
        check = hub.submit(kind="collective", nodes=site.names, isolate=False)
        verdict = hub.ended(check.id).check.verdict
    assert verdict is not None
    assert verdict.reason == ("harness" if silent else "hardware"), verdict
    assert (f"no answer from the agents of {site.names[1]}" in verdict.message) == silent


def test_first_collective_is_held_against_the_hardware(site: Site) -> None:
    """Of two nodes 0.9 of eight ports, of one node its NVLinks; without facts it is unknown."""
    site.agents.metrics.update({name: hardware() for name in site.names})
    with site.hub as hub:
        good = hub.ended(hub.submit(kind="collective", nodes=site.names).id).check
        assert good.verdict is not None
        assert (good.verdict.outcome, good.bus and good.bus.bytes_per_second) == ("ok", 360e9)
        hub.kill()
        hub.environment["FAKE_COLLECTIVE_TIME"] = "25000"  # 80.5 GB/s
        hub.start()
        test = {"iterations": 21}  # another test: it has no past
        slow = hub.ended(hub.submit(kind="collective", nodes=site.names, test=test).id).check
        assert slow.verdict is not None
        assert (slow.verdict.outcome, slow.verdict.reason) == ("bad", "threshold"), slow.verdict
        assert "80.5 of 360 GB/s on its bus, 22 % (8 ports of 400 Gb/s" in slow.verdict.message
        alone = hub.ended(hub.submit(kind="collective", nodes=site.names[:1]).id).check
        assert alone.verdict is not None
        [found] = alone.verdict.findings
        assert (found.subject, found.scope) == (site.names[0], "node")
        assert "75.2 of 427 GB/s on its bus, 18 % (18 NVLink links" in found.message
        site.agents.metrics[site.names[1]] = hardware(ports=0)
        test = {"iterations": 22}
        unknown = hub.ended(hub.submit(kind="collective", nodes=site.names, test=test).id).check
        assert unknown.verdict is not None
        assert (unknown.verdict.outcome, unknown.bus) == ("unknown", None)
