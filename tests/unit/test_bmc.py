"""What a BMC prints, as ipmitool shows it: sensors and entries of the event log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevitals.probes.bmc import sensors
from nodevitals.probes.bmc.ipmi import parse_entry, parse_log_info, parse_watts


def one(reading: str, name: str = "PS1 Status", entity: str = "10.1") -> sensors.Sensor:
    """Return the sensor of one line."""
    (sensor,) = sensors.parse_sensors(f"{name} | C8h | ok  | {entity} | {reading}")
    return sensor


@pytest.mark.parametrize(
    ("reading", "state"),
    [
        ("Presence detected", "ok"),
        ("Presence detected, Failure detected", "failed"),
        ("Presence detected, Failure detected, Power Supply AC lost", "input_lost"),
        ("Presence detected, AC lost or out-of-range", "input_lost"),
        ("Presence detected, Predictive failure", "predictive_failure"),
        ("Presence detected, Config Error: Vendor Mismatch", "configuration_error"),
        ("Presence detected, Power Supply Inactive", "inactive"),
        ("", "absent"),
        ("Device Absent", "absent"),
        ("405 Watts, Presence detected", "ok"),
        ("405 Watts", None),
        ("State Deasserted", None),
        ("Zustand unbekannt", None),
    ],
)
def test_state_of_a_power_supply(reading: str, state: str | None) -> None:
    """No input is another state than a failure; an empty slot is neither failed nor good."""
    assert sensors.supply_state(one(reading)) == state


@pytest.mark.parametrize(
    ("name", "reading", "expected"),
    [
        ("PS Redundancy", "Fully Redundant", ("power", "full")),
        ("Power Supplies", "Redundancy Lost", ("power", "lost")),
        ("Fan Redundancy", "Redundancy Degraded", ("fan", "degraded")),
        ("Cooling", "Non-Redundant: Insufficient Resources", ("fan", "lost")),
        ("PS Redundancy", "", None),
    ],
)
def test_redundancy(name: str, reading: str, expected: tuple[str, str] | None) -> None:
    """What a sensor does not assert is unknown."""
    assert sensors.redundancy(one(reading, name, "7.1")) == expected


@pytest.mark.parametrize(
    ("status", "reading", "state"),
    [
        ("ok", "8400 RPM", "ok"),
        ("lnc", "900 RPM", "warning"),
        ("cr", "0 RPM", "failed"),
        ("ok", "0 RPM", None),
        ("ok", "25.48 percent", "ok"),
        ("ok", "Device Removed/Device Absent", "absent"),
        ("ok", "0 percent, Transition to Non-recoverable", "failed"),
    ],
)
def test_state_of_a_fan(status: str, reading: str, state: str | None) -> None:
    """A fan without a limit that stands still may be no fan."""
    (fan,) = sensors.parse_sensors(f"Fan 1 | 30h | {status} | 29.1 | {reading}")
    assert sensors.is_fan(fan)
    assert sensors.fan_state(fan) == state


@pytest.mark.parametrize(
    "line",
    [
        "Fan 1 | 30h | ns | 29.1 | No Reading",
        "Fan 1 | 30h | ns | 29.1 | Disabled",
        "Fan 1 | 30h | ok | 29.1 | na",
        "Fan 1 | 30h | ok | 29.1",
        "Fan 1 | 30h | ok | 29.1.1 | 1 RPM",
        "Get SDR record failed",
        "",
    ],
)
def test_sensor_without_a_reading_says_nothing(line: str) -> None:
    """It is missing, neither 0 nor failed."""
    assert sensors.parse_sensors(line) == []


def test_sensors_of_one_name_are_told_apart_by_their_numbers() -> None:
    """Dell calls both temperatures of processors `Temp`."""
    text = "Temp | 0Eh | ok | 3.1 | 55 degrees C\nTemp | 0Fh | ok | 3.2 | 57 degrees C\n"
    assert [one.name for one in sensors.parse_sensors(text)] == ["Temp 0Eh", "Temp 0Fh"]


def test_inlet_is_the_hottest_of_the_chassis_and_no_part() -> None:
    """A GPU and a power supply have an inlet of their own."""
    lines = [
        "Inlet Temp | 04h | ok | 7.1 | 23 degrees C",
        "Ambient | 05h | ok | 64.1 | 25 degrees C",
        "GPU1 Inlet | 06h | ok | 11.1 | 60 degrees C",
        "PSU1 Ambient | 07h | ok | 10.1 | 50 degrees C",
    ]
    parts = sensors.parts(sensors.parse_sensors("\n".join(lines)))
    assert [part.name for part in parts if part.inlet] == ["Inlet Temp", "Ambient"]


@pytest.mark.parametrize(
    ("name", "reading", "state"),
    [
        ("CMOS Battery", "Presence Detected", "ok"),
        ("CMOS Battery", "Low", "low"),
        ("ROMB Battery", "Presence Detected, Failed", "failed"),
        ("VBAT", "3.05 Volts", "ok"),
        ("ROMB Battery", "", None),
    ],
)
def test_state_of_a_battery(name: str, reading: str, state: str | None) -> None:
    """By its states, or by the limits of its voltage."""
    assert sensors.battery_state(one(reading, name, "7.1")) == state


def entry(kind: int, event: int, offset: int, record_type: int = 2) -> str:
    """Return what `ipmitool raw` prints for an entry."""
    body = [0xFF, 0xFF, 1, 0, record_type, 1, 2, 3, 0x6A, 0x20, 0, 4, kind, 0x53, event, offset]
    return " " + " ".join(f"{byte:02x}" for byte in body) + "\n ff ff\n"


@pytest.mark.parametrize(
    ("kind", "event", "offset", "expected"),
    [
        (0x0C, 0x6F, 0xA1, ("memory", "critical")),
        (0x0C, 0x6F, 0x05, ("memory", "warning")),
        (0x0C, 0x6F, 0x00, ("", "")),
        (0x0C, 0xEF, 0x01, ("", "")),
        (0x07, 0x6F, 0x00, ("processor", "critical")),
        (0x13, 0x6F, 0x05, ("bus", "critical")),
        (0x13, 0x6F, 0x07, ("", "")),
        (0x02, 0x01, 0x52, ("voltage", "critical")),
        (0x02, 0x01, 0x50, ("voltage", "warning")),
        (0x02, 0x01, 0x53, ("", "")),
        (0x21, 0x6F, 0x00, ("slot", "critical")),
        (0x29, 0x6F, 0x00, ("battery", "warning")),
        (0x05, 0x6F, 0x00, ("", "")),
        (0x23, 0x6F, 0x01, ("", "")),
        (0xC0, 0x6F, 0x01, ("", "")),
        (0x19, 0x6F, 0x01, ("board", "critical")),
        (0x0C, 0x70, 0x01, ("", "")),
    ],
)
def test_fault_of_an_entry(kind: int, event: int, offset: int, expected: tuple[str, str]) -> None:
    """The end of a fault, a corrected error and an opened chassis are none."""
    found = parse_entry(entry(kind, event, offset))
    assert found is not None
    assert (found.kind, found.severity) == expected


def test_entry_of_a_vendor_reports_no_fault() -> None:
    """Its bytes mean what the vendor says."""
    found = parse_entry(entry(0x0C, 0x6F, 1, record_type=0xC1))
    assert found is not None
    assert found.severity == ""


@pytest.mark.parametrize("text", ["", "ff", "zz " * 18, "ff " * 19, "Close Session command failed"])
def test_what_is_no_entry(text: str) -> None:
    """It is None, never a guess."""
    assert parse_entry(text) is None


@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    """Nothing is raised, whatever a BMC prints."""
    for sensor in sensors.parse_sensors(f"a | 01h | ok | 10.1 | {text}\n{text}"):
        sensors.supply_state(sensor)
        sensors.fan_state(sensor)
        sensors.battery_state(sensor)
    parse_entry(text)
    parse_log_info(text)
    parse_watts(text)


def test_log_without_numbers_and_power_without_a_reading_are_unknown() -> None:
    """`unknown` is no share; 0 W is no reading: the node runs."""
    info = parse_log_info("Entries          : many\nPercent Used     : unknown\n")
    assert (info.entries, info.used, info.overflow) == (None, None, None)
    assert parse_log_info("Percent Used : 250%").used is None
    assert parse_watts("    Instantaneous power reading:   0 Watts\n") is None
