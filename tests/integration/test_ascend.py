"""The probe `ascend` on simulated machines: only npu-smi and hccn_tool are not real.

Where a worker process, the lock or a restart matters, the agent runs it; elsewhere `Direct` runs it
in this process.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodevitals.probe import Family, Host, ProbeError, Readings, Timing
from nodevitals.probes.ascend import families
from nodevitals.probes.ascend.probe import AscendProbe, AscendSettings, AscendState
from nodevitals.probes.common import accelerators
from nodevitals.wire import decode, encode
from testbed.longforms import long_forms
from testbed.node import ROOT, Node, run, wait_until
from testbed.npus import Machine
from testbed.trees import write

UP = "nodevitals_accelerator_up"
SUCCESS = "nodevitals_probe_success"
# Of a run without another limit: a test machine may take long to start a fake tool.
PLENTY_SECONDS = 100.0


class Outcome(NamedTuple):
    """What a direct run returned; `reason` is '' where it succeeded."""

    readings: Readings
    reason: str

    def values(self, family: Family, **labels: str) -> list[float]:
        """The values of the family's samples that have these labels."""
        return [
            one.value
            for one in (*self.readings.samples, *self.readings.increments)
            if one.family == family.name
            and labels.items() <= dict(zip(family.labels, one.labels, strict=True)).items()
        ]


class Direct:
    """Runs of the probe in this process; the state is kept as the engine keeps it."""

    def __init__(self, machine: Machine, procfs: str = "") -> None:
        """Without `procfs`, no process of this machine is visible to the probe."""
        self._machine = machine
        self._state = b""
        self._procfs = procfs or str(machine.folder / "proc")
        write(
            machine.folder / "proc",
            {"sys/kernel/random/boot_id": "11111111-2222-4333-8444-555555555555\n"},
        )

    def run_table(self, **settings: Any) -> Outcome:
        """Run once; what an earlier run has read is not due, and only `npu-smi info` is called."""
        return self.run(interval=3600.0, slow_interval=3600.0, **settings)

    def run(
        self, timeout: float = PLENTY_SECONDS, interval: float = 0.01, **settings: Any
    ) -> Outcome:
        """Run once, with an interval so short that every fast query is due again."""
        host = Host(sysfs=str(self._machine.folder / "sys"), procfs=self._procfs)
        timing = Timing(interval_seconds=interval, timeout_seconds=timeout)
        own = AscendSettings(**{**self._machine.settings, **settings})
        probe = AscendProbe(host, own, "ascend", timing)
        if self._state:
            probe.state = decode(self._state, AscendState)
        readings, reason = Readings(families=AscendProbe.families), ""
        try:
            probe.run(readings)
        except ProbeError as error:
            reason = error.reason
        self._state = encode(probe.state)
        return Outcome(readings, reason)


def machine_of(folder: Path, chips: int) -> Machine:
    """Return a machine with so many 910B."""
    machine = Machine(folder)
    del machine.state["chips"][chips:]
    return machine.start()


def agent(machine: Machine, seconds: str, **settings: Any) -> Node:
    """Return an agent on a machine, with this interval and timeout."""
    ascend = {"interval": seconds, "timeout": seconds, "slow_interval": seconds}
    probes = {"ascend": ascend | machine.settings | settings, "node": {"interval": "200ms"}}
    return Node(
        machine.folder, {"probes": probes}, *machine.flags, PYTHONPATH=str(ROOT / "exporter")
    )


def once(machine: Machine, **settings: Any) -> tuple[int, str, str]:
    """Run `nodevitals probe ascend`: its status, output and errors."""
    config = machine.folder / "once.yaml"
    # A whole machine needs more than a hundred calls.
    section = {"interval": "10m", "timeout": "10m", **machine.settings, **settings}
    config.write_text(json.dumps({"probes": {"ascend": section}}))
    done = run("probe", "ascend", "--raw", f"--config.file={config}", *machine.flags)
    return done.returncode, done.stdout, done.stderr


def samples(text: str, family: str, *parts: str) -> list[str]:
    """Return the values of a family's samples whose labels hold all these parts."""
    lines = [line for line in text.splitlines() if line.startswith((family + "{", family + " "))]
    return [line.rsplit(" ", 1)[1] for line in lines if all(part in line for part in parts)]


def overlaps(machine: Machine) -> list[str]:
    """Return the calls that ran beside another one."""
    return [call for call in machine.calls() if call.startswith("OVERLAP")]


@pytest.mark.parametrize(
    ("kind", "chips", "ports"),
    long_forms(
        "npu", [("910B", 8, 8), ("A3", 16, 16), ("310P", 6, 0), ("950", 4, 0)], {("910B", 8, 8)}
    ),
)
def test_whole_machine_is_exposed(tmp_path: Path, kind: str, chips: int, ports: int) -> None:
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
    assert set(samples(text, "nodevitals_ascend_unparsed_total")) == {"0"}
    devices = {line.partition('device="')[2].partition('"')[0] for line in text.splitlines()}
    assert {str(one["physical"]) for one in machine.state["chips"]} <= devices
    assert not overlaps(machine)
    assert sum(call == "npu-smi info" for call in machine.calls()) == 1


def test_faults_of_a_chip_are_reported(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 6)
    machine.change(1, health="Alarm", codes=["80E01801", "80E38FFF"])
    machine.change(
        2, ecc={"HBM Double Bit Error Count": 3, "HBM Double Bit Isolated Pages Count": 4}
    )
    machine.change(3, link="DOWN", net_health="Receive timeout")
    machine.change(4, net_health="Init", receive_mw=["1.0", "0.0054", "1.0", "1.0"])
    machine.change(5, health="Warning")
    seen = Direct(machine).run()
    levels = [seen.values(families.HEALTH_LEVEL, device=str(at)) for at in (0, 1, 5)]
    assert levels == [[0], [2], [1]]
    assert seen.values(accelerators.HEALTHY, device="5") == [0]
    known = {"code": "80E01801", "level": "restart_business", "action": "restart_app"}
    assert seen.values(families.FAULT_CODE, device="1", **known) == [1]
    assert seen.values(families.FAULT_CODE, code="80E38FFF", level="unlisted") == [1]
    error = {"kind": "uncorrected", "lifetime": "volatile", "location": "hbm"}
    assert seen.values(accelerators.ECC_ERRORS, device="2", **error) == [3]
    assert seen.values(families.ISOLATED_PAGES, device="2", kind="uncorrected") == [4]
    assert seen.values(families.LINK_UP, device="3") == [0]
    assert seen.values(families.NETWORK_REACHABLE, device="3") == [0]
    # Not checked yet.
    assert seen.values(families.NETWORK_REACHABLE, device="4") == []
    assert seen.values(families.RECEIVE_POWER, device="4", lane="1") == [5.4e-06]


def test_fault_codes_disappear_with_the_health_level_that_they_belong_to(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 2)
    direct = Direct(machine)
    assert direct.run(slow_interval=3600).values(families.HEALTH_LEVEL) == [0, 0]
    machine.change(1, health="Alarm", codes=["80E01801"])
    assert direct.run(slow_interval=3600).values(families.FAULT_CODE, device="1") == [1]
    machine.change(1, health="OK", codes=[])
    healthy = direct.run(slow_interval=3600)
    assert healthy.values(families.HEALTH_LEVEL, device="1") == [0]
    assert healthy.values(families.FAULT_CODE) == []


def test_outputs_of_another_boot_are_not_used(tmp_path: Path) -> None:
    direct = Direct(machine_of(tmp_path, 2))
    assert direct.run().values(families.LINK_SPEED) == [25e9, 25e9]
    assert direct.run_table().values(families.LINK_SPEED) == [25e9, 25e9]
    write(
        tmp_path / "proc", {"sys/kernel/random/boot_id": "22222222-2222-4333-8444-555555555555\n"}
    )
    rebooted = direct.run(hccn_tool="/nonexistent/hccn_tool")
    assert rebooted.values(families.LINK_SPEED) == []
    assert rebooted.values(accelerators.UP) == [1, 1]


def test_hung_hccn_tool_leaves_what_npu_smi_prints(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 2)
    direct = Direct(machine)
    assert direct.run(hccn_tool="/nonexistent/hccn_tool").reason == ""
    machine.set(hang="hccn_tool")
    hung = direct.run(timeout=6, slow_interval=3600)  # the table, then the first of hccn_tool
    assert hung.reason == "timeout"
    assert hung.values(accelerators.PRESENT) == [2]
    assert hung.values(families.HEALTH_LEVEL, device="1") == [0]
    assert hung.values(families.LINK_UP) == []
    machine.set(hang=None)
    seen = direct.run()
    assert (seen.reason, seen.values(families.LINK_UP)) == ("", [1, 1])


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("dcmi module initialize failed. ret is -8005", -8005, "driver"),
        (
            "dcmi model initialized failed, because the device is used. ret is -8020",
            -8020,
            "in_use",
        ),
        ("some other message", 1, "npu_smi"),
    ],
)
def test_failed_npu_smi_gives_the_reason_and_loses_no_device(
    tmp_path: Path, text: str, status: int, reason: str
) -> None:
    machine = machine_of(tmp_path, 2)
    direct = Direct(machine)
    assert direct.run().values(accelerators.PRESENT) == [2]
    machine.set(error={"text": text, "status": status})
    failed = direct.run_table()
    assert (failed.reason, failed.values(accelerators.UP)) == (reason, [])
    machine.set(error=None)
    seen = direct.run_table()
    assert (seen.reason, seen.values(accelerators.UP)) == ("", [1, 1])


def test_lost_chip_keeps_its_uuid_and_is_lost_until_it_returns(tmp_path: Path) -> None:
    """Also where the agent was restarted in between."""
    machine = machine_of(tmp_path, 4)
    with agent(machine, "3s") as running:
        vdie = "42C711D4-20B03703-4A10C8D4-14CC0400-D2102003"
        wait_until(lambda: running.value(UP, uuid=vdie) == 1)
        gone = machine.lose(3)
        wait_until(lambda: running.value(UP, uuid=vdie) == 0)
        assert running.value("nodevitals_accelerators_present") == 3
        assert running.value("nodevitals_accelerators_baseline") == 4
    with running:
        wait_until(lambda: running.value(UP, uuid=vdie) == 0)
        machine.state["chips"].insert(3, gone)
        machine.start()
        wait_until(lambda: running.value(UP, uuid=vdie) == 1)


def test_npu_that_is_on_the_bus_without_data_is_unreadable_and_not_lost(tmp_path: Path) -> None:
    """Also where it was never seen before; it is lost once it has left the bus."""
    machine = machine_of(tmp_path, 3)
    direct = Direct(machine)
    assert direct.run().values(accelerators.UNREADABLE) == [0]
    unlisted = machine.state["chips"].pop(2)
    machine.change(1, name="", temperature=0, hbm=(0, 0))
    seen = direct.run_table()
    assert seen.reason == "unreadable"
    assert seen.values(accelerators.UP) == [1]
    assert seen.values(accelerators.PRESENT) == [1]
    assert seen.values(accelerators.UNREADABLE) == [2]
    assert seen.values(accelerators.ERROR_INFO, code="no_data") == [1]
    assert seen.values(accelerators.ERROR_INFO, code="not_listed") == [1]
    machine.state["chips"].append(unlisted)
    machine.lose(2)
    gone = direct.run_table()
    assert sorted(gone.values(accelerators.UP)) == [0, 1]
    assert gone.values(accelerators.UNREADABLE) == [1]


def test_vnpus_of_a_chip_are_exposed(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 2)
    machine.change(0, vnpus={100: "vir02", 101: "vir04"}, vnpu_free=("14/20", "40/64"))
    machine.change(1, vnpus=None)
    seen = Direct(machine).run()
    assert seen.reason == ""
    assert seen.values(families.VNPUS) == [2]
    assert seen.values(families.VNPU_INFO, vnpu="101", template="vir04") == [1]
    assert seen.values(families.VNPU_CORES_FREE, device="0") == [14]
    assert seen.values(families.VNPU_MEMORY, device="0") == [64 << 30]
    assert sum(seen.values(families.UNPARSED)) == 0


@pytest.mark.proof("npu")
def test_rows_that_cannot_be_parsed_lose_no_chip(tmp_path: Path) -> None:
    """Truncated output, or an unlisted health word."""
    machine = Machine(tmp_path).start()
    direct = Direct(machine)
    assert direct.run().values(accelerators.UP) == [1] * 8
    machine.set(truncate=1500)
    truncated = direct.run_table()
    assert sum(truncated.values(families.UNPARSED, command="info")) > 0
    ups = truncated.values(accelerators.UP)
    assert set(ups) == {1}
    assert 0 < len(ups) < 8
    machine.set(truncate=100_000, language={"Health": "健康", "Power(W)": "功率(W)", "OK": "正常"})
    translated = direct.run_table()
    assert translated.values(accelerators.UP) == [1] * 8
    assert translated.values(accelerators.HEALTHY) == []


def test_hung_npu_smi_costs_only_its_probe_and_never_runs_twice(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    with agent(machine, "2s") as running:
        wait_until(lambda: running.value("nodevitals_accelerators_present") == 8)
        machine.set(hang="npu-smi")
        wait_until(lambda: "(timeout)" in running.log())
        runs = "nodevitals_probe_runs_total"
        before = running.value(runs, probe="node", outcome="ok") or 0
        wait_until(lambda: (running.value(runs, probe="node", outcome="ok") or 0) > before + 10)
        wait_until(lambda: (running.value(runs, probe="ascend", outcome="error") or 0) >= 2)
        machine.set(hang=None)
        wait_until(lambda: running.value(SUCCESS, probe="ascend") == 1)
        assert not overlaps(machine)
    wait_until(lambda: not tools(machine), 10)


def tools(machine: Machine) -> list[str]:
    """Return the command lines of the machine's tools that run."""
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if str(machine.folder / "bin") in line]


def test_slow_npu_smi_is_called_for_the_table_only(tmp_path: Path) -> None:
    """A call that would have to be killed is not started: less than twice the slowest is left."""
    machine = Machine(tmp_path).start()
    seconds = 4.5
    direct = Direct(machine)
    assert direct.run(seconds).reason == ""
    before = len(machine.calls())
    assert before > 1
    # What is left after the table would do for a fast call, but not for twice the slowest.
    machine.set(seconds=1.5, table_seconds=1.5)
    for _ in range(2):
        assert direct.run(seconds).reason == ""
    assert machine.calls()[before:] == ["npu-smi info"] * 2


def test_two_agents_never_run_two_tools_at_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    machine.set(seconds=0.05, table_seconds=0.5)
    (tmp_path / "second").mkdir()
    with agent(machine, "3s") as first:
        config = json.loads(first.config_file.read_text()) | {"state_directory": None}
        package = str(ROOT / "exporter")
        second = Node(tmp_path / "second", config, *machine.flags, PYTHONPATH=package)
        with second:
            for node in (first, second):
                wait_until(lambda node=node: node.value(SUCCESS, probe="ascend") == 1, 40)  # type: ignore[misc]
            wait_until(lambda: machine.calls().count("npu-smi info") >= 4, 40)
    assert len(machine.calls()) > 8
    assert not overlaps(machine)


def test_probe_waits_for_a_tool_that_runs_without_the_lock(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 2)
    machine.set(table_seconds=1.0)
    other = subprocess.Popen([machine.settings["npu_smi"], "info"], stdout=subprocess.DEVNULL)
    wait_until(machine.calls)
    machine.set(table_seconds=0.0)
    seen = Direct(machine, procfs="/proc").run()
    assert other.wait(PLENTY_SECONDS) == 0
    assert (seen.reason, seen.values(accelerators.UP)) == ("", [1, 1])
    assert len(machine.calls()) > 2
    assert not overlaps(machine)


def holder(machine: Machine, started: float) -> None:
    """Have /proc report that process 77, started so many seconds ago, holds the lock."""
    status = os.stat(machine.settings["lock"])
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    ticks = int((9000 - started) * os.sysconf("SC_CLK_TCK"))
    files = {
        "locks": f"1: FLOCK  ADVISORY  WRITE 77 {device}:{status.st_ino} 0 EOF\n",
        "uptime": "9000.00 17000.00\n",
        "77/stat": f"77 (flock) S {' '.join(['1'] * 18)} {ticks} 0\n",
        "77/comm": "flock\n",
    }
    write(machine.folder / "proc", files)


def test_process_that_is_no_tool_cannot_hold_the_lock_for_ever(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 1)
    lock = machine.settings["lock"]
    direct = Direct(machine)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert direct.run(timeout=0.5).reason == "busy", "its holder is not known"
        os.utime(lock, (time.time() - 3600, time.time() - 3600))
        assert direct.run(timeout=0.5).reason == "busy", "its holder is not known"
        holder(machine, started=60)
        assert direct.run(timeout=0.5).reason == "busy", "no process holds it for so long"
        holder(machine, started=3600)
        os.utime(lock)
        assert direct.run(timeout=0.5).reason == "busy", "an old process has just taken it"
        os.utime(lock, (time.time() - 3600, time.time() - 3600))
        seen = direct.run()
        assert (seen.reason, seen.values(accelerators.UP)) == ("", [1])


def test_lock_file_is_in_a_directory_of_its_own_and_closed_to_users(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 1)
    lock = tmp_path / "run/nodevitals/npu-smi.lock"
    (tmp_path / "run").mkdir()
    assert Direct(machine).run(lock=str(lock)).reason == ""
    assert (lock.parent.stat().st_mode & 0o777, lock.stat().st_mode & 0o777) == (0o700, 0o600)


def test_lock_file_of_a_script_is_used_and_closed_to_users(tmp_path: Path) -> None:
    """A user who can open a file can hold a lock on it."""
    machine = machine_of(tmp_path, 1)
    lock = tmp_path / "npu-smi.lock"
    lock.touch(0o644)
    assert Direct(machine).run().reason == ""
    assert lock.stat().st_mode & 0o777 == 0o600


def test_machine_without_an_npu_has_no_lock_file(tmp_path: Path) -> None:
    machine = machine_of(tmp_path, 0)
    lock = tmp_path / "run/npu-smi.lock"
    status, text, errors = once(machine, lock=str(lock))
    assert (status, samples(text, UP), "no NPU" in errors) == (0, [], True)
    assert machine.calls() == []
    assert not lock.parent.exists()


def test_npu_that_is_not_on_the_pci_bus_has_device_nodes(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    write(tmp_path / "root/dev", {"davinci0": ""})
    config = tmp_path / "c.yaml"
    config.write_text(json.dumps({"probes": {"ascend": machine.settings}}))
    flags = (f"--path.rootfs={tmp_path / 'root'}", f"--path.sysfs={tmp_path / 'nothing'}")
    done = run("probe", "ascend", "--raw", f"--config.file={config}", *flags)
    assert samples(done.stdout, UP) == ["1"] * 8


def test_absent_hardware_is_a_failure_only_where_chips_are_expected(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    flags = (f"--config.file={config}", "--path.sysfs=/nonexistent")
    for section, status in (({}, 0), ({"expected": 8}, 1), ({"enabled": True}, 1)):
        missing = {"npu_smi": "/nonexistent/npu-smi", "lock": str(tmp_path / "lock"), **section}
        config.write_text(json.dumps({"probes": {"ascend": missing}}))
        done = run("probe", "ascend", "--raw", *flags)
        assert done.returncode == status, section
        assert len(done.stderr.splitlines()) == 1


def test_npus_without_npu_smi_are_a_failure(tmp_path: Path) -> None:
    machine = Machine(tmp_path).start()
    status, _, errors = once(machine, npu_smi="/nonexistent/npu-smi")
    assert (status, "missing" in errors) == (1, True)
    assert not os.path.exists(machine.settings["lock"])
