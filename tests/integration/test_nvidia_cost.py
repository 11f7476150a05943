"""What a real driver takes milliseconds for is asked no more often than it is exposed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodevitals.probes.nvidia import usage
from testbed.gpus import Machine
from testbed.nvmlprobe import ProbeRunner, fields_asked, forget_calls, functions_called

OLD_THERMAL, SOFTWARE_THERMAL = 75, 269
PCIE_BYTES = {197, 198}
SECONDS = "nvidia_slowdown_seconds_total"
ENERGY = "nvidia_energy_joules_total"


def asked(runner: ProbeRunner, runs: int) -> Iterator[set[int]]:
    """The fields that each run asks for."""
    for _ in range(runs):
        forget_calls()
        assert runner.run().reason == ""
        yield fields_asked()


def reasons(runner: ProbeRunner) -> set[str]:
    """The label `reason` of what the next run exposes."""
    return {labels[2] for labels in runner.run().of(SECONDS)}


def test_old_time_of_slowdowns_is_not_read_beside_the_new_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H200", 1).start()
    runner = ProbeRunner(machine)
    first, *later = asked(runner, 5)
    assert {OLD_THERMAL, SOFTWARE_THERMAL} <= first
    assert all(OLD_THERMAL not in fields and SOFTWARE_THERMAL in fields for fields in later)
    assert "thermal" not in reasons(runner)
    machine.set_field(0, SOFTWARE_THERMAL, "!3")
    runner.run()
    assert "thermal" in reasons(runner)  # the new one went away


def test_old_time_of_slowdowns_is_read_where_there_is_no_other(tmp_path: Path) -> None:
    runner = ProbeRunner(Machine(tmp_path, "A100", 1).start())
    assert all(OLD_THERMAL in fields for fields in asked(runner, 3))
    assert "thermal" in reasons(runner)


def test_counters_of_32_bits_are_seldom_asked_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H200", 1).start()
    runs = [not fields.isdisjoint(PCIE_BYTES) for fields in asked(ProbeRunner(machine), 40)]
    assert runs[0]
    assert sum(runs) == 6  # after 1, 2, 4, 8 and 16 runs


def test_counters_that_fail_are_asked_for_in_the_next_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    for field in PCIE_BYTES:
        machine.set_field(0, field, "!999")
    assert all(fields >= PCIE_BYTES for fields in asked(ProbeRunner(machine), 3))


def test_energy_is_read_once_per_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, "H100", 1).start()
    runner = ProbeRunner(machine)

    def energy() -> list[float]:
        return list(runner.run().of(ENERGY).values())

    assert energy() == [5_000_000]
    machine.set(0, energy=6_000_000_000)
    forget_calls()
    assert energy() == [5_000_000]
    assert "nvmlDeviceGetTotalEnergyConsumption" not in functions_called()
    monkeypatch.setattr(usage, "ENERGY_SECONDS", 0.0)
    assert energy() == [6_000_000]
    machine.set(0, energy="!999")
    assert energy() == []
    monkeypatch.undo()
    machine.set(0, energy=7_000_000_000)
    assert energy() == [7_000_000]  # what failed is read in the next run
