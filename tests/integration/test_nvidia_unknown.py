"""Unknown is not healthy, not lost and not absent: the probe `nvidia` in this process.

The sweep of all calls is test_nvidia_sweep.py; here is what one failure alone does not show.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.probes.nvidia.probe import FAILED_RUNS_PER_START, MIN_RUNS_PER_START
from testbed import trees
from testbed.devicefiles import DeviceFolder, device_folder
from testbed.gpus import LINK_COUNT, Machine
from testbed.nvmlprobe import Outcome, ProbeRunner

UP = "accelerator_up"
ERRORS = "nvidia_nvlink_errors_total"
EXPECTED = "nvidia_nvlinks_expected"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceFolder]:
    yield from device_folder(tmp_path / "dev", monkeypatch)


def states(outcome: Outcome) -> dict[str, float]:
    """`accelerator_up` by the index of each GPU that has it."""
    return {labels[1]: value for labels, value in outcome.of(UP).items()}


def present(outcome: Outcome) -> float:
    return outcome.of("accelerators_present")["nvidia",]


def codes(outcome: Outcome) -> dict[str, str]:
    """The vendor's code by index, or where the index is not known by the slot."""
    labels = list(outcome.of("accelerator_error_info"))
    return {device or uuid: code for _, device, uuid, code in labels}


def test_gpus_that_were_never_identified_are_counted(tmp_path: Path) -> None:
    """`there is no GPU` is not what eight failing ones are."""
    machine = Machine(tmp_path).start()
    for number in range(8):
        machine.set(number, error="!10")
    outcome = ProbeRunner(machine).run()
    assert (outcome.reason, states(outcome)) == ("unreadable", {})
    assert outcome.of("nvidia_devices")["nvml",] == 8
    assert outcome.of("accelerators_unreadable")["nvidia",] == 8
    assert codes(outcome) == dict.fromkeys(machine.slots, "10")
    assert "8 of 8" in outcome.text
    assert "Timeout (10)" in outcome.text


def test_nothing_is_lost_when_all_gpus_fail_after_a_good_run(tmp_path: Path) -> None:
    for name, code in (("uuid", 3), ("bus", 10), ("handle", 4), ("error", 999)):
        (tmp_path / name).mkdir()
        machine = Machine(tmp_path / name).start()
        runner = ProbeRunner(machine)
        good = runner.run()
        for number in range(8):
            machine.state[f"{number}.{name}"] = f"!{code}"
        machine.write()
        outcome = runner.run()
        assert outcome.of("accelerators_baseline") == {("nvidia",): 8}
        assert set(states(outcome).values()) <= {1}, name
        assert (present(outcome) == 8) == (outcome.reason == "") == (name == "bus"), name
        assert good.of("accelerator_info").keys() == outcome.of("accelerator_info").keys() or (
            len(outcome.of("accelerator_info")) == 8
        )


def test_gpu_that_cannot_be_opened_is_not_lost(tmp_path: Path, dev: DeviceFolder) -> None:
    """NVML does not list it."""
    machine = Machine(tmp_path, gpus=4).start()
    for number in range(4):
        dev.add(f"nvidia{number}", options="nodev" if number == 2 else "")
    runner = ProbeRunner(machine)
    runner.run()
    machine.refuse(2)
    outcome = runner.run()
    assert outcome.reason == "unreadable"
    others = {machine.uuid(number): 1.0 for number in (0, 1, 3)}  # NVML renumbers them
    assert {labels[2]: value for labels, value in outcome.of(UP).items()} == others
    assert outcome.of("accelerators_unreadable")["nvidia",] == 1
    assert codes(outcome) == {"2": "4"}
    assert "1 of 4 GPUs" in outcome.text
    assert "3 of 4 device files /dev/nvidia* can be opened" in outcome.text


@pytest.mark.parametrize("key", ["0.error", "0.fault.nvmlDeviceGetUUID", "0.bus"])
@pytest.mark.parametrize("code", [15, 999])
def test_it_is_not_lost_while_another_one_fails(
    tmp_path: Path, dev: DeviceFolder, key: str, code: int
) -> None:
    machine = Machine(tmp_path, gpus=4).start()
    runner = ProbeRunner(machine)
    runner.run()
    machine.refuse(2)
    runner.run()
    machine.state |= {key: f"!{code}"}
    machine.write()
    for _ in range(2):
        up = {labels[2]: value for labels, value in runner.run().of(UP).items()}
        assert machine.uuid(2) not in up
        assert up[machine.uuid(1)] == up[machine.uuid(3)] == 1


def run_until_it_ends(runner: ProbeRunner) -> Outcome:
    """Run until the next run is in a new process, which starts the library again."""
    for _ in range(MIN_RUNS_PER_START):
        outcome = runner.run()
        if runner.ended:
            return outcome
    raise AssertionError("the library would not be started again")


def assert_it_does_not_end(runner: ProbeRunner) -> None:
    for _ in range(2 * MIN_RUNS_PER_START):
        runner.run()
        assert not runner.ended


@pytest.fixture
def machine(tmp_path: Path, dev: DeviceFolder) -> Machine:
    """One of two GPUs with their device files."""
    dev.add("nvidia0")
    dev.add("nvidia1")
    return Machine(tmp_path, gpus=2).start()


def test_file_that_can_be_opened_again_starts_the_library_again(
    machine: Machine, dev: DeviceFolder
) -> None:
    """NVML's list is that of its start: without another one, it never lists the GPU."""
    dev.remove("nvidia1")
    machine.refuse(1)
    runner = ProbeRunner(machine)
    assert codes(runner.run()) == {machine.slots[1]: "6"}
    assert_it_does_not_end(runner)
    dev.add("nvidia1")
    run_until_it_ends(runner)
    machine.admit(1)
    assert states(runner.run()) == {"0": 1, "1": 1}


def test_gpu_that_was_lost_before_it_could_not_be_opened_is_found_again(
    machine: Machine, dev: DeviceFolder
) -> None:
    runner = ProbeRunner(machine)
    runner.run()
    machine.lose(1)
    runner.run()
    dev.remove("nvidia1")
    machine.recover(1)
    machine.refuse(1)
    runner.restart()
    assert states(runner.run()) == {"0": 1, "1": 0}
    assert_it_does_not_end(runner)
    dev.add("nvidia1")
    run_until_it_ends(runner)
    machine.admit(1)
    outcome = runner.run()
    assert (outcome.reason, states(outcome)) == ("", {"0": 1, "1": 1})


def test_file_that_appears_while_the_library_starts(machine: Machine, dev: DeviceFolder) -> None:
    """NVML has looked for it before, and the probe looks after."""
    runner = ProbeRunner(machine)
    runner.run()
    dev.remove("nvidia1")
    machine.refuse(1)
    machine.state["init_command"] = dev.command_to_add("nvidia1")
    machine.write()
    runner.restart()
    outcome = run_until_it_ends(runner)
    assert (outcome.reason, states(outcome)) == ("unreadable", {"0": 1})
    machine.remove("init_command")
    machine.admit(1)
    outcome = runner.run()
    assert (outcome.reason, states(outcome)) == ("", {"0": 1, "1": 1})


@pytest.mark.parametrize("known", [True, False])
def test_gpu_that_the_driver_gets_later_starts_the_library_again(
    machine: Machine, known: bool
) -> None:
    """It was given to a virtual machine, or was removed and is there again."""
    runner = ProbeRunner(machine)
    if known:
        runner.run()
    machine.vanish(1)
    runner.restart()
    assert states(runner.run()) == ({"0": 1, "1": 0} if known else {"0": 1})
    machine.bind(1)
    outcome = run_until_it_ends(runner)
    # One that is lost remains so until it is read.
    assert outcome.reason == ("" if known else "unreadable")
    assert ("the driver has it since after the start of NVML" in outcome.text) is not known
    machine.admit(1)
    outcome = runner.run()
    assert (outcome.reason, states(outcome)) == ("", {"0": 1, "1": 1})
    assert_it_does_not_end(runner)


@pytest.mark.parametrize("seen", [True, False])
def test_gpu_that_left_the_driver_and_came_back_starts_the_library_again(
    machine: Machine, seen: bool
) -> None:
    """As by `remove` and `rescan` of the PCI bus, also between two runs: for NVML it is lost until
    its next start.
    """
    runner = ProbeRunner(machine)
    runner.run()
    machine.lose(1)
    for dead in (True, False):
        machine.unbind(1)
        if seen:
            runner.run()
        machine.bind(1)
        assert states(run_until_it_ends(runner)) == {"0": 1, "1": 0}
        if not dead:
            machine.recover(1)
        assert states(runner.run()) == {"0": 1, "1": 0 if dead else 1}
        assert_it_does_not_end(runner)


def test_gpu_that_comes_and_goes_does_not_start_the_library_each_time(machine: Machine) -> None:
    runner = ProbeRunner(machine)
    machine.refuse(1)
    for _ in range(40):
        machine.unbind(1)
        runner.run()
        machine.bind(1)
        runner.run()
    assert 10 < runner.processes <= 21  # of 80 runs


def test_list_of_the_driver_that_cannot_be_read_loses_no_gpu(
    machine: Machine, dev: DeviceFolder
) -> None:
    dev.remove("nvidia1")
    machine.refuse(1)
    runner = ProbeRunner(machine)
    assert runner.run().reason == "unreadable"
    folder = machine.folder / "proc/driver/nvidia/gpus"
    kept = folder.rename(folder.with_name("kept"))
    folder.write_text("no directory")
    assert runner.run().reason == "unreadable"
    folder.unlink()
    kept.rename(folder)
    assert runner.run().reason == "unreadable"
    assert not runner.ended


def test_gpu_that_is_dead_is_lost_where_all_files_can_be_opened(
    tmp_path: Path, dev: DeviceFolder
) -> None:
    machine = Machine(tmp_path, gpus=2).start()
    for number in range(2):
        dev.add(f"nvidia{number}")
    runner = ProbeRunner(machine)
    runner.run()
    machine.refuse(1)
    outcome = runner.run()
    assert (outcome.reason, states(outcome)) == ("", {"0": 1, "1": 0})


@pytest.mark.parametrize("parameter", ["ExcludedGpus", "GpuBlacklist"])
def test_gpus_that_could_never_be_opened_are_counted(
    tmp_path: Path, dev: DeviceFolder, parameter: str
) -> None:
    """Unless a module parameter excludes GPUs: which ones is not read."""
    machine = Machine(tmp_path, gpus=2).start()
    machine.refuse(0)
    machine.refuse(1)
    outcome = ProbeRunner(machine).run()
    assert (outcome.reason, states(outcome)) == ("unreadable", {})
    assert codes(outcome) == dict.fromkeys(machine.slots, "6")
    params = f'Mobile: 4294967295\n{parameter}: "{{}}"\n'
    trees.write(tmp_path / "proc/driver/nvidia", {"params": params.format(machine.slots[0])})
    assert ProbeRunner(machine).run().reason == ""
    trees.write(tmp_path / "proc/driver/nvidia", {"params": params.format("")})
    assert ProbeRunner(machine).run().reason == "unreadable"


def test_gpu_whose_identity_alone_answers_is_not_up(tmp_path: Path) -> None:
    for code in (3, 4, 10, 999):
        (tmp_path / str(code)).mkdir()
        machine = Machine(tmp_path / str(code), gpus=2).start()
        runner = ProbeRunner(machine)
        good = runner.run()
        identity = ("bus", "uuid", "serial", "name", "vbios", "minor")
        for key in [key for key in machine.state if key.startswith("1.")]:
            if key.partition(".")[2] not in identity:
                machine.state[key] = f"!{code}"
        machine.write()
        outcome = runner.run()
        assert (states(outcome), codes(outcome)) == ({"0": 1}, {"1": str(code)})
        assert outcome.reason == "unreadable"
        assert outcome.of_device(machine.uuid(0)) == good.of_device(machine.uuid(0))


def test_lost_gpu_stays_lost_until_it_is_read(tmp_path: Path) -> None:
    """NVML's answers for one that fell off the bus alternate between 15 and 999."""
    machine = Machine(tmp_path, gpus=2).start()
    runner = ProbeRunner(machine)
    runner.run()
    for code in (15, 999, 15, 10):
        machine.lose(1, code)
        outcome = runner.run()
        assert (states(outcome), outcome.reason) == ({"0": 1, "1": 0}, "")
        assert codes(outcome) == {"1": str(code)}
        assert outcome.of("accelerators_unreadable")["nvidia",] == 0
    machine.recover(1)
    outcome = runner.run()
    assert (states(outcome), codes(outcome)) == ({"0": 1, "1": 1}, {})


def test_unreadable_gpu_that_left_the_bus_is_lost(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=2).start()
    runner = ProbeRunner(machine)
    runner.run()
    machine.lose(1, 999)
    assert states(runner.run()) == {"0": 1}
    devices = machine.folder / "sys/bus/pci/devices"
    (devices / f"{machine.slots[1]}.0").rename(machine.folder / "removed")
    outcome = runner.run()
    assert (states(outcome), codes(outcome)) == ({"0": 1, "1": 0}, {"1": "999"})
    # A bus of which nothing can be seen says nothing.
    other = ProbeRunner(machine)
    (machine.folder / "removed").rename(devices / f"{machine.slots[1]}.0")
    machine.recover(1)
    other.run()
    machine.lose(1, 999)
    devices.rename(machine.folder / "devices")
    assert states(other.run()) == {"0": 1}


@pytest.mark.parametrize("bus", ["!3", "0000:00:00.0"], ids=["jetson", "wsl"])
def test_gpu_that_is_not_on_the_pci_bus_is_up_and_not_lost(tmp_path: Path, bus: str) -> None:
    """Jetson's GPU has no bus id, and that of WSL is not in sysfs."""
    machine = Machine(tmp_path, "RTX4090", 1).start()
    shutil.rmtree(machine.folder / "sys/bus/pci/devices")
    shutil.rmtree(machine.folder / "proc/driver/nvidia/gpus")
    machine.set(0, bus=bus)
    runner = ProbeRunner(machine)
    assert states(runner.run()) == {"0": 1}
    machine.set(0, temperature="!10")
    assert states(runner.run()) == {"0": 1}
    machine.set(0, error="!10")
    outcome = runner.run()
    assert (states(outcome), codes(outcome)) == ({}, {"0": "10"})
    machine.set(0, error="!15")
    outcome = runner.run()
    assert (states(outcome), codes(outcome)) == ({"0": 0}, {"0": "15"})
    machine.recover(0)
    assert states(runner.run()) == {"0": 1}


def test_virtual_functions_are_no_gpus(tmp_path: Path) -> None:
    """SR-IOV: they have the PCI slot of their GPU, and no driver or one of VFIO."""
    machine = Machine(tmp_path, gpus=2).start()
    devices = machine.folder / "sys/bus/pci/devices"
    for number, slot in enumerate(machine.slots):
        for function in (4, 5):
            virtual = devices / f"{slot}.{function}"
            trees.write(virtual, {"vendor": "0x10de\n", "class": "0x030200\n"})
            (virtual / "physfn").symlink_to(f"../{slot}.0")
            if number == 0:
                (virtual / "driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    outcome = ProbeRunner(machine).run()
    assert states(outcome) == {"0": 1, "1": 1}
    assert outcome.of("nvidia_devices") == {("pci",): 2, ("driver",): 2, ("nvml",): 2}


@pytest.mark.parametrize("driver", ["vfio-pci", "nvgrace_gpu_vfio_pci", "nvidia-vgpu-vfio"])
def test_gpu_of_a_virtual_machine_is_passed_through(tmp_path: Path, driver: str) -> None:
    machine = Machine(tmp_path, gpus=2).start()
    runner = ProbeRunner(machine)
    runner.run()
    machine.bind_to_vfio(1, driver)
    machine.vanish(1)
    outcome = runner.run()
    assert (states(outcome), outcome.reason) == ({"0": 1}, "")
    assert outcome.of("nvidia_devices")["pci",] == 1


def test_device_whose_vendor_could_not_be_read_is_read_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=2).start()
    vendor = machine.folder / "sys/bus/pci/devices" / f"{machine.slots[1]}.0" / "vendor"
    vendor.rename(machine.folder / "vendor")
    runner = ProbeRunner(machine)
    assert runner.run().of("nvidia_devices")["pci",] == 1
    (machine.folder / "vendor").rename(vendor)
    assert runner.run().of("nvidia_devices")["pci",] == 2


def test_link_that_was_unreadable_at_first_has_its_counters_later(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=1).start()
    labels = ("0", machine.uuid(0), "", "replay")
    for link in range(18):
        machine.set_field(0, 161, 100, link=link)
    for failing in ({}, {f"field__{LINK_COUNT}__0": "!999"}):
        machine.set(0, nvlink__4="!999", field__161__4="!999", **failing)
        runner = ProbeRunner(machine)
        outcome = runner.run()
        assert labels not in outcome.of(ERRORS)  # a sum of 17 would be an increase later
        machine.set(0, nvlink__4=1, field__161__4=100, **{f"field__{LINK_COUNT}__0": 18})
        outcome = runner.run()
        assert (outcome.of(ERRORS)[labels], len(outcome.of("nvidia_nvlink_up"))) == (1800, 18)
        machine.add_field(0, 161, 250, link=4)
        assert runner.run().of(ERRORS)[labels] == 2050
        machine.set_field(0, 161, 100, link=4)


def test_counters_of_a_link_that_is_down_may_be_absent(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=1).start()
    machine.set(0, nvlink__17=0, field__161__17="!3")
    machine.set_field(0, 161, 7, link=3)
    outcome = ProbeRunner(machine).run()
    assert outcome.of(ERRORS)["0", machine.uuid(0), "", "replay"] == 7
    assert outcome.of(EXPECTED)["0", machine.uuid(0)] == 17


def test_unreadable_link_is_counted_and_not_down(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=1).start()
    runner = ProbeRunner(machine)
    labels = ("0", machine.uuid(0))
    outcome = runner.run()
    assert outcome.of("nvidia_nvlinks_unreadable")[labels] == 0
    assert outcome.of("nvidia_nvlinks_up")[labels] == 18
    machine.set(0, nvlink__4="!10", nvlink__5=0)
    outcome = runner.run()
    assert outcome.of("nvidia_nvlinks_unreadable")[labels] == 1
    assert outcome.of("nvidia_nvlinks_up")[labels] == 16
    assert outcome.of(EXPECTED)[labels] == 18
    assert list(outcome.of("nvidia_nvlink_up").values()).count(0) == 1


def test_ecc_that_failed_at_first_is_read_later(tmp_path: Path) -> None:
    """Also where the first look found no SRAM, and for a moment counted only all together."""
    for code in (3, 10, 999):
        (tmp_path / str(code)).mkdir()
        machine = Machine(tmp_path / str(code), gpus=1).start()
        machine.set(0, ecc__1__0__7=f"!{code}")
        runner = ProbeRunner(machine)
        runner.run()
        machine.set(0, ecc__1__0__7=5)
        runner.run()
        counts = runner.run().of("accelerator_ecc_errors_total")
        assert {labels[5] for labels in counts} == {"sram", "dram"}
        assert counts["nvidia", "0", machine.uuid(0), "uncorrected", "volatile", "sram"] == 5


@pytest.mark.parametrize(
    ("fabric", "healthy"),
    [("3 0 0x0 0", None), ("3 0 0x12a 0", 1), ("3 0 0x129 0", 0), ("3 0 0x5aa 0", 0)],
)
def test_fabric_health_without_a_summary_is_that_no_fault_is_reported(
    tmp_path: Path, fabric: str, healthy: float | None
) -> None:
    """Before driver 580 the structure has no summary; before 550 there is only the state."""
    machine = Machine(tmp_path, "B200", 1).start()
    machine.set(0, fabric=fabric, fabric_version=2)
    labels = ("0", machine.uuid(0))
    outcome = ProbeRunner(machine).run()
    assert outcome.of("nvidia_fabric_healthy").get(labels) == healthy
    machine.state["fault.nvmlDeviceGetGpuFabricInfoV"] = "!13"
    machine.write()
    outcome = ProbeRunner(machine).run()
    assert outcome.of("nvidia_fabric_state") == {(*labels, "completed"): 1}
    assert outcome.of("nvidia_fabric_healthy") == {}


def test_library_version_that_fails_does_not_hide_a_mismatch(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=1).start()
    machine.state |= {"fault.nvmlInitWithFlags": "!18", "fault.nvmlSystemGetNVMLVersion": "!15"}
    machine.write()
    outcome = ProbeRunner(machine).run()
    assert (outcome.reason, outcome.of("nvidia_version_mismatch")) == ("version_mismatch", {(): 1})


def test_unreadable_gpu_does_not_start_the_library_in_every_run(tmp_path: Path) -> None:
    """A start may initialise all GPUs; from time to time it may also be what helps."""
    machine = Machine(tmp_path, gpus=2).start()
    runner = ProbeRunner(machine)
    machine.lose(1, 999)
    for _ in range(50):
        assert runner.run().reason == "unreadable"
    assert runner.processes == 1 + 50 // FAILED_RUNS_PER_START
    machine.lose(1, 1)  # the driver was loaded again under this process
    before = runner.processes
    for _ in range(5):
        runner.run()
    assert runner.processes == before + 4
