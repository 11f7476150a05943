"""Probe `nvidia` on simulated machines: only the NVML library and the trees are simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed import gpus
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, run, wait_until

UP = "nodevitals_accelerator_up"
LOST = "nodevitals_accelerator_lost_timestamp_seconds"
XIDS = "nodevitals_nvidia_xid_errors_total"
ERROR = "nodevitals_accelerator_error_info"
SUCCESS = "nodevitals_probe_success"
# A worker that hangs in its first run is killed so much later; otherwise 30 s.
SHORT_START = (
    "from nodevitals.probes.nvidia.probe import NvidiaProbe; NvidiaProbe.start_seconds = 3"
)


def agent(
    machine: Machine, kernel_log: Path | None = None, prelude: str = "", **settings: Any
) -> Node:
    """Return an agent on a machine, with short intervals."""
    nvidia = {"interval": "300ms", "timeout": "300ms", **machine.settings, **settings}
    probes = {"nvidia": nvidia, "node": {"enabled": False}}
    if kernel_log:
        probes["kernel_log"] = {"path": str(kernel_log), "interval": "100ms"}
    node = Node(
        machine.folder,
        {"probes": probes},
        *machine.flags,
        PYTHONPATH=str(ROOT / "exporter"),
        **machine.environment,
    )
    node.prelude = prelude
    return node


def once(machine: Machine, **settings: Any) -> tuple[int, str, str]:
    """Run `nodevitals probe nvidia`: its status, output and errors."""
    config = machine.folder / "once.yaml"
    section = {**machine.settings, **settings}
    config.write_text(json.dumps({"probes": {"nvidia": section}}))
    flags = (f"--config.file={config}", *machine.flags)
    done = run("probe", "nvidia", "--raw", *flags, **machine.environment)
    return done.returncode, done.stdout, done.stderr


def samples(text: str, family: str, *parts: str) -> list[str]:
    """Return the values of a family's samples whose labels hold all these parts."""
    lines = [line for line in text.splitlines() if line.startswith((family + "{", family + " "))]
    return [line.rsplit(" ", 1)[1] for line in lines if all(part in line for part in parts)]


@pytest.mark.parametrize("model", sorted(gpus.MODELS))
def test_gpu_exposes_only_what_its_model_supports(tmp_path: Path, model: str) -> None:
    """What is not supported is missing; it is neither 0 nor a failure."""
    machine = Machine(tmp_path, model, 2).start()
    status, text, errors = once(machine)
    assert (status, errors) == (0, "")
    has = gpus.MODELS[model]
    gpu = 'device="1"'
    for family, wanted in {
        UP: True,
        "nodevitals_accelerator_temperature_celsius": True,
        "nodevitals_accelerator_healthy": has.recovery,
        "nodevitals_accelerator_ecc_errors_total": has.ecc,
        "nodevitals_nvidia_row_remap_pending": has.remaps_rows,
        "nodevitals_nvidia_retired_pages": has.ecc and not has.remaps_rows,
        "nodevitals_nvidia_sram_threshold_exceeded": has.remaps_rows,
        "nodevitals_nvidia_nvlink_up": has.links > 0,
        "nodevitals_nvidia_nvlink_errors_total": has.links > 0,
        "nodevitals_nvidia_fabric_state": has.fabric,
        "nodevitals_nvidia_slowdown_seconds_total": True,
        "nodevitals_nvidia_temperature_margin_celsius": True,
    }.items():
        assert bool(samples(text, family, gpu)) == wanted, family
    assert len(samples(text, "nodevitals_nvidia_nvlink_up", gpu)) == has.links
    for family in ("nodevitals_nvidia_nvlinks_expected", "nodevitals_nvidia_nvlinks_up"):
        assert samples(text, family, gpu) == [str(has.links)] * (has.links > 0)


def test_nvlink_errors_of_hopper_are_not_hidden_by_legacy_fields(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    machine.add_field(0, 161, 4, link=3)
    machine.add_field(0, 161, 2, link=17)
    machine.add_field(0, 163, 5, link=3)
    errors = "nodevitals_nvidia_nvlink_errors_total"
    _, text, _ = once(machine)
    assert samples(text, errors, 'kind="replay"') == ["6"]
    assert samples(text, errors, 'kind="crc"') == ["5"]
    _, text, _ = once(machine, nvlink_errors_by_link=True)
    assert samples(text, errors, 'kind="replay"', 'link="3"') == ["4"]
    assert len(samples(text, errors, 'kind="replay"')) == 18


def test_nvlink_errors_are_read_on_ampere_and_blackwell(tmp_path: Path) -> None:
    for model, inject, kind in (
        ("A100", lambda one: one.set(0, nvlink_counter__2__5=9), "crc"),
        ("B200", lambda one: one.add_field(0, 221, 9, link=5), "symbol"),
    ):
        (tmp_path / model).mkdir()
        machine = Machine(tmp_path / model, model, 1).start()
        inject(machine)  # type: ignore[no-untyped-call]
        _, text, _ = once(machine)
        assert samples(text, "nodevitals_nvidia_nvlink_errors_total", f'kind="{kind}"') == ["9"]


def test_unreadable_link_is_missing_and_the_sum_of_errors_does_not_fall(
    tmp_path: Path,
) -> None:
    """A counter that falls and rises again is a false increase."""
    machine = Machine(tmp_path, "H100", 1).start()
    for link in range(18):
        machine.set_field(0, 161, 100, link=link)
    up, errors = "nodevitals_nvidia_nvlink_up", "nodevitals_nvidia_nvlink_errors_total"
    with agent(machine) as running:
        wait_until(lambda: running.value(errors, kind="replay") == 1800)
        machine.set(0, nvlink__4="!999", field__161__7="!999")
        wait_until(lambda: running.value(up, link="4") is None)
        assert running.value(errors, kind="replay") is None
        assert running.value(up, link="17") == 1
        machine.set(0, nvlink__4=1, field__161__7=100)
        wait_until(lambda: running.value(errors, kind="replay") == 1800)


def test_general_slowdown_is_reported_only_without_a_specific_reason(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "A100", 2).start()
    machine.set(0, clock_reasons=0x48)
    machine.set(1, clock_reasons=0x8)
    _, text, _ = once(machine)
    active = "nodevitals_nvidia_slowdown_active"
    assert samples(text, active, 'device="0"', 'reason="hw_thermal"') == ["1"]
    assert samples(text, active, 'reason="hw_slowdown"') == ["1"]
    assert samples(text, active, 'device="1"', 'reason="hw_slowdown"') == ["1"]


@pytest.mark.parametrize(
    ("driver", "counters", "settings"),
    [
        ("550.90.07", (), ()),
        ("570.86.15", (), (251, 252, 253)),
        ("575.57.08", (251, 252, 253), (269, 270, 271)),
        ("580.65.06", (251, 252, 253), (269, 270, 271)),
        ("580.82.07", (269, 270, 271), (251, 252, 253)),
        ("595.58.03", (269, 270, 271), (251, 252, 253)),
    ],
)
def test_slowdown_times_have_the_ids_of_the_driver(
    tmp_path: Path, driver: str, counters: tuple[int, ...], settings: tuple[int, ...]
) -> None:
    """Under the other ids stand settings of power smoothing, which are no seconds."""
    machine = Machine(tmp_path, "B200", 1, driver).start()
    for number, field in enumerate(counters):
        machine.set_field(0, field, (number + 1) * 1_000_000_000)
    for field in settings:
        machine.set_field(0, field, 77_000_000_000)
    machine.set_field(0, 75, 5_000_000_000)
    status, text, _ = once(machine)
    assert status == 0
    seconds = "nodevitals_nvidia_slowdown_seconds_total"
    found = {
        reason: samples(text, seconds, f'reason="{reason}"')
        for reason in ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake", "thermal")
    }
    known = [["1"], ["2"], ["3"], []] if counters else [[], [], [], ["5"]]
    assert list(found.values()) == [["0"], *known]


def test_ecc_counts_that_cannot_be_read_are_missing_and_not_0(tmp_path: Path) -> None:
    """On a GPU that needs a reset they fail with Unknown Error; its remapped rows do not."""
    machine = Machine(tmp_path, "H100", 1).start()
    for key in [key for key in machine.state if ".ecc" in key]:
        machine.state[key] = "!999"
    machine.set(0, remapped="0 1 1 0")
    machine.set_field(0, gpus.RECOVERY_ACTION, 1)
    _, text, _ = once(machine)
    assert samples(text, "nodevitals_accelerator_ecc_errors_total") == []
    assert samples(text, "nodevitals_nvidia_row_remap_pending") == ["1"]
    assert samples(text, UP) == ["1"]
    assert samples(text, "nodevitals_accelerator_healthy") == ["0"]
    action = ('vendor_action="gpu_reset"', 'action="reset_device"')
    assert samples(text, "nodevitals_nvidia_recovery_action", *action) == ["1"]


def test_banks_by_their_spare_rows(tmp_path: Path) -> None:
    """An older driver that lacks the histogram still counts the remapped rows."""
    machine = Machine(tmp_path, "H100", 2).start()
    machine.set(0, remapped="0 9 0 0", remap_banks="636 1 1 1 1")
    machine.set(1, remap_banks="!3")
    _, text, _ = once(machine)
    banks, first = "nodevitals_nvidia_remap_banks", 'device="0"'
    found = [
        samples(text, banks, f'spare_rows="{spare_rows}"')
        for spare_rows in ("max", "high", "partial", "low", "none")
    ]
    assert found == [["636"], ["1"], ["1"], ["1"], ["1"]]
    assert samples(text, banks, first) == ["636", "1", "1", "1", "1"]
    assert len(samples(text, "nodevitals_nvidia_remapped_rows")) == 4


def test_functions_that_the_driver_lacks_remove_only_their_families(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    machine.hidden = (
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlEventSetCreate",
    )
    status, text, _ = once(machine)
    assert status == 0
    assert samples(text, "nodevitals_nvidia_fabric_state") == []
    assert samples(text, "nodevitals_nvidia_sram_threshold_exceeded") == []
    assert samples(text, "nodevitals_accelerator_memory_used_bytes") != []
    assert len(samples(text, "nodevitals_nvidia_slowdown_active")) == 3


@pytest.mark.parametrize(
    ("fabric", "state", "healthy", "faults"),
    [
        ("1 0 0x0 0", "not_started", [], 0),
        ("2 0 0x0 0", "in_progress", [], 0),
        ("3 0 0x12a 1", "completed", ["1"], 0),
        ("3 0 0x129 3", "completed", ["0"], 1),
        ("3 0 0x5aa 2", "completed", ["0"], 1),
        ("3 999 0x0 0", "failed", [], 0),
    ],
)
def test_fabric_state_and_health_are_exposed(
    tmp_path: Path, fabric: str, state: str, healthy: list[str], faults: int
) -> None:
    machine = Machine(tmp_path, "B200", 1).start()
    machine.set(0, fabric=fabric)
    _, text, _ = once(machine)
    assert samples(text, "nodevitals_nvidia_fabric_state", f'state="{state}"') == ["1"]
    assert samples(text, "nodevitals_nvidia_fabric_healthy") == healthy
    assert samples(text, "nodevitals_nvidia_fabric_fault").count("1") == faults
    machine.set(0, fabric_version=2)
    _, text, _ = once(machine)
    assert samples(text, "nodevitals_nvidia_fabric_state", f'state="{state}"') == ["1"]


def test_lost_gpu_is_reported_over_restarts_until_it_returns(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 3).start()
    uuid = machine.uuid(1)
    with agent(machine) as running:
        wait_until(lambda: running.value(UP, uuid=uuid) == 1)
        machine.lose(1)
        wait_until(lambda: running.value(UP, uuid=uuid) == 0)
        assert running.value(ERROR, uuid=uuid, code="15") == 1
        since = running.value(LOST, uuid=uuid)
        assert since is not None
        assert running.value("nodevitals_accelerators_present") == 2
        assert running.value("nodevitals_accelerator_temperature_celsius", uuid=uuid) is None
        serial = machine.state["1.serial"]
        assert running.value("nodevitals_accelerator_info", uuid=uuid, serial=serial) == 1
        wait_until(lambda: running.value(SUCCESS, probe="nvidia") == 1)
    with running:
        wait_until(lambda: running.value(UP, uuid=uuid) == 0)
        assert running.value(LOST, uuid=uuid) == since
        machine.recover(1)
        wait_until(lambda: running.value(UP, uuid=uuid) == 1)
        assert running.value(LOST, uuid=uuid) is None
    rows = json.loads(run("history", f"--config.file={running.config_file}", "--json").stdout)
    assert [row["state"] for row in rows if row["device"] == uuid] == ["ok", "lost", "ok"]


@pytest.mark.parametrize("code", [4, 10, 999])
def test_gpu_that_cannot_be_read_is_neither_up_nor_lost(tmp_path: Path, code: int) -> None:
    """What it is, is unknown: it may need a reset, or only a permission."""
    machine = Machine(tmp_path, "H100", 3).start()
    uuid = machine.uuid(1)
    with agent(machine) as running:
        wait_until(lambda: running.value(UP, uuid=uuid) == 1)
        machine.lose(1, code)
        wait_until(lambda: running.value(UP, uuid=uuid) is None)
        assert running.value(LOST, uuid=uuid) is None
        assert running.value(ERROR, uuid=uuid, code=str(code)) == 1
        assert running.value("nodevitals_accelerators_unreadable") == 1
        assert running.value("nodevitals_accelerators_present") == 2
        assert running.value("nodevitals_nvidia_devices", source="nvml") == 3
        assert running.value(SUCCESS, probe="nvidia") == 0
        assert f"GPU 1 at {machine.slots[1]}" in running.log()
        machine.recover(1)
        wait_until(lambda: running.value(UP, uuid=uuid) == 1)
        wait_until(lambda: running.value(SUCCESS, probe="nvidia") == 1)
        assert running.value("nodevitals_accelerators_unreadable") == 0
    rows = json.loads(run("history", f"--config.file={running.config_file}", "--json").stdout)
    assert [row["state"] for row in rows if row["device"] == uuid] == ["ok", "unreadable", "ok"]


def test_gpu_dead_since_a_reboot_is_lost_and_can_be_forgotten(tmp_path: Path) -> None:
    """The driver logs nothing and lists one GPU less; only the probe's state has it."""
    machine = Machine(tmp_path, "H100", 3).start()
    uuid = machine.uuid(2)
    running = agent(machine, expected=3)
    with running:
        wait_until(lambda: running.value(UP, uuid=uuid) == 1)
    machine.vanish(2)
    boot_id = machine.folder / "proc/sys/kernel/random/boot_id"
    boot_id.write_text("22222222-2222-4333-8444-555555555555\n")
    with running:
        wait_until(lambda: running.value(UP, uuid=uuid) == 0)
        assert running.value("nodevitals_accelerators_present") == 2
        assert running.value("nodevitals_accelerators_expected") == 3
        assert running.value("nodevitals_accelerators_baseline") == 3
        assert running.value("nodevitals_nvidia_devices", source="pci") == 3
        assert running.value("nodevitals_nvidia_devices", source="nvml") == 2
        done = run("history", "forget", uuid, f"--config.file={running.config_file}")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: running.value(UP, uuid=uuid) is None, 40)
        assert running.value("nodevitals_accelerators_baseline") == 2
    with running:
        wait_until(lambda: running.value(UP, uuid=machine.uuid(0)) == 1)
        assert running.value(UP, uuid=uuid) is None


def test_replaced_gpu_is_not_reported_as_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    old = machine.uuid(1)
    with agent(machine) as running:
        wait_until(lambda: running.value(UP, uuid=old) == 1)
        machine.lose(1)
        wait_until(lambda: running.value(UP, uuid=old) == 0)
        machine.remove("1.error")
        machine.set(1, uuid="GPU-new")
        wait_until(lambda: running.value(UP, uuid="GPU-new") == 1)
        assert running.value(UP, uuid=old) is None


def test_gpu_lost_during_a_run_exposes_no_partial_samples(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    machine.set(1, pcie_width="!15")
    status, text, _ = once(machine)
    assert status == 0
    assert samples(text, UP, 'device="1"') == []
    assert samples(text, UP) == ["1", "0"]
    assert len(samples(text, "nodevitals_accelerator_temperature_celsius")) == 1


def test_container_without_its_devices_reports_no_lost_gpu(tmp_path: Path) -> None:
    """NVML fails with Unknown Error for all, as after `systemctl daemon-reload`."""
    machine = Machine(tmp_path, "H100", 2).start()
    with agent(machine) as running:
        wait_until(lambda: running.value(UP, uuid=machine.uuid(0)) == 1)
    machine.state["init"] = "!999"
    machine.write()
    with running:
        wait_until(lambda: running.value("nodevitals_nvidia_devices", source="driver") == 2)
        wait_until(lambda: "no_access" in running.log())
        assert running.value(SUCCESS, probe="nvidia") == 0
        assert running.value(UP, uuid=machine.uuid(0)) is None
        assert "container" in running.log()
        machine.remove("init")
        wait_until(lambda: running.value(UP, uuid=machine.uuid(0)) == 1)


def test_gpu_bound_to_vfio_is_not_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    with agent(machine) as running:
        wait_until(lambda: running.value(UP, uuid=machine.uuid(1)) == 1)
        machine.bind_to_vfio(1)
        machine.vanish(1)
        wait_until(lambda: running.value("nodevitals_nvidia_devices", source="pci") == 1)
        wait_until(lambda: running.value(UP, uuid=machine.uuid(1)) is None)
        assert running.value(LOST, uuid=machine.uuid(1)) is None


def break_call(machine: Machine, value: str) -> None:
    """Let a call on the first GPU hang or crash."""
    machine.set(0, temperature=value)


def repair_call(machine: Machine) -> None:
    """Let that call succeed again."""
    machine.set(0, temperature=40)


def mismatch(machine: Machine) -> None:
    """Upgrade the library in place, and let the worker start again."""
    machine.upgrade_library("590.44.01")
    machine.state["generation"] = "2"
    machine.write()


@pytest.mark.parametrize(
    ("break_it", "repair_it", "reason"),
    [
        (lambda one: break_call(one, "@hang"), repair_call, "timeout"),
        (lambda one: break_call(one, "@crash"), repair_call, "worker_died"),
        (mismatch, lambda one: one.reload_driver("590.44.01"), "version_mismatch"),
        (lambda one: one.unload_driver(), lambda one: one.start(), "driver_not_loaded"),
    ],
    ids=["hang", "crash", "mismatch", "unload"],
)
def test_xids_are_counted_while_the_library_fails(
    tmp_path: Path,
    break_it: Callable[[Machine], None],
    repair_it: Callable[[Machine], None],
    reason: str,
) -> None:
    """Each failure has its own reason, and ends without a restart of the agent."""
    machine = Machine(tmp_path, "H100", 2).start()
    line = f"NVRM: Xid (PCI:{machine.slots[1]}): 119, pid=1, name=x, Timeout waiting for RPC"
    with KernelLog(tmp_path) as log, agent(machine, log.path, SHORT_START) as running:
        labels = {"uuid": machine.uuid(1), "xid": "119"}
        wait_until(lambda: running.value(XIDS, **labels) == 0)
        pid = running.process.pid
        break_it(machine)
        wait_until(lambda: f"({reason})" in running.log())
        wait_until(lambda: running.value(SUCCESS, probe="nvidia") == 0)
        # Once: on a busy machine some of its runs time out.
        wait_until(lambda: running.value(SUCCESS, probe="kernel_log") == 1)
        log.write(line, line)
        wait_until(lambda: running.value(XIDS, **labels) == 2)
        repair_it(machine)
        wait_until(lambda: running.value(SUCCESS, probe="nvidia") == 1, 60)
        assert running.value(UP, uuid=machine.uuid(0)) == 1
        assert running.value(XIDS, **labels) == 2
        assert running.process.pid == pid


def test_hang_of_one_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    """It counts as unreadable, and is left out of most runs: the others are read on time."""
    machine = Machine(tmp_path, "H100", 3).start()
    temperature = "nodevitals_accelerator_temperature_celsius"
    with agent(machine, None, SHORT_START) as running:
        wait_until(lambda: running.value(UP, uuid=machine.uuid(2)) == 1)
        machine.set(1, temperature="@hang")
        wait_until(lambda: "GPU 1" in running.log())
        assert "nvmlDeviceGetTemperature" in running.log()
        error = "nodevitals_accelerator_error_info"
        wait_until(lambda: running.value(error, uuid=machine.uuid(1), code="hang") == 1)
        for number in (0, 2):
            assert running.value(UP, uuid=machine.uuid(number)) == 1
            assert running.value(temperature, uuid=machine.uuid(number)) is not None
        assert running.value(UP, uuid=machine.uuid(1)) is None
        assert running.value("nodevitals_accelerators_unreadable") == 1
        assert running.value("nodevitals_accelerators_present") == 2
        machine.set(1, temperature=41)
        wait_until(lambda: running.value(UP, uuid=machine.uuid(1)) == 1, 60)
        assert running.value(error, uuid=machine.uuid(1)) is None
        # No other GPU is taken for the one that hung.
        done = ok_runs(running)
        wait_until(lambda: ok_runs(running) >= done + 4)
        log = running.log().rpartition("nvidia: ok")[2]
        assert "unreadable" not in log
        assert running.value("nodevitals_accelerators_unreadable") == 0


def test_two_gpus_that_hang_do_not_hide_the_others(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 4).start()
    error = "nodevitals_accelerator_error_info"
    with agent(machine, None, SHORT_START) as running:
        wait_until(lambda: running.value(UP, uuid=machine.uuid(3)) == 1)
        machine.set(1, temperature="@hang")
        machine.set(2, temperature="@hang")
        wait_until(lambda: running.value(error, uuid=machine.uuid(1), code="hang") == 1, 60)
        wait_until(lambda: running.value(error, uuid=machine.uuid(2), code="hang") == 1, 60)
        wait_until(lambda: running.value("nodevitals_accelerators_unreadable") == 2, 60)
        wait_until(lambda: "2 of 4 GPUs cannot be identified or read" in running.log(), 60)
        assert running.value(UP, uuid=machine.uuid(3)) == 1


def ok_runs(running: Node) -> float:
    """Return the number of successful runs."""
    return running.value("nodevitals_probe_runs_total", probe="nvidia", outcome="ok") or 0


def test_reloaded_driver_is_used_without_a_restart_of_the_agent(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    info = "nodevitals_nvidia_driver_info"
    with agent(machine) as running:
        wait_until(lambda: running.value(info, driver_version="580.95.05") == 1)
        machine.reload_driver("590.44.01")
        wait_until(lambda: running.value(info, driver_version="590.44.01") == 1)
        assert running.value(UP, uuid=machine.uuid(1)) == 1


def test_xid_from_log_and_nvml_counts_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    slot, uuid = machine.slots[1], machine.uuid(1)
    with KernelLog(tmp_path) as log, agent(machine, log.path) as running:

        def count(xid: int) -> float | None:
            return running.value(XIDS, uuid=uuid, xid=str(xid))

        wait_until(lambda: count(79) == 0)
        # Both report it.
        log.write(f"NVRM: Xid (PCI:{slot}): 79, GPU has fallen off the bus.")
        machine.raise_xid(1, 79)
        wait_until(lambda: count(79) == 1)
        # Only the log.
        log.write(f"NVRM: Xid (PCI:{slot}): 119, pid=1, name=x, Timeout")
        wait_until(lambda: count(119) == 1)
        # Only NVML.
        machine.raise_xid(1, 48)
        wait_until(lambda: count(48) == 1)
        # All three again, twice.
        for _ in range(2):
            log.write(f"NVRM: Xid (PCI:{slot}): 79, GPU has fallen off the bus.")
            machine.raise_xid(1, 79)
            machine.raise_xid(1, 48)
        wait_until(lambda: (count(79), count(48)) == (3, 3))
        runs = running.value("nodevitals_probe_runs_total", probe="nvidia", outcome="ok") or 0
        wait_until(
            lambda: (
                (running.value("nodevitals_probe_runs_total", probe="nvidia", outcome="ok") or 0)
                > runs + 3
            )
        )
        assert (count(79), count(48), count(119)) == (3, 3, 1)
        assert running.value("nodevitals_nvidia_xid_last_timestamp_seconds", uuid=uuid, xid="48")


def test_xids_from_nvml_count_where_the_log_cannot_be_read(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    with agent(machine, tmp_path) as running:  # a directory: it opens, and no read succeeds
        wait_until(lambda: running.value(XIDS, uuid=machine.uuid(0), xid="79") == 0)
        machine.raise_xid(0, 79)
        wait_until(lambda: running.value(XIDS, uuid=machine.uuid(0), xid="79") == 1)
        assert running.value(SUCCESS, probe="kernel_log") == 0


def test_missing_hardware_is_a_failure_only_where_it_is_expected(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    flags = (f"--config.file={config}", "--path.sysfs=/nonexistent", "--path.procfs=/nonexistent")
    for section, status in (
        ({}, 0),
        ({"expected": 8}, 1),
        ({"enabled": True}, 1),
        ({"enabled": False}, 0),
    ):
        missing = {"library": "libnvidia-ml-is-not-here.so.1", **section}
        config.write_text(json.dumps({"probes": {"nvidia": missing}}))
        done = run("probe", "nvidia", "--raw", *flags)
        assert done.returncode == status, section
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_gpus_without_a_driver_are_a_failure_unless_bound_to_vfio(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    status, _, errors = once(machine, library="libnvidia-ml-is-not-here.so.1")
    assert (status, "library_missing" in errors, "2 on the PCI bus" in errors) == (1, True, True)
    machine.unload_driver()
    status, _, errors = once(machine)
    assert (status, "driver_not_loaded" in errors) == (1, True)
    for number in range(2):
        machine.bind_to_vfio(number)
    status, _, errors = once(machine)
    assert (status, "not on this node" in errors) == (0, True)


def test_slow_start_of_the_library_is_not_a_timeout(tmp_path: Path) -> None:
    """As without persistence mode: every process that starts it initialises all GPUs."""
    machine = Machine(tmp_path, "H100", 2).start()
    machine.state["init_microseconds"] = "1500000"
    machine.write()
    with agent(machine) as running:  # whose timeout is 300 ms
        wait_until(lambda: running.value(UP, uuid=machine.uuid(1)) == 1)
        assert "nvidia: timeout" not in running.log()


def test_slow_library_succeeds_within_the_deadline(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    machine.state["delay_microseconds"] = "1000"
    machine.write()
    status, text, _ = once(machine, interval="30s", timeout="20s")
    assert (status, samples(text, UP)) == (0, ["1", "1"])
