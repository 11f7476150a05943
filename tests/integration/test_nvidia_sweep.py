"""Every NVML call that the probe makes, failing with every code: on one GPU and on all, in the
first run and after good ones, and then it succeeds again. `make proof PART=nvml` does so with every
code; the codes of `make test` are SHORT_CODES.

The functions are those that the library was called with, so a call that is added to the probe is
swept too. Whatever fails: no GPU is lost that NVML does not call lost, none is up of which nothing
was read, no other GPU's series change, what remains has its right value, and all series are back
when the fault is over.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from nodevitals.probes.nvidia import usage
from testbed import gpus
from testbed.gpus import Machine
from testbed.longforms import long_forms
from testbed.nvmlprobe import (
    Outcome,
    ProbeRunner,
    Series,
    event_sets,
    forget_calls,
    functions_called,
)

CODES = (
    *(
        1,
        2,
        3,
        4,
        6,
        7,
        8,
        9,
        10,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
        19,
        20,
        21,
        23,
        25,
        26,
        27,
        28,
        29,
    ),
    999,
)
# Codes of which the probe treats each in a way of its own, or that are reported from the field.
TELLING_CODES = (1, 2, 3, 4, 6, 10, 13, 15, 25, 999)
FIELD_CODES = (3, 10, 15, 999)
# Unsupported, lost, unknown: what fails is missing, gone, or neither.
SHORT_CODES = (3, 15, 999)
LOST = 15
RUNS_TO_RECOVER = 3

# What may be missing while a function fails. A function that is not here may cost only families
# that no function here costs.
_OF_MIG_GPU_INSTANCE = (
    "nvidia_mig_ecc_errors_total",
    "nvidia_mig_memory_total_bytes",
    "nvidia_mig_memory_used_bytes",
)
_OF_MIG_COMPUTE_INSTANCE = ("nvidia_mig_info", "nvidia_mig_processes")
_OF_MIG = (*_OF_MIG_GPU_INSTANCE, *_OF_MIG_COMPUTE_INSTANCE)
COSTS: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetClockInfo": ("nvidia_memory_clock_hertz", "nvidia_sm_clock_hertz"),
    "nvmlDeviceGetComputeInstanceId": _OF_MIG_COMPUTE_INSTANCE,
    "nvmlDeviceGetComputeRunningProcesses_v3": ("accelerator_processes", "nvidia_mig_processes"),
    "nvmlDeviceGetDecoderUtilization": ("nvidia_engine_utilization_ratio",),
    "nvmlDeviceGetEncoderUtilization": ("nvidia_engine_utilization_ratio",),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("nvidia_pcie_link_generation",),
    "nvmlDeviceGetCurrPcieLinkWidth": ("nvidia_pcie_link_width",),
    "nvmlDeviceGetCurrentClocksEventReasons": ("nvidia_slowdown_active",),
    "nvmlDeviceGetCurrentClocksThrottleReasons": ("nvidia_slowdown_active",),
    "nvmlDeviceGetEccMode": ("nvidia_mode_info",),
    "nvmlDeviceGetEnforcedPowerLimit": ("nvidia_power_limit_watts",),
    "nvmlDeviceGetFieldValues": (
        "accelerator_healthy",
        "nvidia_memory_temperature_celsius",
        "nvidia_nvlink_bytes_total",
        "nvidia_nvlink_errors_total",
        "nvidia_nvlink_fec_errors_total",
        "nvidia_pcie_bytes_total",
        "nvidia_recovery_action",
        "nvidia_slowdown_seconds_total",
    ),
    "nvmlDeviceGetGpuFabricInfo": ("nvidia_fabric_state",),
    "nvmlDeviceGetGpuFabricInfoV": (
        "nvidia_fabric_fault",
        "nvidia_fabric_healthy",
        "nvidia_fabric_state",
    ),
    "nvmlDeviceGetGpuInstanceId": _OF_MIG,
    "nvmlDeviceGetHandleByIndex_v2": (),
    "nvmlDeviceGetIndex": (),
    "nvmlDeviceGetMarginTemperature": ("nvidia_temperature_margin_celsius",),
    "nvmlDeviceGetMaxPcieLinkGeneration": ("nvidia_pcie_link_generation_max",),
    "nvmlDeviceGetMaxPcieLinkWidth": ("nvidia_pcie_link_width_max",),
    "nvmlDeviceGetMaxMigDeviceCount": _OF_MIG,
    "nvmlDeviceGetMemoryErrorCounter": (
        "accelerator_ecc_errors_total",
        "nvidia_mig_ecc_errors_total",
    ),
    "nvmlDeviceGetMemoryInfo": ("accelerator_memory_total_bytes", "accelerator_memory_used_bytes"),
    "nvmlDeviceGetMemoryInfo_v2": (
        "accelerator_memory_total_bytes",
        "accelerator_memory_used_bytes",
        "nvidia_mig_memory_total_bytes",
        "nvidia_mig_memory_used_bytes",
    ),
    "nvmlDeviceGetMigDeviceHandleByIndex": _OF_MIG,
    "nvmlDeviceGetMigMode": ("nvidia_mode_info", *_OF_MIG),
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetNvLinkErrorCounter": ("nvidia_nvlink_errors_total",),
    "nvmlDeviceGetNvLinkState": (
        "nvidia_nvlink_errors_total",
        "nvidia_nvlink_up",
        "nvidia_nvlinks_up",
    ),
    "nvmlDeviceGetPciInfo_v3": (),
    "nvmlDeviceGetPcieReplayCounter": ("nvidia_pcie_replays_total",),
    "nvmlDeviceGetPersistenceMode": ("nvidia_mode_info",),
    "nvmlDeviceGetPerformanceState": ("nvidia_performance_state",),
    "nvmlDeviceGetPowerManagementDefaultLimit": ("nvidia_power_limit_default_watts",),
    "nvmlDeviceGetPowerUsage": ("accelerator_power_watts",),
    "nvmlDeviceGetRemappedRows": (
        "nvidia_remapped_rows",
        "nvidia_row_remap_failure",
        "nvidia_row_remap_pending",
    ),
    "nvmlDeviceGetRetiredPages": ("nvidia_retired_pages",),
    "nvmlDeviceGetRetiredPagesPendingStatus": ("nvidia_retired_pages_pending",),
    "nvmlDeviceGetRowRemapperHistogram": ("nvidia_remap_banks",),
    "nvmlDeviceGetSerial": (),
    "nvmlDeviceGetSramEccErrorStatus": ("nvidia_sram_threshold_exceeded",),
    "nvmlDeviceGetTemperature": (
        "accelerator_temperature_celsius",
        "nvidia_temperature_margin_celsius",
    ),
    "nvmlDeviceGetTemperatureThreshold": ("nvidia_temperature_margin_celsius",),
    "nvmlDeviceGetTotalEccErrors": ("accelerator_ecc_errors_total",),
    "nvmlDeviceGetTotalEnergyConsumption": ("nvidia_energy_joules_total",),
    "nvmlDeviceGetUtilizationRates": (
        "accelerator_utilization_ratio",
        "nvidia_memory_utilization_ratio",
    ),
    "nvmlDeviceGetVbiosVersion": (),
    "nvmlDeviceRegisterEvents": (),
    "nvmlEventSetCreate": (),
    "nvmlEventSetFree": (),
    "nvmlEventSetWait_v2": (),
    "nvmlSystemGetCudaDriverVersion_v2": (),
    "nvmlSystemGetDriverVersion": (),
    "nvmlSystemGetNVMLVersion": (),
}
# In the first run, the last good value of these is not known: the links that there are, and under
# which ids the driver has its counters.
FIRST_RUN_COSTS: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetNvLinkState": ("nvidia_nvlinks_expected", "nvidia_nvlinks_unreadable"),
    "nvmlDeviceGetFieldValues": ("nvidia_nvlinks_expected", "nvidia_nvlinks_unreadable"),
    "nvmlSystemGetDriverVersion": ("nvidia_slowdown_seconds_total",),
}
# A GPU cannot be identified without these; nothing works without the latter.
IDENTIFY = ("nvmlDeviceGetUUID", "nvmlDeviceGetHandleByPciBusId_v2")
ESSENTIAL = ("nvmlInitWithFlags", "nvmlDeviceGetCount_v2")
# Families with other labels or values where something fails: a text that is empty where it is not
# known, a count, or what another function returns for the same.
CHANGING = (
    "accelerator_ecc_errors_total",
    "accelerator_info",
    "accelerator_memory_used_bytes",
    "nvidia_driver_info",
    "nvidia_mig_info",
    "nvidia_mode_info",
    "nvidia_nvlinks_expected",
    "nvidia_nvlinks_unreadable",
    "nvidia_nvlinks_up",
    "nvidia_slowdown_seconds_total",
)
UP, ERROR = "accelerator_up", "accelerator_error_info"
UNREADABLE = ("nodevitals_accelerators_unreadable", ("nvidia",))


class World(msgspec.Struct, frozen=True):
    """A machine to sweep: its model, and what it lacks from the start."""

    model: str
    lacks: tuple[str, ...] = ()
    code: int = 13
    details: bool = False


WORLDS = {
    "hopper": World("H100"),
    "volta": World("V100"),
    "consumer": World("RTX4090"),
    "old_driver": World(
        "H100",
        (
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetMarginTemperature",
        ),
    ),
    "details_and_mig": World("B200", details=True),
    "found_by_bus_id": World("H100", ("nvmlDeviceGetHandleByIndex_v2",), 999),
}


class Bench:
    """A machine with two GPUs of two links each, and what a good run on it returns."""

    def __init__(self, folder: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        model = gpus.MODELS[world.model]
        small = msgspec.structs.replace(model, links=min(model.links, 2))
        monkeypatch.setitem(gpus.MODELS, "small", small)
        monkeypatch.setattr(usage, "ENERGY_SECONDS", 0.0)  # each run makes every call
        self.machine = Machine(folder, "small", 2).start()
        for number in range(2):
            self._give_values(number)
        self.codes = {world.code} if world.lacks else set()
        for function in world.lacks:
            self.machine.state[f"fault.{function}"] = f"!{world.code}"
        self._details = world.details
        if world.details:
            for number in range(2):
                self.machine.partition(number, "3g.90gb", "", "1g.23gb")
        self.machine.write()
        forget_calls()
        self.runner = self.new_runner()
        self.base = self.runner.run()
        assert self.base.reason == "", self.base.text
        assert self.runner.run() == self.base
        self.functions = functions_called() - set(world.lacks)

    def new_runner(self) -> ProbeRunner:
        return ProbeRunner(self.machine, details=self._details)

    def _give_values(self, number: int) -> None:
        """Give every counter a value of its own: a sum without one of its parts is noticed."""
        amount = 1000 * (number + 1)
        for key in sorted(self.machine.state):
            if key.startswith(
                (f"{number}.field.16", f"{number}.ecc.", f"{number}.nvlink_counter.")
            ):
                amount += 1
                self.machine.state[key] = str(amount)

    def uuids(self) -> list[str]:
        return [self.machine.uuid(number) for number in range(2)]

    def fail(self, keys: list[str], code: int) -> dict[str, str | None]:
        """Let keys have a code; what they had before."""
        before = {key: self.machine.state.get(key) for key in keys}
        self.machine.state |= dict.fromkeys(keys, f"!{code}")
        self.machine.write()
        return before

    def repair(self, before: dict[str, str | None]) -> None:
        for key, value in before.items():
            if value is None:
                del self.machine.state[key]
            else:
                self.machine.state[key] = value
        self.machine.write()

    def check_recovery(self, runner: ProbeRunner, where: str) -> None:
        for _ in range(RUNS_TO_RECOVER):
            outcome = runner.run()
            if outcome == self.base:
                return
        different = set(outcome.samples.items()) ^ set(self.base.samples.items())
        raise AssertionError((where, "does not recover", outcome.reason, sorted(different)[:10]))


def names(samples: dict[Series, float]) -> set[str]:
    return {family.removeprefix("nodevitals_") for family, _ in samples}


def check(bench: Bench, outcome: Outcome, affected: list[str], codes: set[int], where: str) -> None:
    """What holds whatever fails on the affected GPUs."""
    up = {labels[2]: value for labels, value in outcome.of(UP).items()}
    lost = {uuid for uuid, value in up.items() if value == 0}
    assert not lost or LOST in codes, (where, "lost", lost)
    for uuid in bench.uuids():
        if uuid not in affected:
            assert outcome.of_device(uuid) == bench.base.of_device(uuid), (where, "another GPU")
        read = names(outcome.of_device(uuid)) - {UP, ERROR, "accelerator_info"}
        if up.get(uuid) == 1:
            assert read - {"nvidia_nvlinks_expected"}, (where, "up, and nothing was read")
        else:
            assert read <= {"accelerator_lost_timestamp_seconds"}, (where, "read, and not up", read)
    known = {
        series: value for series, value in outcome.samples.items() if series in bench.base.samples
    }
    for series, value in known.items():
        fixed = series[0].removeprefix("nodevitals_") not in CHANGING
        if fixed and not lost and outcome.reason == "":
            assert value == bench.base.samples[series], (where, series)
    unreadable = 2 - len(up)
    if outcome.of("nvidia_devices").get(("nvml",)) is not None:
        assert outcome.of("nvidia_devices")["nvml",] == 2, where
        assert outcome.samples[UNREADABLE] == unreadable, where
        shown = {labels[3] for labels in outcome.of(ERROR)}
        assert shown <= {str(code) for code in codes}, (where, shown)
        assert bool(shown) == bool(unreadable or lost), (where, shown)
    assert (outcome.reason == "") == (unreadable == 0), (where, outcome.reason)


def check_costs(
    bench: Bench, outcome: Outcome, affected: list[str], function: str, where: str, first: bool
) -> None:
    """What a function's failure costs, where it is not that the GPU is lost."""
    if function in ESSENTIAL or function in IDENTIFY:
        assert function not in ESSENTIAL or not outcome.of(UP), where
        assert function not in IDENTIFY or names(outcome.samples) >= {ERROR}, where
        return
    assert outcome.reason == "", (where, outcome.text)
    allowed = set(COSTS.get(function, ()))
    if first:
        allowed |= set(FIRST_RUN_COSTS.get(function, ()))
    missing = names(bench.base.samples) - names(outcome.samples)
    for uuid in affected:
        missing |= names(bench.base.of_device(uuid)) - names(outcome.of_device(uuid))
    if function in COSTS:
        assert missing <= allowed, (where, missing - allowed)
    else:
        assert missing.isdisjoint(family for families in COSTS.values() for family in families), (
            where
        )
    if function == "nvmlDeviceGetIndex" and first:
        return  # there is no index to label the series with
    new = {series for series in outcome.samples if series not in bench.base.samples}
    assert names(dict.fromkeys(new, 0.0)) <= set(CHANGING), (where, new)


def sweep(bench: Bench, function: str, code: int, first: bool, everywhere: bool) -> None:
    where = f"{function} {code} {'first' if first else 'later'} {'all' if everywhere else 'one'}"
    general = everywhere or not function.startswith("nvmlDevice") or function in ESSENTIAL
    keys = [f"fault.{function}" if general else f"0.fault.{function}"]
    affected = bench.uuids() if general else bench.uuids()[:1]
    runner = bench.new_runner() if first else bench.runner
    before = bench.fail(keys, code)
    outcome = runner.run()
    if function == "nvmlInitWithFlags" and not first:
        assert outcome == bench.base
    elif function in ESSENTIAL:
        assert outcome.reason not in ("", "absent"), where
        assert not any(uuid in labels for uuid in bench.uuids() for _, labels in outcome.samples)
    else:
        check(bench, outcome, affected, {code, *bench.codes}, where)
        if not any(value == 0 for value in outcome.of(UP).values()):
            check_costs(bench, outcome, affected, function, where, first)
    bench.repair(before)
    bench.check_recovery(runner, where)


@pytest.mark.parametrize("code", long_forms("nvml", CODES, SHORT_CODES))
def test_a_function_that_fails_costs_only_what_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    bench = Bench(tmp_path, WORLDS["hopper"], monkeypatch)
    assert {"nvmlDeviceGetUUID", "nvmlDeviceGetFieldValues", *ESSENTIAL} <= bench.functions
    for function in sorted(bench.functions):
        sweep(bench, function, code, first=False, everywhere=False)
        sweep(bench, function, code, first=True, everywhere=True)
        if code in TELLING_CODES:
            sweep(bench, function, code, first=True, everywhere=False)
            sweep(bench, function, code, first=False, everywhere=True)


@pytest.mark.parametrize(
    "world", long_forms("nvml", [name for name in WORLDS if name != "hopper"], {"old_driver"})
)
def test_a_function_that_only_some_machines_need_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world: str
) -> None:
    """Functions for older GPUs and drivers, and those that are called where another one failed."""
    (tmp_path / "usual").mkdir()
    usual = Bench(tmp_path / "usual", WORLDS["hopper"], monkeypatch).functions
    (tmp_path / "other").mkdir()
    bench = Bench(tmp_path / "other", WORLDS[world], monkeypatch)
    for function in sorted(bench.functions - usual):
        for code in TELLING_CODES:
            for first in (False, True):
                sweep(bench, function, code, first, everywhere=False)
                sweep(bench, function, code, first, everywhere=True)


@pytest.mark.parametrize("code", long_forms("nvml", FIELD_CODES, {15}))
@pytest.mark.parametrize("model", ["H100", "V100"])
def test_a_value_that_cannot_be_read_costs_only_what_is_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, code: int
) -> None:
    """One link, one location, one field of one GPU, which a whole function's failure hides."""
    bench = Bench(tmp_path, World(model), monkeypatch)
    keys = sorted(key for key in bench.machine.state if key.startswith("0."))
    assert len(keys) > 50
    for key in keys:
        for runner in (bench.runner, bench.new_runner()):
            before = bench.fail([key], code)
            outcome = runner.run()
            check(bench, outcome, bench.uuids()[:1], {code}, f"{key} {code}")
            if key != "0.uuid" and code != LOST:
                lost_families = names(bench.base.samples) - names(outcome.samples)
                assert not lost_families, (key, code, lost_families)
                missing = names(bench.base.of_device(bench.machine.uuid(0)))
                missing -= names(outcome.of_device(bench.machine.uuid(0)))
                assert len(missing) <= 3, (key, code, missing)
            bench.repair(before)
            bench.check_recovery(runner, f"{key} {code}")


def test_an_absence_that_lasted_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was unsupported for 100 runs is there again at most 64 runs later."""
    bench = Bench(tmp_path, WORLDS["hopper"], monkeypatch)
    keys = [key for key in bench.machine.state if ".field." in key or ".ecc." in key]
    for runner in (bench.runner, bench.new_runner()):
        before = bench.fail(keys, 3)
        for _ in range(100):
            outcome = runner.run()
        assert "accelerator_ecc_errors_total" not in names(outcome.samples)
        bench.repair(before)
        runs = next(run for run in range(1, 66) if runner.run() == bench.base)
        assert runs > 1


def test_event_sets_of_a_lost_gpu_are_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, WORLDS["hopper"], monkeypatch)
    sets = event_sets()
    before = bench.fail(["fault.nvmlEventSetWait_v2"], LOST)
    for _ in range(50):
        assert bench.runner.run() == bench.base
    assert event_sets() <= sets
    bench.repair(before)
    bench.runner.run()
    assert event_sets() == sets
