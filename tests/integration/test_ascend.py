"""The probe `ascend` on simulated machines: the two tools below it are all that is not real."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from testbed.node import ROOT, Node, run, wait_until
from testbed.npus import Machine

UP = "nodevitals_accelerator_up"
SUCCESS = "nodevitals_probe_success"
UNPARSED = "nodevitals_ascend_unparsed_total"


def agent(machine: Machine, **settings: Any) -> Node:
    """Return an agent on a machine, with short intervals."""
    ascend = {"interval": "4s", "timeout": "4s", "slow_interval": "4s", **machine.settings}
    probes = {"ascend": ascend | settings, "node": {"interval": "200ms"}}
    return Node(
        machine.folder, {"probes": probes}, *machine.flags, PYTHONPATH=str(ROOT / "exporter")
    )


def once(machine: Machine, **settings: Any) -> tuple[int, str, str]:
    """Run `nodevitals probe ascend`: its status, output and errors."""
    config = machine.folder / "once.yaml"
    section = {**machine.settings, **settings}
    config.write_text(json.dumps({"probes": {"ascend": section}}))
    done = run("probe", "ascend", f"--config.file={config}", *machine.flags)
    return done.returncode, done.stdout, done.stderr


def samples(text: str, family: str, *parts: str) -> list[str]:
    """Return the values of a family's samples whose labels hold all these parts."""
    lines = [line for line in text.splitlines() if line.startswith((family + "{", family + " "))]
    return [line.rsplit(" ", 1)[1] for line in lines if all(part in line for part in parts)]


@pytest.mark.parametrize(
    ("kind", "chips", "ports"), [("910B", 8, 8), ("A3", 16, 16), ("310P", 6, 0), ("950", 4, 0)]
)
def test_a_whole_machine_is_read(tmp_path: Path, kind: str, chips: int, ports: int) -> None:
    machine = Machine(tmp_path, kind).start()
    status, text, errors = once(machine)
    assert (status, errors) == (0, "")
    assert samples(text, UP) == ["1"] * chips
    assert samples(text, "nodevitals_accelerators_present") == [str(chips)]
    assert samples(text, "nodevitals_accelerator_healthy") == ["1"] * chips
    assert len(samples(text, "nodevitals_accelerator_info", "vdie_id=")) == chips
    assert len(samples(text, "nodevitals_accelerator_memory_total_bytes")) == chips
    assert samples(text, "nodevitals_ascend_link_up") == ["1"] * ports
    assert samples(text, "nodevitals_ascend_network_reachable") == ["1"] * ports
    assert set(samples(text, UNPARSED)) == {"0"}
    devices = {line.partition('device="')[2].partition('"')[0] for line in text.splitlines()}
    assert {str(one["physical"]) for one in machine.state["chips"]} <= devices
    assert not [call for call in machine.calls() if call.startswith("OVERLAP")]
    assert sum(call == "npu-smi info" for call in machine.calls()) == 1


def test_a_chips_troubles_are_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    machine.change(1, health="Alarm", codes=["80E01801", "80E38FFF"])
    machine.change(
        2, ecc={"HBM Double Bit Error Count": 3, "HBM Double Bit Isolated Pages Count": 4}
    )
    machine.change(3, link="DOWN", net_health="Receive timeout")
    machine.change(4, net_health="Init", receive_mw=["1.0", "0.0054", "1.0", "1.0"])
    machine.change(5, health="Warning")
    _, text, _ = once(machine)
    level = "nodevitals_ascend_health_level"
    assert [samples(text, level, f'device="{at}"')[0] for at in (0, 1, 5)] == ["0", "2", "1"]
    assert samples(text, "nodevitals_accelerator_healthy", 'device="5"') == ["0"]
    codes = "nodevitals_ascend_fault_code"
    known = ('code="80E01801"', 'level="restart_business"', 'action="restart_app"')
    assert samples(text, codes, *known) == ["1"]
    assert samples(text, codes, 'code="80E38FFF"', 'level="unlisted"') == ["1"]
    ecc = "nodevitals_accelerator_ecc_errors_total"
    parts = ('device="2"', 'kind="uncorrected"', 'lifetime="volatile"', 'location="hbm"')
    assert samples(text, ecc, *parts) == ["3"]
    pages = "nodevitals_ascend_isolated_pages"
    assert samples(text, pages, 'device="2"', 'kind="uncorrected"') == ["4"]
    assert samples(text, "nodevitals_ascend_link_up", 'device="3"') == ["0"]
    assert samples(text, "nodevitals_ascend_network_reachable", 'device="3"') == ["0"]
    # Whether it is reachable nobody has found out.
    assert samples(text, "nodevitals_ascend_network_reachable", 'device="4"') == []
    power = "nodevitals_ascend_optical_receive_watts"
    assert samples(text, power, 'device="4"', 'lane="1"') == ["5.4e-06"]


def test_faults_go_with_the_verdict_that_brought_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    code = "nodevitals_ascend_fault_code"
    with agent(machine, slow_interval="1h") as running:
        wait_until(lambda: running.value("nodevitals_ascend_health_level", device="1") == 0)
        machine.change(1, health="Alarm", codes=["80E01801"])
        wait_until(lambda: running.value(code, device="1") == 1)
        machine.change(1, health="OK", codes=[])
        wait_until(lambda: running.value("nodevitals_ascend_health_level", device="1") == 0)
        assert running.value(code, device="1") is None


def test_an_hccn_tool_that_hangs_leaves_what_npu_smi_tells(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    machine.set(hang="hccn_tool")
    with agent(machine) as running:
        wait_until(lambda: "(timeout)" in running.log())
        wait_until(lambda: running.value("nodevitals_accelerators_present") == 8)
        assert running.value(SUCCESS, probe="ascend") == 0
        assert running.value("nodevitals_ascend_health_level", device="7") == 0
        assert running.value("nodevitals_ascend_link_up", device="7") is None
        machine.set(hang=None)
        wait_until(lambda: running.value("nodevitals_ascend_link_up", device="7") == 1, 40)


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("dcmi module initialize failed. ret is -8005", -8005, "driver"),
        (
            "dcmi model initialized failed, because the device is used. ret is -8020",
            -8020,
            "in_use",
        ),
        ("something nobody has seen", 1, "npu_smi"),
    ],
)
def test_an_npu_smi_that_fails_says_why_and_loses_no_card(
    tmp_path: Path, text: str, status: int, reason: str
) -> None:
    machine = Machine(tmp_path).start()
    with agent(machine) as running:
        wait_until(lambda: running.value("nodevitals_accelerators_present") == 8)
        machine.set(error={"text": text, "status": status})
        wait_until(lambda: f"({reason})" in running.log())
        wait_until(lambda: running.value(SUCCESS, probe="ascend") == 0)
        machine.set(error=None)
        wait_until(lambda: running.value(SUCCESS, probe="ascend") == 1)
        assert all(value == 1 for (name, _), value in running.samples().items() if name == UP)


def test_a_lost_chip_is_lost_until_it_is_back_and_has_its_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    with agent(machine) as running:
        vdie = "42C711D4-20B03703-4A10C8D4-14CC0400-D2102003"
        wait_until(lambda: running.value(UP, uuid=vdie) == 1)
        gone = machine.lose(3)
        wait_until(lambda: running.value(UP, uuid=vdie) == 0)
        assert running.value("nodevitals_accelerators_present") == 7
        assert running.value("nodevitals_accelerators_baseline") == 8
    with running:
        wait_until(lambda: running.value(UP, uuid=vdie) == 0)
        machine.state["chips"].insert(3, gone)
        machine.start()
        wait_until(lambda: running.value(UP, uuid=vdie) == 1)


def test_rows_that_cannot_be_read_lose_no_chip(tmp_path: Path) -> None:
    """Truncated output, or a health word that is not known."""
    machine = Machine(tmp_path).start()
    with agent(machine) as running:
        wait_until(lambda: running.value("nodevitals_accelerators_present") == 8)
        machine.set(truncate=1500)
        wait_until(lambda: (running.value(UNPARSED, command="info") or 0) > 0)
        ups = [value for (name, _), value in running.samples().items() if name == UP]
        assert set(ups) == {1}
        assert 0 < len(ups) < 8
        machine.set(
            truncate=100_000, language={"Health": "健康", "Power(W)": "功率(W)", "OK": "正常"}
        )
        wait_until(
            lambda: (
                sum(name == UP for name, _ in running.samples()) == 8
                and running.value("nodevitals_accelerator_healthy", device="0") is None
            )
        )


def test_a_hung_npu_smi_costs_only_its_probe_and_is_never_run_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    with agent(machine) as running:
        wait_until(lambda: running.value("nodevitals_accelerators_present") == 8)
        machine.set(hang="npu-smi")
        wait_until(lambda: "(timeout)" in running.log())
        runs = "nodevitals_probe_runs_total"
        before = running.value(runs, probe="node", outcome="ok") or 0
        wait_until(lambda: (running.value(runs, probe="node", outcome="ok") or 0) > before + 10)
        wait_until(lambda: (running.value(runs, probe="ascend", outcome="error") or 0) >= 2)
        machine.set(hang=None)
        wait_until(lambda: running.value(SUCCESS, probe="ascend") == 1)
        assert not [call for call in machine.calls() if call.startswith("OVERLAP")]
    wait_until(lambda: not tools(machine), 10)


def tools(machine: Machine) -> list[str]:
    """Return the command lines of the machine's tools that run."""
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if str(machine.folder / "bin") in line]


def test_a_slow_npu_smi_is_asked_for_the_table_alone(tmp_path: Path) -> None:
    """What would have to be killed half-way is not begun."""
    machine = Machine(tmp_path).start()
    with agent(machine, interval="3s", timeout="3s", slow_interval="1m") as running:
        wait_until(lambda: running.value("nodevitals_ascend_link_up", device="7") == 1, 40)
        machine.set(seconds=1.5, table_seconds=1.5)
        before = len(machine.calls())
        wait_until(lambda: len(machine.calls()) >= before + 3)
        assert set(machine.calls()[before + 1 :]) == {"npu-smi info"}
        assert running.value(SUCCESS, probe="ascend") == 1


def test_two_agents_never_run_two_at_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    machine.set(seconds=0.05, table_seconds=0.5)
    (tmp_path / "second").mkdir()
    with agent(machine) as first:
        config = json.loads(first.config_file.read_text()) | {"state_directory": None}
        package = str(ROOT / "exporter")
        second = Node(tmp_path / "second", config, *machine.flags, PYTHONPATH=package)
        with second:
            for node in (first, second):
                wait_until(lambda node=node: node.value(SUCCESS, probe="ascend") == 1, 40)  # type: ignore[misc]
            wait_until(lambda: machine.calls().count("npu-smi info") >= 4, 40)
    assert len(machine.calls()) > 8
    assert not [call for call in machine.calls() if call.startswith("OVERLAP")]


def test_a_person_who_runs_the_tool_without_the_lock_is_waited_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    machine.set(table_seconds=2.0)
    person = subprocess.Popen([machine.settings["npu_smi"], "info"], stdout=subprocess.DEVNULL)
    wait_until(machine.calls)
    machine.set(table_seconds=0.0)
    status, text, _ = once(machine)
    assert person.wait(30) == 0
    assert (status, samples(text, UP)) == (0, ["1"] * 8)
    assert not [call for call in machine.calls() if call.startswith("OVERLAP")]


def test_who_holds_the_lock_and_is_no_tool_cannot_keep_it_for_ever(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    lock = machine.settings["lock"]
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        status, _, errors = once(machine, interval="2s", timeout="2s")
        assert (status, "busy" in errors) == (1, True)
        os.utime(lock, (time.time() - 3600, time.time() - 3600))
        status, text, _ = once(machine)
        assert (status, samples(text, UP)) == (0, ["1"] * 8)


def test_nothing_there_is_silence_unless_chips_are_expected(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    flags = (f"--config.file={config}", "--path.sysfs=/nonexistent")
    for section, status in (({}, 0), ({"expected": 8}, 1), ({"enabled": True}, 1)):
        missing = {"npu_smi": "/nonexistent/npu-smi", "lock": str(tmp_path / "lock"), **section}
        config.write_text(json.dumps({"probes": {"ascend": missing}}))
        done = run("probe", "ascend", *flags)
        assert done.returncode == status, section
        assert len(done.stderr.splitlines()) == 1


def test_cards_without_the_tool_are_a_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    status, _, errors = once(machine, npu_smi="/nonexistent/npu-smi")
    assert (status, "missing" in errors) == (1, True)
