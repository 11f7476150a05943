"""Probe `nvidia`: throughput, energy, MIG instances, activity and details on simulated machines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import gpus
from testbed.gpus import Machine
from testbed.kmsg import KernelLog
from testbed.node import ROOT, Node, run, wait_until

PREFIX = "nodevitals_nvidia_"
MAX_SERIES = 760


def once(machine: Machine, **settings: Any) -> str:
    """Run `nodevitals probe nvidia`, which must succeed: its output."""
    config = machine.folder / "once.yaml"
    config.write_text(json.dumps({"probes": {"nvidia": {**machine.settings, **settings}}}))
    flags = (f"--config.file={config}", *machine.flags)
    done = run("probe", "nvidia", "--raw", *flags, **machine.environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def agent(machine: Machine, **settings: Any) -> Node:
    """Return an agent that runs the probe twice a second."""
    nvidia = {"interval": "500ms", "timeout": "500ms", **machine.settings, **settings}
    probes = {"nvidia": nvidia, "node": {"enabled": False}, "kernel_log": {"enabled": False}}
    environment = {"PYTHONPATH": str(ROOT / "exporter"), **machine.environment}
    return Node(machine.folder, {"probes": probes}, *machine.flags, **environment)


def values(text: str, family: str, **labels: str) -> list[float]:
    """Return the values of a family's samples that have these labels."""
    lines = [line for line in text.splitlines() if line.startswith(f"{PREFIX}{family}{{")]
    parts = [f'{name}="{value}"' for name, value in labels.items()]
    return [float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in parts)]


def families(text: str) -> set[str]:
    return set(re.findall(rf"^{PREFIX}(\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("model", sorted(gpus.MODELS))
def test_bytes_and_energy_are_counters_in_base_units(tmp_path: Path, model: str) -> None:
    """NVLink counts KiB up to Hopper and bytes on Blackwell; energy is in mJ."""
    machine = Machine(tmp_path, model, 1).start()
    text = once(machine)
    assert values(text, "energy_joules_total") == [5_000_000]
    has = gpus.MODELS[model]
    pcie = [] if has.narrow_fields else [10**12]
    assert values(text, "pcie_bytes_total", direction="received") == pcie
    assert values(text, "pcie_bytes_total", direction="transmitted") == pcie
    expected = [2**40 + 7] if has.nvlink5 else [2**40] if has.links else []
    assert values(text, "nvlink_bytes_total", direction="received") == expected
    assert values(text, "nvlink_bytes_total", direction="transmitted") == expected


def test_throughput_that_cannot_be_read_is_missing_and_never_of_another_unit(
    tmp_path: Path,
) -> None:
    """What NVML counts in bytes is not replaced by its count of KiB while it fails."""
    machine = Machine(tmp_path, "B200", 1).start()
    name = f"{PREFIX}nvlink_bytes_total"
    with agent(machine) as running:
        wait_until(lambda: running.value(name, direction="received") == 2**40 + 7)
        for code in ("!999", "!3"):
            machine.set_field(0, gpus.NVLINK_BYTES_RECEIVED, code, link=gpus.ALL_LINKS)
            machine.set_field(0, gpus.NVLINK_BYTES_SENT, code, link=gpus.ALL_LINKS)
            wait_until(lambda: running.value(name, direction="received") is None)
            assert running.value(f"{PREFIX}pcie_bytes_total", direction="received") == 10**12
            machine.set_field(0, gpus.NVLINK_BYTES_RECEIVED, 2**41, link=gpus.ALL_LINKS)
            machine.set_field(0, gpus.NVLINK_BYTES_SENT, 2**41, link=gpus.ALL_LINKS)
            wait_until(lambda: running.value(name, direction="received") == 2**41)


def test_counter_of_32_bits_is_not_exposed(tmp_path: Path) -> None:
    """It wraps ten times a second on a busy link: its difference is no throughput."""
    machine = Machine(tmp_path, "H100", 1).start()
    machine.set(0, field_type__197=1, field_type__198=1)
    text = once(machine)
    assert values(text, "pcie_bytes_total") == []
    assert values(text, "nvlink_bytes_total") != []


@pytest.mark.proof("nvml")
def test_each_reading_fails_alone(tmp_path: Path) -> None:
    """A call that fails, or that the driver lacks, removes its own family and no other."""
    machine = Machine(tmp_path, "H100", 1).start()
    settings = {"details": True}
    before = families(once(machine, **settings))
    for key, lost in {
        "energy": {"energy_joules_total"},
        "clock.2": {"memory_clock_hertz"},
        "performance_state": {"performance_state"},
        "power_limit_default": {"power_limit_default_watts"},
        "utilization": {"memory_utilization_ratio"},
    }.items():
        kept = machine.state[f"0.{key}"]
        for code in (3, 999):
            machine.state[f"0.{key}"] = f"!{code}"
            machine.write()
            assert before - families(once(machine, **settings)) == lost, (key, code)
        machine.state[f"0.{key}"] = kept
    machine.write()
    machine.hidden = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetEncoderUtilization")
    text = once(machine, **settings)
    assert before - families(text) == {"energy_joules_total"}
    assert values(text, "engine_utilization_ratio", engine="encoder") == []


def test_details_are_off_unless_configured(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "B200", 1).start()
    machine.set(0, clock__2=2619, performance_state=8, decoder=25)
    machine.set_field(0, gpus.C2C_LINKS, 2)
    for position, field in enumerate(gpus.C2C_ERRORS):
        for link in range(2):
            machine.set_field(0, field, 10 * link + position, link=link)
    text = once(machine)
    off = {
        *("memory_clock_hertz", "memory_utilization_ratio", "engine_utilization_ratio"),
        "performance_state",
        *("power_limit_default_watts", "nvlink_fec_errors_total", "c2c_errors_total"),
    }
    assert not off & families(text)
    text = once(machine, details=True)
    assert off <= families(text)
    assert values(text, "memory_clock_hertz") == [2619e6]
    assert values(text, "memory_utilization_ratio") == [0.5]
    assert values(text, "engine_utilization_ratio", engine="decoder") == [0.25]
    assert values(text, "performance_state") == [8]
    assert values(text, "power_limit_default_watts") == [700]
    assert len(values(text, "nvlink_fec_errors_total")) == 16
    assert values(text, "nvlink_fec_errors_total", bin="15") == [2**40 + 7]
    assert values(text, "c2c_errors_total", link="1", kind="replay_back_to_back") == [12]
    machine.set(0, performance_state=32)
    assert values(once(machine, details=True), "performance_state") == []


def test_mig_instances_have_identity_memory_processes_and_errors(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    machine.partition(1, "3g.40gb", "", "1g.10gb")
    second = machine.state["1.mig.2"]
    machine.state |= {f"{second}.ecc.1.0.7": "4", f"{second}.processes": "3"}
    machine.write()
    text = once(machine)
    assert values(text, "mig_info", device="0") == []
    uuid = machine.state[f"{second}.uuid"]
    which = {"device": "1", "gpu_instance": "9", "compute_instance": "0"}
    assert values(text, "mig_info", mig_uuid=uuid, profile="1g.10gb", **which) == [1]
    assert values(text, "mig_info", profile="3g.40gb", gpu_instance="7") == [1]
    assert values(text, "mig_memory_used_bytes", gpu_instance="9") == [gpus.GIB]
    assert values(text, "mig_memory_total_bytes", gpu_instance="9") == [10 * gpus.GIB]
    assert values(text, "mig_processes", **which) == [3]
    assert values(text, "mig_ecc_errors_total", gpu_instance="9") == [4]
    assert values(text, "mig_ecc_errors_total", gpu_instance="7") == [0]


def test_compute_instances_share_the_memory_of_their_gpu_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    machine.partition(0, "1c.2g.20gb", "1c.2g.20gb")
    second = machine.state["0.mig.1"]
    machine.state |= {f"{second}.gpu_instance": "7", f"{second}.compute_instance": "1"}
    machine.write()
    text = once(machine)
    assert len(values(text, "mig_info", gpu_instance="7")) == 2
    assert len(values(text, "mig_processes")) == 2
    assert len(values(text, "mig_memory_used_bytes")) == 1
    assert len(values(text, "mig_ecc_errors_total")) == 1


def test_instances_that_change_while_they_are_read_fail_nothing_else(tmp_path: Path) -> None:
    """An instance that is being removed: its calls fail, those of the others do not."""
    machine = Machine(tmp_path, "H100", 1).start()
    machine.partition(0, "1g.10gb", "1g.10gb", "1g.10gb")
    first, second = machine.state["0.mig.0"], machine.state["0.mig.1"]
    machine.state |= {f"{first}.error": "!1", f"{second}.memory_used": "!3"}
    machine.write()
    text = once(machine)
    assert len(values(text, "mig_info")) == 2
    assert len(values(text, "mig_memory_used_bytes")) == 1
    assert values(text, "energy_joules_total") == [5_000_000]


def test_activity_is_the_average_since_the_last_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 2).start()
    machine.set(0, gpm__2=37.5, gpm__5="!3", gpm__10="nan", gpm__20=3)
    name = f"{PREFIX}activity_ratio"
    with agent(machine, activity=True) as running:
        wait_until(lambda: running.value(name, device="0", unit="sm") == 0.375)
        wait_until(lambda: running.value(name, device="1", unit="tensor") == 0.5)
        assert running.value(name, device="0", unit="tensor") is None
        assert running.value(name, device="0", unit="dram") is None
        rate = f"{PREFIX}pcie_bytes_per_second"
        assert running.value(rate, device="0", direction="transmitted") == 3 * 2**20
        machine.set(0, gpm_sample="!999")
        wait_until(lambda: running.value(name, device="0", unit="sm") is None)
        assert running.value("nodevitals_accelerator_up", device="0") == 1
        machine.remove("0.gpm_sample")
        wait_until(lambda: running.value(name, device="0", unit="sm") == 0.375)


def test_activity_of_mig_instances_is_read_by_instance(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    machine.partition(0, "3g.40gb", "3g.40gb")
    machine.set(0, gpm__2__7=10, gpm__2__8=90)
    name = f"{PREFIX}activity_ratio"
    with agent(machine, activity=True) as running:
        wait_until(lambda: running.value(name, gpu_instance="7", unit="sm") == 0.1)
        assert running.value(name, gpu_instance="8", unit="sm") == 0.9
        machine.remove("0.mig.1")
        wait_until(lambda: running.value(name, gpu_instance="8", unit="sm") is None)
        assert running.value(name, gpu_instance="7", unit="sm") == 0.1


READ_OFTEN = """
import sys
import pynvml
from nodevitals.probe import Readings
from nodevitals.probes.nvidia import nvml
from nodevitals.probes.nvidia.usage import ActivityReader

nvml.start(sys.argv[1])
for _ in range(300):
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    readings = Readings()
    reader, gpu = ActivityReader(), nvml.GpuReadings(handle, readings, "0", "GPU-1")
    reader.read(gpu, ())
    reader.read(gpu, ())
    assert readings.samples
"""


def test_activity_frees_its_samples(tmp_path: Path) -> None:
    """The library has room for 128 samples: with a leak, none would be left for later ones."""
    machine = Machine(tmp_path, "H100", 1).start()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "exporter"), **machine.environment}
    argv = [sys.executable, "-c", READ_OFTEN, machine.settings["library"]]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("model", "hidden"), [("A100", ()), ("H100", ("nvmlGpmQueryDeviceSupport",))]
)
def test_activity_is_missing_where_the_gpu_or_the_driver_lacks_it(
    tmp_path: Path, model: str, hidden: tuple[str, ...]
) -> None:
    machine = Machine(tmp_path, model, 1).start()
    machine.hidden = hidden
    with agent(machine, activity=True) as running:
        runs = "nodevitals_probe_runs_total"
        wait_until(lambda: (running.value(runs, probe="nvidia", outcome="ok") or 0) > 3)
        assert running.value(f"{PREFIX}activity_ratio") is None
        assert running.value("nodevitals_accelerator_up") == 1


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0x0, None),
        (0x1AA, None),
        (0x2AA, "incorrect_system_guid"),
        (0x5AA, "insufficient_nvlinks"),
        (0x8AA, "gpu_state_invalid"),
        (0xFAA, "other"),
    ],
)
def test_misconfiguration_of_the_fabric_is_named(
    tmp_path: Path, mask: int, expected: str | None
) -> None:
    machine = Machine(tmp_path, "B200", 1).start()
    machine.set(0, fabric=f"3 0 {mask:#x} 1")
    text = once(machine)
    family = "fabric_misconfiguration"
    assert len(values(text, family)) == (expected is not None)
    if expected:
        assert values(text, family, configuration=expected) == [1]


def test_cluster_and_clique_are_exposed_where_there_is_a_cluster(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "B200", 2).start()
    machine.set(1, fabric_place="171 3")
    text = once(machine)
    assert values(text, "fabric_info", device="0") == []
    cluster = "00000000-0000-0000-0000-0000000000ab"
    assert values(text, "fabric_info", device="1", cluster_uuid=cluster, clique="3") == [1]


def test_node_with_eight_gpus_stays_under_760_series_by_default(tmp_path: Path) -> None:
    """The whole node, with Xid counters; not with `details` and `activity`, which are off."""
    machine = Machine(tmp_path, "H100").start()
    with KernelLog(tmp_path) as log:
        nvidia = {"interval": "2s", "timeout": "2s", **machine.settings}
        probes = {"nvidia": nvidia, "kernel_log": {"path": str(log.path)}}
        environment = {"PYTHONPATH": str(ROOT / "exporter"), **machine.environment}
        node = Node(tmp_path, {"probes": probes}, *machine.flags, **environment)
        with node as running:
            xids = "nodevitals_nvidia_xid_errors_total"
            wait_until(lambda: running.value(xids, device="7", xid="79") == 0)
            wait_until(
                lambda: running.value(f"{PREFIX}energy_joules_total", device="7") is not None
            )
            assert len(running.samples()) < MAX_SERIES
