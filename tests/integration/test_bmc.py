"""Probe `bmc` with an ipmitool that checks its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodevitals.linux.host import Host
from nodevitals.probe import Absent, ProbeError, Readings, Timing
from nodevitals.probes.bmc.ipmi import MAX_ENTRIES
from nodevitals.probes.bmc.parts import BmcState
from nodevitals.probes.bmc.probe import BmcProbe
from nodevitals.probes.bmc.settings import BmcSettings
from nodevitals.wire import decode, encode
from testbed.bmc import SENSORS, Bmc
from testbed.node import Node, wait_until

P = "nodevitals_bmc_"
MEMORY = (0x0C, 0x6F, 0x01)


class Bench:
    """A BMC and its probe, run in this process."""

    def __init__(self, folder: Path) -> None:
        self.bmc = Bmc(folder)
        self.state = BmcState()
        self.settings: dict[str, Any] = dict(self.bmc.settings)

    def run(self, timeout_seconds: float = 60.0) -> Readings:
        """A run; the state goes through the engine's encoding."""
        own = BmcSettings(**self.settings)
        probe = BmcProbe(Host(), own, "bmc", Timing(timeout_seconds=timeout_seconds))
        probe.state = decode(encode(self.state), BmcState)
        readings = Readings((), (), BmcProbe.families)
        probe.run(readings)
        self.state = probe.state
        return readings


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A healthy BMC."""
    return Bench(tmp_path)


def values(readings: Readings, family: str) -> dict[tuple[str, ...], float]:
    """Return the samples of a family by their labels."""
    return {one.labels: one.value for one in readings.samples if one.family == P + family}


def counted(readings: Readings) -> dict[tuple[str, ...], float]:
    """Return what the run added to the counter of events, without zeros."""
    return {one.labels: one.value for one in readings.increments if one.value}


def test_healthy_node(bench: Bench) -> None:
    """Each part is read; an empty slot, a fan that is not there and the chassis are no fault."""
    found = bench.run()
    assert values(found, "up") == {(): 1}
    assert values(found, "info") == {("4.21", "99999"): 1}
    assert values(found, "unreadable") == {}
    assert values(found, "power_supply_state") == {
        ("PS1 Status", "ok"): 1,
        ("PS2 Status", "ok"): 1,
        ("PS3 Status", "absent"): 1,
    }
    assert values(found, "fan_speed_rpm") == {("Fan1A",): 8400, ("Fan1B",): 7200}
    assert values(found, "fan_duty_ratio") == {("Fan 2 Duty",): pytest.approx(0.2548)}
    assert values(found, "inlet_temperature_celsius") == {(): 23}
    assert set(values(found, "temperature_celsius")) == {
        ("Inlet Temp",),
        ("Exhaust Temp",),
        ("Temp 0Eh",),
        ("Temp 0Fh",),
    }
    assert values(found, "power_watts") == {(): 812}
    assert values(found, "battery_state") == {("CMOS Battery", "ok"): 1}
    assert values(found, "redundancy") == {
        ("PS Redundancy", "power", "full"): 1,
        ("Fan Redundancy", "fan", "full"): 1,
    }
    assert values(found, "event_log_used_ratio") == {(): 0}


def test_only_calls_that_read(bench: Bench) -> None:
    """The program fails for any other argument; entries are read one by one, by Get SEL Entry."""
    bench.bmc.event(*MEMORY)
    bench.run()
    calls = [" ".join(words) for words in bench.bmc.calls()]
    assert calls == [
        "-I open mc info",
        "-I open sel info",
        "-I open raw 0x0a 0x43 0x00 0x00 0xff 0xff 0x00 0xff",
        "-I open dcmi power reading",
        "-I open sdr elist all",
    ]


def test_power_supply_without_input_and_fan_that_fails(bench: Bench) -> None:
    """Each is a state of its own."""
    text = SENSORS.replace(
        "PS2 Status       | 63h | ok  | 10.2 | Presence detected",
        "PS2 Status       | 63h | ok  | 10.2 | Presence detected, Power Supply AC lost",
    ).replace("| 31h | ok  |  7.1 | 7200 RPM", "| 31h | cr  |  7.1 | 0 RPM")
    bench.bmc.answer("sdr", text)
    found = bench.run()
    assert values(found, "power_supply_state")["PS2 Status", "input_lost"] == 1
    assert values(found, "fan_state")["Fan1B", "failed"] == 1
    assert values(found, "fan_speed_rpm")[("Fan1B",)] == 0


def test_events_are_counted_once_and_old_ones_never(bench: Bench) -> None:
    """What was in the log before the first run is not counted."""
    bench.bmc.event(*MEMORY)
    assert counted(bench.run()) == {}
    bench.bmc.event(*MEMORY)
    bench.bmc.event(0x02, 0x01, 0x02)
    bench.bmc.event(0x05, 0x6F, 0x00)
    found = bench.run()
    events = [labels for labels, value in counted(found).items() for _ in range(int(value))]
    assert sorted(events) == [("memory", "critical"), ("voltage", "critical")]
    assert [one.state for one in found.events] == ["memory_critical", "voltage_critical"]
    assert counted(bench.run()) == {}


def test_first_entry_of_an_empty_log_is_new(bench: Bench) -> None:
    """An empty log was read, too."""
    bench.run()
    bench.bmc.event(*MEMORY)
    assert counted(bench.run()) == {("memory", "critical"): 1}


@pytest.mark.parametrize("seconds", [7200.0, -7200.0], ids=["down", "clock-set-back"])
def test_event_while_the_node_was_down_is_counted_by_the_second_run(
    bench: Bench, seconds: float
) -> None:
    """The first one exposes the counters as they were: an increase needs a sample before it."""
    bench.run()
    bench.bmc.event(*MEMORY)
    bench.state.read_at -= seconds
    found = bench.run()
    assert counted(found) == {}
    assert ("memory", "critical") in {one.labels for one in found.increments}
    assert counted(bench.run()) == {("memory", "critical"): 1}
    assert counted(bench.run()) == {}


def test_log_that_was_cleared_is_read_from_its_start(bench: Bench) -> None:
    """Another entry with the record ID of the last one is new."""
    bench.bmc.event(*MEMORY)
    bench.run()
    bench.bmc.clear()
    bench.bmc.event(0x07, 0x6F, 0x00, stamp=0x6A000100)
    assert counted(bench.run()) == {("processor", "critical"): 1}


def test_flood_of_events_is_read_over_several_runs(bench: Bench) -> None:
    """A run reads a limited number, and none is lost or counted twice."""
    bench.run()
    for _ in range(MAX_ENTRIES + 3):
        bench.bmc.event(*MEMORY)
    totals = [len([one for one in bench.run().increments if one.value]) for _ in range(3)]
    assert totals == [MAX_ENTRIES, 3, 0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("@hang", "timeout"),
        ("@fail", "no_answer"),
        ("@denied", "permission"),
        ("@flood", "too_long"),
        ("", "malformed"),
    ],
)
def test_bmc_that_does_not_answer(bench: Bench, answer: str, reason: str) -> None:
    """It is not up; nothing else is said of the node, and nothing more is asked."""
    bench.bmc.answer("mc", answer)
    found = bench.run(timeout_seconds=2.0 if answer == "@hang" else 60.0)
    assert values(found, "up") == {(): 0}
    assert values(found, "unreadable") == {("controller", reason): 1}
    assert len(bench.bmc.calls()) == 1
    assert values(found, "power_supply_state") == {}


@pytest.mark.parametrize("call", ["sel", "log", "dcmi", "sdr"])
@pytest.mark.parametrize("answer", ["@fail", "@denied", "@flood"])
def test_each_call_that_fails(bench: Bench, call: str, answer: str) -> None:
    """The other parts are read; no fault is made of it; the next run reads it again."""
    bench.bmc.event(*MEMORY)
    bench.run()
    good = (bench.bmc.folder / call).read_text()
    bench.bmc.answer(call, answer)
    found = bench.run()
    part = {"sel": "log", "dcmi": "power", "sdr": "sensors"}.get(call, call)
    failed = {labels[0] for labels in values(found, "unreadable")}
    # A BMC without DCMI refuses, too: there is nothing to read.
    assert failed == (set() if (call, answer) == ("dcmi", "@fail") else {part})
    assert values(found, "up") == {(): 1}
    assert bool(values(found, "power_supply_state")) == (call != "sdr")
    assert counted(found) == {}
    bench.bmc.answer(call, good)
    again = bench.run()
    assert values(again, "unreadable") == {}
    assert counted(again) == {}


def test_excluded_sensors(bench: Bench) -> None:
    """A site leaves out what its BMC reports wrongly."""
    bench.settings["exclude"] = ("PS*", "Fan1?")
    found = bench.run()
    assert values(found, "power_supply_state") == {}
    assert values(found, "fan_speed_rpm") == {}


def test_node_without_a_bmc_or_a_tool(bench: Bench) -> None:
    """Absent, or an error where the probe is required."""
    (bench.bmc.dev / "ipmi0").unlink()
    with pytest.raises(Absent, match="no ipmi0"):
        bench.run()
    bench.settings["enabled"] = True
    with pytest.raises(ProbeError, match="no ipmi0") as missing:
        bench.run()
    assert missing.value.reason == "device_missing"
    (bench.bmc.dev / "ipmi0").touch()
    bench.settings["ipmitool"] = "/none/ipmitool"
    with pytest.raises(ProbeError, match="not found"):
        bench.run()


def test_agent_exposes_the_bmc(tmp_path: Path) -> None:
    """From the program to /metrics; counters start at 0, and an event increases one."""
    bmc = Bmc(tmp_path)
    settings = {"interval": "2s", "timeout": "2s", **bmc.settings}
    with Node(tmp_path, {"probes": {"bmc": settings}}) as node:
        memory = {"type": "memory", "severity": "critical"}
        wait_until(lambda: node.value("nodevitals_bmc_events_total", **memory) == 0)
        wait_until(lambda: node.value("nodevitals_bmc_event_log_entries") == 0)
        bmc.event(*MEMORY)
        wait_until(lambda: node.value("nodevitals_bmc_events_total", **memory) == 1)
